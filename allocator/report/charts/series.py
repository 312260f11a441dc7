"""Quantities over time: exact means over the bins of a grid, and their spread over seeds.

They are computed from the spans in which jobs held GPUs, not from one sample per round. The area
under the line of waiting jobs is therefore the time that jobs waited.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allocator.report.measures import duration
from allocator.report.runs import MEMORY_PRICE, SimulationRun, Study

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
BINS = 240
MOST_OF_IT = 0.9  # share of the GPU time that a nearly finished run has used
TAIL = 1.4  # longest run / window; above it, the tail is cut off


@dataclass(frozen=True)
class RunSeries:
    """Means over the bins between `edges` (B + 1,), seconds since the first submission.

    All other arrays have shape (B,).

    - waiting: jobs before their first start
    - paused: jobs that held GPUs before and hold none now
    - by pool: GPUs held, and GPUs available
    - dollars per hour: paid, and the price of all GPUs
    """

    edges: Floats
    waiting: Floats
    paused: Floats
    held: Mapping[str, Floats]
    capacity: Mapping[str, Floats]
    paid: Floats
    cost_of_all: Floats

    @property
    def all_held(self) -> Floats:
        return _sum(self.held.values(), len(self.edges) - 1)

    @property
    def all_capacity(self) -> Floats:
        return _sum(self.capacity.values(), len(self.edges) - 1)


def _sum(parts: Iterable[Floats], bins: int) -> Floats:
    return np.asarray(sum(parts, np.zeros(bins)), dtype=np.float64)


def steps_until(times: Floats, steps: Floats, x: Floats) -> Floats:
    """Return the integral up to each x of the function that rises by steps[i] at times[i]."""
    order = np.argsort(times, kind="stable")
    t = times[order]
    s = steps[order]
    level = np.concatenate([[0.0], np.cumsum(s)])
    moment = np.concatenate([[0.0], np.cumsum(s * t)])
    k = np.searchsorted(t, x, side="right")
    return np.asarray(level[k] * x - moment[k], dtype=np.float64)


def bin_means(times: Floats, steps: Floats, edges: Floats) -> Floats:
    """Return the mean over each bin of the function of `steps_until`, shape (B,)."""
    if not len(times):
        return np.zeros(len(edges) - 1)
    mean = np.diff(steps_until(times, steps, edges)) / np.diff(edges)
    return np.where(np.abs(mean) < 1e-9, 0.0, mean)


def span_means(begin: Floats, end: Floats, amounts: Floats, edges: Floats) -> Floats:
    """Return the mean over each bin of the sum of what lasts from each begin to its end, (B,)."""
    return bin_means(np.concatenate([begin, end]), np.concatenate([amounts, -amounts]), edges)


def begin_of(study: Study, run: SimulationRun) -> float:
    """Return the first submission, in seconds on the clock of the workload.

    It is the first round if no job was submitted.
    """
    for name, column in (("jobs", "submitted_s"), ("timeline", "at_s"), ("spans", "from_s")):
        frame = study.frame(run, name)
        if len(frame):
            return float(frame[column].min())
    return 0.0


def end_of(study: Study, run: SimulationRun) -> float:
    """Return the last time of which anything is known."""
    ends = [
        float(frame[column].max())
        for name, columns in (
            ("jobs", ("submitted_s", "finished_s")),
            ("timeline", ("at_s",)),
            ("spans", ("to_s",)),
        )
        for frame in (study.frame(run, name),)
        for column in columns
        if frame[column].notna().any()
    ]
    return max(ends, default=0.0)


@dataclass(frozen=True)
class TimeWindow:
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


def window(study: Study, runs: Sequence[SimulationRun]) -> TimeWindow:
    """Return the window of a picture that shows all of these runs.

    A policy is nearly done when nine of ten of its runs are nearly finished. The window ends 15 %
    after the last policy is nearly done, if the longest run takes more than TAIL times as long.
    Otherwise it ends with the longest run.
    """
    lengths = {r: end_of(study, r) - begin_of(study, r) for r in runs}
    if not lengths or max(lengths.values()) <= 0:
        return TimeWindow(1.0, 1.0, "")
    last = max(runs, key=lambda r: lengths[r])
    ends: dict[str, list[float]] = {}
    for r in runs:
        ends.setdefault(r.policy, []).append(_nearly_all(study, r, lengths[r]))
    enough = 1.15 * max(float(np.percentile(v, 90.0)) for v in ends.values())
    longest = lengths[last]
    return TimeWindow(enough if longest > TAIL * enough > 0 else longest, longest, last.policy)


def _nearly_all(study: Study, run: SimulationRun, length_s: float) -> float:
    """Return the seconds until the run was nearly finished.

    Then all jobs were submitted, MOST_OF_IT of the GPU time was used, and 97 % of the jobs were
    done.
    """
    begin = begin_of(study, run)
    spans = study.frame(run, "spans")
    jobs = study.frame(run, "jobs")
    if not len(spans):
        return length_s
    gpus = spans["held"].to_numpy()
    x = np.linspace(0.0, length_s, 4 * BINS + 1)
    used = np.cumsum(
        span_means(spans["from_s"].to_numpy() - begin, spans["to_s"].to_numpy() - begin, gpus, x)
    )
    submitted = float(jobs["submitted_s"].max()) - begin if len(jobs) else 0.0
    done = jobs["finished_s"].dropna().to_numpy() - begin
    return max(
        submitted,
        float(x[1:][np.searchsorted(used, MOST_OF_IT * used[-1])]),
        float(np.quantile(done, 0.97)) if len(done) else 0.0,
    )


def series(study: Study, run: SimulationRun, length_s: float, bins: int = BINS) -> RunSeries:
    """Return the run over a grid of `bins` equal bins of length_s seconds in all."""
    begin = begin_of(study, run)
    end = end_of(study, run)
    edges = np.linspace(0.0, length_s, bins + 1)
    jobs, spans, timeline = (study.frame(run, name) for name in ("jobs", "spans", "timeline"))
    starts = spans["from_s"].to_numpy() - begin
    stops = spans["to_s"].to_numpy() - begin
    gpus = spans["held"].to_numpy()
    pool = spans["pool"].to_numpy()
    submitted = jobs["submitted_s"].to_numpy() - begin
    # jobs that never started or finished wait to the end
    last = max(end, begin + length_s)
    started, finished = (
        jobs[c].fillna(last).to_numpy() - begin for c in ("started_s", "finished_s")
    )
    up = np.ones(len(jobs))
    on = np.ones(len(spans))
    waiting = span_means(submitted, started, up, edges)
    started_not_done = span_means(started, finished, up, edges)
    paused = np.maximum(started_not_done - span_means(starts, stops, on, edges), 0.0)
    names = list(dict.fromkeys([*timeline["pool"], *pool]))
    held = {}
    capacity = {}
    price = {}
    for name in names:
        mine = pool == name
        held[name] = span_means(starts[mine], stops[mine], gpus[mine], edges)
        rows = timeline[timeline["pool"] == name]
        capacity[name], price[name] = (
            _bin_known_values(rows, column, begin, edges)
            for column in ("gpus", "price_per_gpu_hour")
        )
    paid, full = (_sum((price[n] * part[n] for n in names), bins) for part in (held, capacity))
    memory = gpus * spans[MEMORY_PRICE].to_numpy()  # dollars per hour, besides those of the GPUs
    paid = paid + span_means(starts, stops, memory, edges)
    return RunSeries(edges, waiting, paused, held, capacity, paid, full)


def _bin_known_values(rows: pd.DataFrame, column: str, begin: float, edges: Floats) -> Floats:
    """Return the mean over each bin of values that rounds recorded.

    A value holds until the next round; the first one also holds before its round.
    """
    if not len(rows):
        return np.zeros(len(edges) - 1)
    t = rows["at_s"].to_numpy() - begin
    v = np.nan_to_num(rows[column].to_numpy())
    t = np.concatenate([[min(0.0, t[0])], t[1:]])
    return bin_means(t, np.diff(v, prepend=0.0), edges)


def spread(rows: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    """Return (mean, 10th percentile, 90th percentile) over seeds, (B,) each."""
    low, high = np.percentile(np.array(rows), (10.0, 90.0), axis=0)
    return np.mean(np.array(rows), axis=0), low, high


def share_done(values: Floats, of: int, x: Floats) -> Floats:
    """Return the share of `of` jobs whose value is at most each x.

    Jobs without a value count in `of` only.
    """
    known = np.sort(values[np.isfinite(values)])
    return np.searchsorted(known, x, side="right") / max(1, of)
