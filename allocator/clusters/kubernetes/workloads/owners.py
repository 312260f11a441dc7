"""What owners say about their jobs, as annotations or labels allocator.example/NAME."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from allocator.clusters.kubernetes.objects import field, own_annotations, unix_seconds
from allocator.clusters.kubernetes.workloads.jobs import FoundJob, PodSet, resize
from allocator.errors import UsageError
from allocator.io.progress_sources import FIELDS, LogPattern, Metric, as_variables, read_source
from allocator.objects import Json, Record

KUEUE_MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
MOST_SIZES = 64


def _positive(text: str) -> float:
    if not 0.0 < float(text) < math.inf:
        raise ValueError
    return float(text)


def _count(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _time(text: str) -> float:
    seconds = unix_seconds(text)
    if seconds is None:
        raise ValueError
    return seconds


ANNOTATIONS: Mapping[str, Callable[[str], Any]] = {
    "managed": _flag,
    "paused": _flag,
    "model": str,
    "min-gpus": _count,
    "max-gpus": _count,
    "sizes": lambda text: sorted(set(map(_count, _words(text)))),
    "total-work": _positive,
    "remaining-work": _positive,
    "expected-seconds": _positive,
    "deadline": _time,
    "weight": _positive,
    "preemptible": _flag,
    "restart-seconds": _positive,
    "gpu-types": _words,
    **{name.replace("_", "-"): str for name in FIELDS},
}


def read_annotations(job: FoundJob) -> tuple[Json, list[str]]:
    """Return what the owner of a job says, and notes about what makes no sense."""
    said: Json = {}
    notes = []
    own = own_annotations(job.source)
    for name, parse in ANNOTATIONS.items():
        text = own.get(name)
        if text is None:
            continue
        try:
            said[name] = parse(text)
        except (ValueError, KeyError):
            notes.append(f'{job.job_id}: annotation {name} is "{text}", which is ignored')
    try:
        if read_progress_source(said) is not None and "total-work" not in said:
            notes.append(f"{job.job_id}: its progress is not asked for, as it names no total-work")
    except UsageError as error:
        notes.append(f"{job.job_id}: its source of progress is ignored: {error}")
        said = {name: value for name, value in said.items() if not name.startswith("progress-")}
    return said, notes


def read_progress_source(said: Record) -> LogPattern | Metric | None:
    """Return where the progress of a job comes from, by what its owner says. Raises UsageError."""
    return read_source(as_variables({name.replace("-", "_"): x for name, x in said.items()}))


def sizes_of(job: FoundJob, said: Record) -> list[int]:
    """Return the sizes that a job may have; without a word of its owner, only the one of its spec.

    Owners name a range (min-gpus, max-gpus, the annotation of Kueue for partial admission, or the
    elastic policy of a PyTorchJob) or the sizes themselves. Only sizes that whole pods make are
    possible.
    """
    elastic = next(
        (pod_set for pod_set in job.pod_sets if pod_set.is_elastic and pod_set.gpus), None
    )
    if elastic is None:
        return [job.gpus]
    if "sizes" in said:
        wanted = said["sizes"]
    else:
        fewest, most = _range_of_pods(job, elastic)
        low = said.get("min-gpus", job.gpus - (elastic.pods - fewest) * elastic.gpus)
        high = max(low, said.get("max-gpus", job.gpus + (most - elastic.pods) * elastic.gpus))
        wanted = range(low, high + 1)
    possible = sorted({n for n in wanted if resize(job, n) is not None} | {job.gpus})
    if len(possible) <= MOST_SIZES:
        return possible
    doubled = {possible[0] * 2**power for power in range(40)}
    return sorted((doubled & set(possible)) | {possible[0], possible[-1], job.gpus})


def _range_of_pods(job: FoundJob, elastic: PodSet) -> tuple[int, int]:
    """Return the fewest and the most pods that the owner names in words of others."""
    annotated = field(job.source, "metadata", "annotations", KUEUE_MIN_PARALLELISM)
    policy = field(job.source, "spec", "elasticPolicy")
    named = [annotated, field(policy, "minReplicas"), field(policy, "maxReplicas")]
    fewest, smallest, largest = (
        int(str(value)) if str(value).isdigit() and int(str(value)) > 0 else elastic.pods
        for value in named
    )
    return min(fewest, smallest, elastic.pods), max(largest, elastic.pods)
