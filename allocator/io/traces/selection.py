"""Select the jobs of a trace that become the workload.

The steps are: the window, jobs that the cluster can hold, truncation of long jobs, the number of
jobs, and the load. The offered load is the sum of duration_s times gpus over the jobs, divided by
the GPUs of the cluster times the span. The span is the length of the window. It is the time of the
last submission if no window was asked for, or if the number of jobs cut the window short.
"""

from dataclasses import dataclass, field, replace
from functools import reduce

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints
from allocator.domain.times import parse_date, parse_duration
from allocator.errors import UsageError
from allocator.io.traces.base import Trace, TraceJobs, TraceOptions, map_distinct
from allocator.io.traces.text import DATE

# random orders that thinning tries; the one nearest to the load asked for is taken
ORDERS = 32
MOST_JOBS = 5_000_000  # cloning beyond this is a mistake


@dataclass(frozen=True)
class ImportSummary:
    """What became of the jobs of a trace.

    `gpu_hours` is what the kept jobs ask for. `load` is nan if there is no span.
    """

    format: str
    read_rows: int
    dropped: dict[str, int] = field(default_factory=dict)
    truncated: int = 0
    clones: int = 0
    jobs: int = 0
    gpus: int = 0
    span_s: float = 0.0
    gpu_hours: float = 0.0
    load: float = np.nan
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return sentences for standard error."""
        gone = ", ".join(f"{n} {why}" for why, n in self.dropped.items() if n) or "none"
        out = [
            f"{self.format}: {self.read_rows} jobs read, {sum(self.dropped.values())} dropped:"
            f" {gone}"
        ]
        if self.truncated:
            out.append(f"{self.truncated} jobs cut to the longest run time allowed (--max-hours)")
        if self.clones:
            out.append(f"{self.clones} of the jobs are clones, submitted at shifted times")
        load = "" if np.isnan(self.load) else f", offered load {self.load:.3f}"
        out.append(
            f"{self.jobs} jobs over {self.span_s / 3600:.1f} h on {self.gpus} GPUs,"
            f" {self.gpu_hours:.0f} GPU-hours asked for{load}"
        )
        return [*out, *self.notes]


def select_jobs(trace: Trace, options: TraceOptions, name: str) -> tuple[Trace, ImportSummary]:
    """Return the trace with the selected jobs in order of submission, and a summary.

    Raises
    ------
    UsageError
        If no job is left, or the options cannot be met.
    """
    dropped = dict(trace.dropped)
    begin = _window_start(trace, options)
    inside = trace.jobs.submitted_s >= begin
    if options.hours is not None:
        inside &= trace.jobs.submitted_s < begin + options.hours * 3600
    jobs = _keep_jobs(trace.jobs, inside, dropped, "outside the window").shift(-begin)
    fits = jobs.gpus <= largest_pool(trace, jobs)
    jobs = _keep_jobs(jobs, fits, dropped, "ask for more GPUs than any pool for them has")
    if trace.speeds is not None:
        low, high = measured_range(trace, jobs)
        known = (low <= jobs.gpus) & (jobs.gpus <= high)
        jobs = _keep_jobs(jobs, known, dropped, "have no speed at the size they ask for")
    most_s = 3600 * (trace.max_hours if options.max_hours is None else options.max_hours)
    long = jobs.duration_s > most_s
    work = np.where(long, jobs.work * most_s / jobs.duration_s, jobs.work)
    jobs = replace(jobs, work=work, duration_s=np.minimum(jobs.duration_s, most_s))
    order = np.argsort(jobs.submitted_s, kind="stable")
    cut = options.jobs is not None and options.jobs < len(order)
    if cut:
        dropped["beyond --jobs"] = len(order) - (options.jobs or 0)
    jobs = jobs.select(order[: options.jobs])
    if not len(jobs):
        why = ", ".join(f"{n} {w}" for w, n in dropped.items() if n)
        raise UsageError(f"no job is left of {trace.read_rows}: {why or 'the trace has none'}")
    span = float(jobs.submitted_s[-1]) if cut or options.hours is None else options.hours * 3600
    clones = 0
    if options.load is not None:
        before = len(jobs)
        jobs, clones = scale_to_load(jobs, options.load, trace.gpus, span, options.seed)
        if not clones:
            dropped["thinned out (--load)"] = before - len(jobs)
    asked = float(np.nansum(jobs.duration_s * jobs.gpus))
    load = asked / (trace.gpus * span) if span > 0 else np.nan
    return replace(trace, jobs=jobs), ImportSummary(
        name,
        trace.read_rows,
        dropped,
        int(long.sum()),
        clones,
        len(jobs),
        trace.gpus,
        span,
        asked / 3600,
        load,
        trace.notes,
    )


def largest_pool(trace: Trace, jobs: TraceJobs) -> Ints:
    """Return the GPUs of the largest pool that each job may use, shape (n,)."""

    def largest(types: str) -> int:
        return max((p.gpus for p in trace.pools_for(types)), default=0)

    return np.array(map_distinct(largest, jobs.gpu_types), dtype=np.int64)


def measured_range(trace: Trace, jobs: TraceJobs) -> Ints:
    """Return the smallest and largest measured size of each job, (2, n).

    Only GPU types that the job may use count. The sizes are 1 and 0 if none was measured.
    """
    speeds = trace.speeds
    assert speeds is not None

    def range_of(model: str, types: str) -> tuple[int, int]:
        kinds = {p.gpu_type for p in trace.pools_for(types)}
        sizes = [k for kind in kinds for k in speeds.best.get((model, kind), ())]
        return min(sizes, default=1), max(sizes, default=0)

    both = np.array(map_distinct(range_of, jobs.model, jobs.gpu_types), dtype=np.int64)
    return both.reshape(-1, 2).T


def scale_to_load(
    jobs: TraceJobs, load: float, gpus: int, span: float, seed: int
) -> tuple[TraceJobs, int]:
    """Thin or clone jobs at random, so that the offered load is as near to `load` as possible.

    Thinning keeps a random subset of the jobs at their times. Cloning keeps all jobs and adds
    copies of all or of a random subset. All copies of one pass are moved by one random time and
    wrapped round the span, so that bursts stay bursts.

    Returns
    -------
    jobs : TraceJobs
        In order of submission.
    clones : int
        Number of copies.

    Raises
    ------
    UsageError
        If there is no span or no duration.
    """
    weight = jobs.duration_s * jobs.gpus
    total = float(weight.sum())
    if not (span > 0 and total > 0):
        raise UsageError(
            "--load needs jobs of known duration, submitted over a span of time; give --hours"
        )
    rng = np.random.default_rng([seed, 2])
    whole, part = divmod(load * gpus * span, total)
    if (whole + 1) * len(jobs) > MOST_JOBS:
        raise UsageError(
            f"--load {load:g} would need {whole:.0f} copies of {len(jobs)} jobs, which is too many"
        )
    copies = [np.arange(len(jobs))] * int(whole)
    copies.append(_subset(weight, part, rng))
    if not whole and not len(copies[0]):
        raise UsageError(
            f"--load {load:g} is less than the smallest part of the trace; take a larger window or"
            " load"
        )
    parts = [jobs.select(rows) for rows in copies]
    for i, part_ in enumerate(parts[1:], start=1):
        moved = (part_.submitted_s + rng.uniform(0, span)) % span
        unknown = np.full(len(part_), np.nan)
        parts[i] = replace(
            part_,
            submitted_s=moved,
            job_id=tuple(f"{name}~{i}" for name in part_.job_id),
            recorded_start_s=unknown,
            recorded_end_s=unknown,
        )
    merged = reduce(TraceJobs.append, parts)
    clones = sum(map(len, parts[1:]))
    return merged.select(np.argsort(merged.submitted_s, kind="stable")), clones


def _subset(weight: Floats, target: float, rng: np.random.Generator) -> Ints:
    """Return rows, ascending, whose weights sum to about the target.

    They are the best beginning of several random orders.
    """
    best: tuple[float, Ints] = (target, np.zeros(0, dtype=np.int64))
    for _ in range(ORDERS):
        order = rng.permutation(len(weight))
        miss = np.abs(np.cumsum(weight[order]) - target)
        n = int(miss.argmin())
        if miss[n] < best[0]:
            best = float(miss[n]), np.sort(order[: n + 1])
    return best[1]


def _keep_jobs(jobs: TraceJobs, keep: Bools, dropped: dict[str, int], why: str) -> TraceJobs:
    if keep.all():
        return jobs
    dropped[why] = int((~keep).sum())
    return jobs.select(np.flatnonzero(keep))


def _window_start(trace: Trace, options: TraceOptions) -> float:
    """Return the begin of the window on the clock of the trace."""
    start = options.start
    if start is None:
        return 0.0
    if not DATE.match(start):
        try:
            return parse_duration(start)
        except ValueError:
            raise UsageError(
                f'--from "{start}" is neither seconds nor a date like 2017-10-09 08:00'
            ) from None
    if np.isnan(trace.origin_s):
        raise UsageError(f'--from "{start}": this trace counts seconds and has no dates')
    try:
        return parse_date(start) - trace.origin_s
    except ValueError:
        raise UsageError(f'--from "{start}" is no date') from None
