"""What a reader of traces gives and takes: raw jobs as columns, pools, measured speeds, options.

n jobs, s measured speeds. Seconds count from the trace's own zero; a job's `duration_s` is its run
time at the size its user asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from allocator.domain.problem import Floats, Ints

Cells = Mapping[str, Sequence[str]]  # column -> text of every row
# overhead of each further GPU, log-uniform (see curves.py)
CURVES = (0.005, 0.01, 0.02, 0.04, 0.08, 0.15)


@dataclass(frozen=True)
class TraceOptions:
    """What the user may ask of any format; None = the format's own default.

    start: where the window begins, seconds on the trace's clock or a date ("2017-10-09 08:00");
    hours: its length. max_hours: longer jobs are cut to this. jobs: the first so many. load:
    offered load wanted (GPU-seconds asked for / GPU-seconds there are). gpus, gpus_per_node: the
    cluster. max_factor: max_gpus = factor x requested_gpus, at most most_gpus. rigid: every job
    runs at its requested size or not at all. rule_sizes: only sizes of the size rule
    (docs/reference/rules.md, R6). curves: speed curves, one drawn per job. extra: options of one
    format by name, each with every value given (registry.Extra).
    """

    start: str | None = None
    hours: float | None = None
    max_hours: float | None = None
    jobs: int | None = None
    load: float | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    max_factor: float | None = None
    most_gpus: int = 64
    rigid: bool = False
    rule_sizes: bool = False
    curves: tuple[float, ...] = CURVES
    seed: int = 0
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def extra_value(self, name: str, default: str = "") -> str:
        """The last value given for an extra option."""
        return self.extra.get(name, (default,))[-1]


@dataclass(frozen=True)
class TraceJobs:
    """Raw jobs, any order, every field with n entries.

    submitted_s; duration_s (nan = the trace does not say); gpus asked for; model: key into the
    speeds, or the curve; tenant ("" = default); gpu_types "A|B" ("" = any); work in the model's
    unit (nan = duration x speed); restart_s (nan = the workload's default); weight.
    """

    job_id: tuple[str, ...]
    submitted_s: Floats
    duration_s: Floats
    gpus: Ints
    model: tuple[str, ...]
    tenant: tuple[str, ...]
    gpu_types: tuple[str, ...]
    work: Floats
    restart_s: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.job_id)

    def take(self, rows: Ints) -> TraceJobs:
        """The jobs of these rows, in this order; a row may come twice."""
        index = rows.tolist()

        def some(value: object) -> object:
            if isinstance(value, np.ndarray):
                return value[rows]
            return tuple(value[i] for i in index)  # type: ignore[index]

        chosen: dict[str, Any] = {f.name: some(getattr(self, f.name)) for f in fields(self)}
        return replace(self, **chosen)


def trace_jobs(
    job_id: Sequence[str],
    submitted_s: Floats,
    duration_s: Floats,
    gpus: Ints,
    model: Sequence[str],
    *,
    tenant: Sequence[str] | None = None,
    gpu_types: Sequence[str] | None = None,
    work: Floats | None = None,
    restart_s: Floats | None = None,
    weight: Floats | None = None,
) -> TraceJobs:
    """TraceJobs with the defaults filled in."""
    n = len(job_id)
    unknown = np.full(n, np.nan)
    return TraceJobs(
        tuple(job_id),
        submitted_s.astype(np.float64),
        duration_s.astype(np.float64),
        gpus.astype(np.int64),
        tuple(model),
        tuple(tenant) if tenant is not None else ("",) * n,
        tuple(gpu_types) if gpu_types is not None else ("",) * n,
        unknown if work is None else work,
        unknown if restart_s is None else restart_s,
        np.ones(n) if weight is None else weight,
    )


@dataclass(frozen=True)
class TracePool:
    """Identical GPUs; speed: of one GPU against the reference type, for jobs without measured
    speeds.
    """

    pool: str
    gpu_type: str
    gpus: int
    gpus_per_node: int
    speed: float = 1.0


@dataclass(frozen=True)
class MeasuredSpeeds:
    """Rows of rates.csv (s,): useful work per second is work_per_s x efficiency. batch_size,
    accumulation: 0 = none.
    """

    model: tuple[str, ...]
    gpu_type: tuple[str, ...]
    gpus: Ints
    work_per_s: Floats
    efficiency: Floats
    batch_size: Ints
    accumulation: Ints


@dataclass(frozen=True)
class Trace:
    """What `read` gives. speeds None: each job's model is a curve (curves.py), and its work is
    duration x speed.

    read_rows: rows of the source. dropped: reason -> rows. notes: what the reader did that its user
    should know. origin_s: the trace's zero as seconds since 1970, nan = unknown. max_hours: cut
    longer jobs unless told otherwise. interval_s: round length for config.toml, nan = the default.
    max_factor: max_gpus over requested_gpus unless told otherwise.
    """

    jobs: TraceJobs
    pools: tuple[TracePool, ...]
    read_rows: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    speeds: MeasuredSpeeds | None = None
    origin_s: float = np.nan
    max_hours: float = np.inf
    interval_s: float = np.nan
    max_factor: float = 4.0

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return sum(p.gpus for p in self.pools)


@dataclass(frozen=True)
class WorkloadText:
    """A workload as text: file -> columns, and config.toml."""

    files: Mapping[str, Cells]
    config: Mapping[str, object]


class TraceFormat(Protocol):
    """A module that reads one format."""

    recognise: Callable[[Path], str]
    read: Callable[[Path, TraceOptions], Trace]
    workload: Callable[[Trace, TraceOptions], WorkloadText]
