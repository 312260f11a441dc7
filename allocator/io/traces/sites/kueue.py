"""kueue: what `kubectl get workloads,events --all-namespaces -o json` prints.

A workload is a job from its creation, or from when it was queued again. A run begins when it is
admitted, and ends when it is evicted or finished. Events that are still there tell of earlier runs;
without them only the last one is known. GPUs are those of its admission, by flavour, else those
that its pods ask for.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from allocator.domain.times import parse_date
from allocator.errors import UsageError
from allocator.io.traces.base import Trace, TraceOptions
from allocator.io.traces.sites.records import RECORDS, minutes, read_documents, read_trace, tres
from allocator.io.traces.sites.slurm_records import UNTYPED
from allocator.io.traces.text import form_of, read_first_lines
from allocator.objects import Record

TENANTS = {"queue": "Account", "namespace": "User", "cluster-queue": "Partition"}
ASSUMED = "a run of which neither conditions nor events tell did not take place"


def recognise(source: Path) -> str:
    """Return "" if the first lines have an object of Kueue, else why not."""
    is_kueue = any("kueue.x-k8s.io" in line for line in read_first_lines(source))
    return "" if is_kueue else "has no object of kueue.x-k8s.io in its first lines"


def read(source: Path, options: TraceOptions) -> Trace:
    """Read the runs of all workloads. Raises InvalidInput and UsageError as `slurm.read`."""
    try:
        until = options.extra_value("until")
        until_s = parse_date(until) if until else None
    except ValueError:
        raise UsageError(f"--until {until}: no date") from None
    with form_of(source, RECORDS):
        items = [item for d in read_documents(source) for item in d.get("items", [d])]
        marks: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
        for e in (item for item in items if item["kind"] == "Event"):
            about, at = e["involvedObject"], e.get("eventTime") or e.get("firstTimestamp")
            ends = e["reason"].startswith("Evicted")
            if at and about["kind"] == "Workload" and (ends or e["reason"] == "Admitted"):
                marks[about["namespace"], about["name"]].append((parse_date(at), ends))
        records = [
            record
            for item in items
            if item["kind"] == "Workload"
            for record in _records(item, marks, until_s)
        ]
    return read_trace(source, records, options, TENANTS, [ASSUMED])


def _records(
    item: Record,
    marks_of: Mapping[tuple[str, str], list[tuple[float, bool]]],
    until_s: float | None,
) -> Iterator[dict[str, object]]:
    """Yield a record for each run. A mark is a time, and whether a run ends then."""
    about, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    name = about["namespace"], about["name"]
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    at = {
        kind: parse_date(c["lastTransitionTime"])
        for kind, c in conditions.items()
        if c["status"] == "True"
    }
    admitted = "Admitted" if "Admitted" in conditions else "QuotaReserved"
    ends = {"Evicted": True, "Finished": True, admitted: False}
    marks = sorted({*marks_of[name], *((at[kind], ends[kind]) for kind in ends if kind in at)})
    limit = spec.get("maximumExecutionTimeSeconds")
    common = {
        "JobID": "/".join(name),
        "Account": spec.get("queueName"),
        "User": name[0],
        "Partition": status.get("admission", {}).get("clusterQueue"),
        "Priority": spec.get("priority"),
        "Timelimit": limit and minutes(limit),
        "AllocTRES": tres(*_gpus(spec, status)),
    }
    submit, start = parse_date(about["creationTimestamp"]), None
    if not any(ends_run for _, ends_run in marks[:-1]):
        submit = max(submit, at.get("Requeued", submit))  # runs before that have no record
    for t, ends_run in marks:
        if ends_run and start is not None:
            state = conditions["Finished"]["reason"] if t == at.get("Finished") else "Evicted"
            yield {**common, "Submit": submit, "Start": start, "End": t, "State": state}
            submit, start = t, None
        elif not ends_run and start is None:
            start = t
    if start is not None or not any(ends_run for _, ends_run in marks):
        ran = None if start is None or until_s is None else minutes(until_s - start)
        yield {**common, "Submit": submit, "Start": start, "Elapsed": ran, "State": "open"}


def _gpus(spec: Record, status: Record) -> tuple[Counter[str], int]:
    """Return the GPUs of a workload by flavour, and the number of its pods with GPUs."""
    gpus, pods = Counter[str](), 0
    for given in status.get("admission", {}).get("podSetAssignments", ()):
        for name, amount in given.get("resourceUsage", {}).items():
            if name.endswith("/gpu"):
                gpus[given.get("flavors", {}).get(name, UNTYPED)] += int(amount)
                pods += int(given.get("count", 1))
    for pod_set in () if gpus else spec["podSets"]:
        for container in pod_set["template"]["spec"]["containers"]:
            resources = container.get("resources", {})
            amounts = {**resources.get("limits", {}), **resources.get("requests", {})}
            each = sum(int(n) for name, n in amounts.items() if name.endswith("/gpu"))
            gpus[UNTYPED] += each * int(pod_set.get("count", 1))
            pods += int(pod_set.get("count", 1)) if each else 0
    return gpus, pods
