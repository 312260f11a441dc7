"""The types that readers of traces share: options, jobs as columns, pools and measured speeds.

In the shapes below, n is the number of jobs and s the number of measured speeds. Seconds count from
the zero of the trace. The `duration_s` of a job is its run time at the size that its user asked
for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints, Rows
from allocator.errors import UsageError

# overhead of each further GPU, evenly spaced on a log scale (see curves.py)
CURVES = (0.005, 0.01, 0.02, 0.04, 0.08, 0.15)


@dataclass(frozen=True)
class TraceOptions:
    """What a user may set for any format; None means the default of the format.

    Attributes
    ----------
    start : begin of the window, in seconds on the clock of the trace or as a date ("2017-10-09
    08:00").
    hours : length of the window.
    max_hours : longer jobs are cut to this.
    jobs : how many jobs to keep; the first ones are kept.
    load : offered load, GPU-seconds asked for / GPU-seconds available.
    gpus, gpus_per_node : size of the cluster.
    gpus_by_type : the same for formats that know GPU types; it replaces `gpus`.
    max_factor : `max_gpus` of a job is this factor times `requested_gpus`, at most `most_gpus`.
    rigid : every job runs at its requested size or not at all. So does every job of a trace
    without speeds, unless `max_factor` is given.
    rule_sizes : only sizes of the size rule (docs/reference/rules.md, R6) are used.
    curves : speed curves, one of which is drawn for each job.
    extra : options of one format (io/formats.py) by name, each with all values given.
    """

    start: str | None = None
    hours: float | None = None
    max_hours: float | None = None
    jobs: int | None = None
    load: float | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_by_type: Mapping[str, int] = field(default_factory=dict)
    max_factor: float | None = None
    most_gpus: int = 64
    rigid: bool = False
    rule_sizes: bool = False
    curves: tuple[float, ...] = CURVES
    seed: int = 0
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def invents(self) -> bool:
        """Return whether jobs of a trace without speeds may run at other sizes than asked for."""
        return self.max_factor is not None and not self.rigid

    def extra_value(self, name: str, default: str = "") -> str:
        """Return the last value that was given for an extra option."""
        return self.extra.get(name, (default,))[-1]

    def choose(self, name: str, known: Iterable[str], default: str) -> str:
        """Return what an extra option says, which may say only some words."""
        value = self.extra_value(name, default)
        if value not in known:
            raise UsageError(f"--{name} {value}: one of {', '.join(known)}")
        return value


@dataclass(frozen=True)
class TraceJobs(Rows):
    """Jobs of a trace in any order; every field has n entries.

    Attributes
    ----------
    submitted_s : seconds.
    duration_s : seconds; nan if the trace does not say.
    gpus : GPUs asked for.
    model : key into the measured speeds, or the name of the speed curve.
    tenant : "" for the default.
    gpu_types : "A|B"; "" for any type.
    work : in the unit of the model; nan for duration times speed.
    restart_s : seconds; nan for the default of the workload.
    weight : factor of the job in the objective.
    recorded_start_s, recorded_end_s, time_limit_s : seconds; nan if the trace does not say.
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
    recorded_start_s: Floats
    recorded_end_s: Floats
    time_limit_s: Floats

    def shift(self, seconds: float) -> TraceJobs:
        """Return the jobs with all times so much later."""
        times = ("submitted_s", "recorded_start_s", "recorded_end_s")
        return replace(self, **{name: getattr(self, name) + seconds for name in times})

    def begin_at_first(self) -> tuple[TraceJobs, float]:
        """Return the jobs on a clock that begins with the first submission, and that time."""
        origin = float(self.submitted_s.min()) if len(self) else 0.0
        return self.shift(-origin), origin


def trace_jobs(
    job_id: Sequence[str],
    submitted_s: Floats,
    duration_s: Floats,
    gpus: Ints,
    *,
    recorded: tuple[Floats, Floats] | None = None,
    **columns: Any,
) -> TraceJobs:
    """Return jobs with some further columns, and the others as if the trace did not say.

    `recorded` has the start and the end of each job, which count where they are in order.
    """
    n = len(job_id)
    unknown = np.full(n, np.nan)
    start, end = recorded or (unknown, unknown)
    start = np.where((submitted_s <= start) & ~(end < start), start, np.nan)
    columns = {
        **dict.fromkeys(("work", "restart_s", "time_limit_s"), unknown),
        "weight": np.ones(n),
        **columns,
        **{name: tuple(columns.get(name, ("",) * n)) for name in ("model", "tenant", "gpu_types")},
    }
    return TraceJobs(
        job_id=tuple(job_id),
        submitted_s=submitted_s.astype(np.float64),
        duration_s=duration_s.astype(np.float64),
        gpus=gpus.astype(np.int64),
        recorded_start_s=start,
        recorded_end_s=np.where(np.isnan(start), np.nan, end),
        **columns,
    )


def map_distinct(function: Callable[..., Any], *columns: Iterable[Any]) -> list[Any]:
    """Return a function of the values of each row, which is called once for equal rows."""
    rows = list(zip(*columns, strict=True))
    known = {row: function(*row) for row in set(rows)}
    return [known[row] for row in rows]


def sort_out(reasons: Mapping[str, Bools]) -> tuple[dict[str, int], Ints]:
    """Return how many rows are left out for each reason, the first that holds, and the others."""
    left = np.zeros(len(next(iter(reasons.values()))), dtype=bool)
    dropped = {}
    for reason, holds in reasons.items():
        dropped[reason] = int((holds & ~left).sum())
        left |= holds
    return dropped, np.flatnonzero(~left)


@dataclass(frozen=True)
class TracePool:
    """Identical GPUs.

    `speed` is that of one GPU relative to the reference type. It is used for jobs without measured
    speeds.
    """

    pool: str
    gpu_type: str
    gpus: int
    gpus_per_node: int
    speed: float = 1.0


@dataclass(frozen=True)
class MeasuredSpeeds:
    """Rows of rates.csv, shape (s,); useful work per second is work_per_s times efficiency.

    In `batch_size` and `accumulation`, 0 means none.
    """

    model: tuple[str, ...]
    gpu_type: tuple[str, ...]
    gpus: Ints
    work_per_s: Floats
    efficiency: Floats
    batch_size: Ints
    accumulation: Ints

    @classmethod
    def of(cls, rows: Iterable[tuple[Any, ...]]) -> MeasuredSpeeds:
        """Return rows; of an efficiency and settings of the batch there may be none."""
        usual = (1.0, 0, 0)
        whole = [(*row, *usual[len(row) - 4 :]) for row in rows]
        model, gpu_type, *numbers = zip(*whole, strict=True)
        return cls(model, gpu_type, *map(np.array, numbers))

    @cached_property
    def best(self) -> Mapping[tuple[str, str], dict[int, float]]:
        """The fastest useful speed of each model and GPU type by size, sizes ascending."""
        fastest: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        rate = self.work_per_s * self.efficiency
        columns = (self.gpus.tolist(), rate.tolist(), self.model, self.gpu_type)
        for size, speed, model, gpu_type in sorted(zip(*columns, strict=True)):
            if speed > 0:
                fastest[model, gpu_type][size] = speed
        return fastest


@dataclass(frozen=True)
class Trace:
    """What `read` returns.

    Attributes
    ----------
    speeds : measured speeds. None: the model of each job is a curve (curves.py), and its work is
    duration times speed.
    read_rows : number of rows of the source.
    dropped : reason -> number of rows.
    notes : what the reader did that its user should know.
    origin_s : the zero of the trace in seconds since 1970; nan if unknown.
    max_hours : longer jobs are cut to this, unless the options say otherwise.
    interval_s : length of a round for config.toml; nan for the default.
    max_factor : `max_gpus` over `requested_gpus`, unless the options say otherwise.
    assumed : what its reader assumed, for the assumptions of the workload.
    has_nodes : the workload lists the nodes of its pools, on which jobs are placed.
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
    assumed: tuple[str, ...] = ()
    has_nodes: bool = False

    @property
    def gpus(self) -> int:
        """Return the GPUs of the whole cluster."""
        return sum(p.gpus for p in self.pools)

    def pools_for(self, types: str) -> list[TracePool]:
        """Return the pools that jobs of these GPU types may use."""
        allowed = types.split("|")
        return [p for p in self.pools if not types or p.gpu_type in allowed]
