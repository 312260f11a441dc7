"""Quantities over time: exact means over the bins of a grid, and their spread over seeds.

They are computed from the spans in which jobs held GPUs, not from one sample per round. The area
under the line of waiting jobs is therefore the time that jobs waited.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allocator.report.measures import duration
from allocator.report.runs import MEMORY_PRICE, Frame, SimulationRun
from formulations.step_means import bin_means, span_means

Floats = NDArray[np.float64]
BINS = 240
MOST_OF_IT = 0.9  # share of the GPU time that a nearly finished run has used
TAIL = 1.4  # longest run / window; above it, the tail is cut off


class TimeWindow(NamedTuple):
    """How much time pictures show.

    They show everything, or, if a few stragglers take much longer, the time until nearly all work
    is done.

    Attributes
    ----------
    length_s : seconds shown.
    longest_s : length of the longest run.
    policy : the policy of the longest run.
    """

    length_s: float
    longest_s: float
    policy: str

    def words(self) -> str:
        """Return a sentence about what is cut off; empty if nothing is."""
        if self.longest_s <= self.length_s:
            return ""
        return (
            f" The time axis ends soon after {100 * MOST_OF_IT:g} % of the GPU time is used; the"
            f" longest run, of {self.policy}, goes on to {duration(self.longest_s)}."
        )


def window(runs: Sequence[SimulationRun]) -> TimeWindow:
    """Return the window of a picture that shows all of these runs.

    A policy is nearly done when nine of ten of its runs are nearly finished. The window ends 15 %
    after the last policy is nearly done, if the longest run takes more than TAIL times as long.
    Otherwise it ends with the longest run.
    """
    last = max(runs, key=lambda run: run.length_s, default=None)
    if last is None or last.length_s <= 0:
        return TimeWindow(1.0, 1.0, "")
    ends = defaultdict[str, list[float]](list)
    for run in runs:
        ends[run.policy].append(_find_nearly_all(run))
    enough = 1.15 * max(float(np.percentile(times, 90.0)) for times in ends.values())
    longest = last.length_s
    return TimeWindow(enough if longest > TAIL * enough > 0 else longest, longest, last.policy)


def _find_nearly_all(run: SimulationRun) -> float:
    """Return the seconds until the run was nearly finished.

    Then all jobs were submitted, MOST_OF_IT of the GPU time was used, and 97 % of the jobs were
    done.
    """
    spans, jobs = run.frame("spans"), run.frame("jobs")
    if not len(spans):
        return run.length_s
    x = np.linspace(0.0, run.length_s, 4 * BINS + 1)
    used = np.cumsum(span_means(spans["from_s"], spans["to_s"], spans["held"], x))
    done = jobs["finished_s"].dropna()
    return max(
        float(jobs["submitted_s"].max()) if len(jobs) else 0.0,
        float(x[1:][np.searchsorted(used, MOST_OF_IT * used[-1])]),
        float(np.quantile(done, 0.97)) if len(done) else 0.0,
    )


def read_pools(run: SimulationRun, column: str, edges: Floats) -> dict[str, Floats]:
    """Return the mean over each bin of what rounds recorded of each pool.

    A value holds until the next round; the first one also holds before its round.
    """
    timeline = run.frame("timeline")
    out = {}
    for pool in dict.fromkeys([*timeline["pool"], *run.frame("spans")["pool"]]):
        rows = timeline[timeline["pool"] == pool]
        at = rows["at_s"].to_numpy(copy=True)
        at[:1] = np.minimum(at[:1], 0.0)
        values = np.nan_to_num(rows[column].to_numpy())
        out[pool] = bin_means(at, np.diff(values, prepend=0.0), edges)
    return out


def series(run: SimulationRun, length_s: float) -> Frame:
    """Return the means of a run over a grid of equal bins, `length_s` seconds in all.

    Rows are bins, by their ends in seconds since the first submission. The columns:

    - waiting: jobs before their first start
    - paused: jobs that held GPUs before and hold none now
    - held, capacity: GPUs held, and GPUs available
    - paid, cost_of_all: dollars per hour, and the price of all GPUs
    """
    import pandas as pd

    edges = np.linspace(0.0, length_s, BINS + 1)
    # jobs that never started or finished wait to the end
    jobs = run.frame("jobs").fillna(
        dict.fromkeys(("started_s", "finished_s"), max(run.length_s, length_s))
    )
    submitted, started, finished = jobs[["submitted_s", "started_s", "finished_s"]].to_numpy().T
    up = np.ones(len(jobs))
    spans = run.frame("spans")

    begin, end = spans[["from_s", "to_s"]].to_numpy().T

    def sum_spans(amounts: Frame) -> Floats:
        return span_means(begin, end, amounts.to_numpy(), edges)

    running = sum_spans(spans["gpus"] ** 0)
    price = read_pools(run, "price_per_gpu_hour", edges)
    capacity = read_pools(run, "gpus", edges)
    held = {pool: sum_spans(spans["held"].where(spans["pool"] == pool, 0.0)) for pool in price}
    # dollars per hour, besides those of the GPUs
    memory = sum_spans(spans["held"] * spans[MEMORY_PRICE])
    none = np.zeros(BINS)
    return pd.DataFrame(
        {
            "waiting": span_means(submitted, started, up, edges),
            "paused": np.maximum(span_means(started, finished, up, edges) - running, 0.0),
            "held": sum(held.values(), none),
            "capacity": sum(capacity.values(), none),
            "paid": sum((price[pool] * held[pool] for pool in price), none) + memory,
            "cost_of_all": sum((price[pool] * capacity[pool] for pool in price), none),
        },
        index=edges[1:],
    )
