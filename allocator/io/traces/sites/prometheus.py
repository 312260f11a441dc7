"""prometheus: pods with GPUs, from the samples of kube-state-metrics and of the DCGM exporter.

The source is a server (http://HOST:PORT), or a file with answers of its /api/v1/query_range, one
behind the other, to QUERIES. A pod is a job of the GPUs that its containers ask for, from its first
sample; it runs while its phase is Running. Its GPU type is what DCGM says, if it does.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from allocator.domain.times import parse_date
from allocator.errors import UsageError
from allocator.io.traces.base import Trace, TraceOptions
from allocator.io.traces.sites.records import RECORDS, minutes, read_documents, read_trace, tres
from allocator.io.traces.sites.slurm_records import UNTYPED
from allocator.io.traces.text import form_of, input_error, read_first_lines

ASKED, PHASE, BUSY = (
    "kube_pod_container_resource_requests",
    "kube_pod_status_phase",
    "DCGM_FI_DEV_GPU_UTIL",
)
QUERIES = (f'{ASKED}{{resource="nvidia_com_gpu"}}', f"{PHASE} == 1", BUSY)
MOST_STEPS = 10_000  # of one query; a server answers with 11,000 at most
TIMEOUT_S = 120.0


def recognise(source: Path) -> str:
    """Return "" for a server, or if the first lines are an answer to a range query."""
    is_known = _is_server(source) or any('"matrix"' in line for line in read_first_lines(source))
    return "" if is_known else "is no answer of a range query (matrix)"


def read(source: Path, options: TraceOptions) -> Trace:
    """Read the pods with GPUs. Raises InvalidInput and UsageError as `slurm.read`."""
    documents = list(_ask(source, options)) if _is_server(source) else read_documents(source)
    types, busy = dict[Any, str](), list[float]()
    gpus: dict[Any, dict[str, int]] = defaultdict(dict)  # of each container
    phases: dict[Any, dict[float, str]] = defaultdict(dict)
    with form_of(source, RECORDS):
        for series in (s for d in documents for s in d["data"]["result"]):
            labels, values = series["metric"], [(float(t), float(v)) for t, v in series["values"]]
            # a scrape without honor_labels keeps the labels of the exporter under another name
            pod = tuple(
                labels.get(f"exported_{name}", labels.get(name, ""))
                for name in ("namespace", "pod")
            )
            if labels["__name__"] == BUSY:
                types[pod] = labels.get("modelName", UNTYPED).replace(" ", "-")
                busy += [v for _, v in values]
            elif labels["__name__"] == ASKED and labels["resource"] == "nvidia_com_gpu":
                gpus[pod, labels.get("uid", "")][labels.get("container", "")] = int(values[0][1])
            elif labels["__name__"] == PHASE:
                of = phases[pod, labels.get("uid", "")]
                of.update({t: labels["phase"] for t, v in values if v == 1.0})
        times = np.unique([t for seen in phases.values() for t in seen])
        step_s = float(np.diff(times).min(initial=np.inf))
        records, early = [], 0
        for (pod, uid), n in gpus.items():
            seen = phases.get((pod, uid), {})
            early += bool(seen) and min(seen) == times[0]
            if seen and min(seen) > times[0]:
                runs = [t for t, phase in seen.items() if phase == "Running"]
                record = {
                    "JobID": "/".join(pod),
                    "Account": pod[0],
                    "Submit": min(seen),
                    "Start": min(runs, default=None),
                    "State": seen[max(seen)],
                    "AllocTRES": tres({types.get(pod, UNTYPED): sum(n.values())}, 1),
                }
                if runs and max(runs) < times[-1]:
                    record["End"] = max(runs) + step_s
                elif runs:
                    record["Elapsed"] = minutes(max(runs) - min(runs))
                records.append(record)
    assumed = (
        "each pod is a job of its own",
        f"times are those of samples, {step_s:g} s apart",
        *([f"pods of the first sample ({early}) are left out"] if early else []),
        *([f"GPUs were {np.mean(busy):.0f} % busy on average (DCGM)"] if busy else []),
    )
    return read_trace(source, records, options, {"namespace": "Account"}, assumed)


def _is_server(source: Path) -> bool:
    return str(source).startswith(("http:/", "https:/"))


def _ask(source: Path, options: TraceOptions) -> Iterator[Any]:
    """Yield the answers of a server about the window of the options."""
    from http.client import HTTPException
    from urllib.parse import urlencode
    from urllib.request import urlopen

    try:
        begin, step_s = parse_date(options.start or ""), float(options.extra_value("step", "60"))
    except ValueError:
        raise UsageError("a server is asked from a date on: --from DATE --hours H") from None
    if options.hours is None or not step_s > 0:
        raise UsageError("a server is asked for some hours, in steps of seconds: --hours, --step")
    url = str(source).replace(":/", "://", 1)
    # a server repeats the last samples for what is not yet
    end = min(begin + 3600.0 * options.hours, time.time())
    for at in np.arange(begin, end, step_s * MOST_STEPS).tolist():
        until = min(end, at + step_s * (MOST_STEPS - 1))
        for query in QUERIES:
            parameters = urlencode({"query": query, "start": at, "end": until, "step": step_s})
            try:
                with urlopen(f"{url}/api/v1/query_range?{parameters}", timeout=TIMEOUT_S) as answer:
                    yield json.load(answer)
            except (OSError, ValueError, HTTPException) as error:
                why = getattr(error, "reason", error)
                raise input_error(url, f"gives no answer: {why}") from None
