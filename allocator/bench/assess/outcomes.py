"""What became of the jobs, recorded or simulated: waiting, completion, GPUs in use."""

from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Bools, Floats, Ints
from allocator.domain.workload import Workload
from allocator.simulator import Simulation
from formulations.step_means import span_means

QUANTILES = (50, 90, 99)
BINS = 48  # of the time between the first and the last submission
DAY_S = 86_400.0
PERIODS = (("week", 7 * DAY_S), ("day", DAY_S))
RESAMPLES = 2_000
LEVELS = (2.5, 97.5)  # percentiles of an interval of 95 %


@dataclass(frozen=True)
class Outcome:
    """What became of the jobs of a workload.

    Attributes
    ----------
    waiting_s, completion_s : (J,)
        Seconds from submission to first start, and to the end, nan = never or not known.
    used : (BINS,)
        Mean GPUs held in each part of the time between the first and the last submission.
    """

    waiting_s: Floats
    completion_s: Floats
    used: Floats

    def figures(self, chosen: Bools, gpus: int) -> dict[str, float]:
        """Return the figures of the chosen jobs (J,), and the share of so many GPUs in use."""
        waiting = self.waiting_s[chosen]
        quantiles = np.percentile(waiting, QUANTILES).tolist()
        return {
            "waiting_s_mean": float(waiting.mean()),
            **{f"waiting_s_p{q}": v for q, v in zip(QUANTILES, quantiles, strict=True)},
            "completion_s_mean": float(self.completion_s[chosen].mean()),
            "use": float(self.used.mean()) / gpus,
        }


def outcome_of(workload: Workload, run: Simulation) -> Outcome:
    """Return the outcome of a simulation of the workload."""
    times = np.full((2, len(workload.problem.jobs)), np.nan)
    for column, name in zip(times, ("queue_s", "jct_s"), strict=True):
        values = np.asarray(run.tables["jobs"][name], dtype=np.float64)
        column[: len(values)] = values
    spans = run.tables["spans"]
    own = np.asarray(spans["shared_with"], dtype=str) == ""
    start, end, gpus = (np.asarray(spans[name])[own] for name in ("from_s", "to_s", "gpus"))
    return Outcome(times[0], times[1], span_means(start, end, gpus, edges(workload)))


def recorded_outcome(workload: Workload) -> Outcome:
    """Return the recorded outcome, without any use of GPUs (`with_rigid_use`)."""
    at, recorded = workload.problem.jobs.submitted_s, workload.recorded
    return Outcome(recorded.start_s - at, recorded.end_s - at, np.zeros(BINS))


def with_rigid_use(workload: Workload, outcome: Outcome, chosen: Bools) -> Outcome:
    """Return the outcome with the use of the chosen jobs (J,) alone.

    They hold the GPUs that they asked for from start to end.
    """
    jobs = workload.problem.jobs
    start, end = (jobs.submitted_s + s for s in (outcome.waiting_s, outcome.completion_s))
    used = span_means(start[chosen], end[chosen], jobs.requested_gpus[chosen], edges(workload))
    return Outcome(outcome.waiting_s, outcome.completion_s, used)


def edges(workload: Workload) -> Floats:
    """Return the ends of the parts of the time between first and last submission, (BINS + 1,)."""
    at = workload.problem.jobs.submitted_s
    return np.linspace(at[0], max(at[-1], at[0] + 1.0), BINS + 1)


def periods(workload: Workload) -> tuple[str, Ints]:
    """Return what is resampled, "" = the history is too short, and the period of each job, (J,)."""
    at = workload.problem.jobs.submitted_s
    for name, length in PERIODS:
        if at[-1] - at[0] >= 2 * length:
            return name, ((at - at[0]) // length).astype(np.int64)
    return "", np.zeros(len(at), dtype=np.int64)


def change(new: Floats, old: Floats, period: Ints) -> tuple[float, float, float]:
    """Return the change of a mean over jobs in percent, and its interval by resampled periods.

    nan stands for what is not defined: an interval of one period, a change from 0.
    """
    here = np.bincount(period) > 0
    a, b = (np.bincount(period, values)[here] for values in (new, old))
    drawn = np.random.default_rng(0).integers(0, len(a), (RESAMPLES, len(a)))
    sums = np.array([[a.sum(), *a[drawn].sum(axis=1)], [b.sum(), *b[drawn].sum(axis=1)]])
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(sums[0] == sums[1], 0.0, 100.0 * (sums[0] / sums[1] - 1.0))
    percent[~np.isfinite(percent)] = np.nan
    many = len(a) > 1 and not np.isnan(percent).all()
    low, high = np.nanpercentile(percent[1:], LEVELS).tolist() if many else (np.nan, np.nan)
    return float(percent[0]), low, high
