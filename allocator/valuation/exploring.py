"""A reward for options that teach most about speeds; [profiling] of config.toml with `share`.

Consider the sizes k of one (model, GPU type) for which models.csv has a curve with an `error`. Let
y_k = -log rate_k + log k / 2, the logarithm of the square root of time x cost. If rates differ with
the memory of pools, the fastest counts. A size that is not measured has the deviation of a Gaussian
process around the curve (performance/profiling.py). gain_k is the expected decrease of the least y
by measuring k. The value of this knowledge over `rounds` rounds is

    value_k = rounds x gain_k x sum over the jobs with options there of their best value

In each group the size of the largest gain per GPU is tried, by the job that loses least by it.
Groups of the largest value per GPU come first, as long as all tries together hold at most `share`
of the GPUs. Two jobs on the same GPUs do not show how fast either of them is alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from allocator.domain.problem import Floats, Ints, Problem
from allocator.domain.schema.columns import PROFILING
from allocator.performance import profiling
from formulations.objectives.context import Offer

DIGITS = 12  # smaller differences count as equal, so that the audit breaks ties in the same way
ROUNDS = next(c for c in PROFILING if c.name == "rounds").default


@dataclass(frozen=True)
class _Try:
    """The measurement of one size: `options` of the offer of one job at that size and GPU type."""

    options: Ints
    gpus: int
    value: float


def reward_exploring(problem: Problem, offer: Offer, value: Floats) -> Floats:
    """Return what to add to the values (n,) of the options, 0 unless exploring is enabled."""
    out = np.zeros(len(value))
    settings = problem.settings.get("profiling", {})
    left = gpus_to_explore(problem)
    if left < 1.0 or not len(value):
        return out
    tries = list(_tries(problem, offer, value, float(settings.get("rounds", ROUNDS))))
    for t in sorted(tries, key=lambda t: -round(t.value / t.gpus, DIGITS)):
        if t.gpus <= left:
            left -= t.gpus
            out[t.options] = t.value
    return out


def gpus_to_explore(problem: Problem) -> float:
    """Return the number of GPUs that may be used to learn speeds, 0 unless exploring is enabled."""
    share = problem.settings.get("profiling", {}).get("share", 0.0)
    return float(share) * float(problem.pools.gpus.sum())


def _tries(problem: Problem, offer: Offer, value: Floats, rounds: float) -> Iterator[_Try]:
    """Yield the best try of each curve, in the order of models.csv."""
    curves = problem.curves
    rates = problem.rates
    best = np.zeros(len(problem.jobs))
    np.maximum.at(best, offer.job, value)
    model = problem.jobs.model[offer.job]
    kind = problem.pools.gpu_type[offer.pool]
    for c, error in enumerate(curves.numbers.get("error", np.zeros(0)).tolist()):
        here = np.flatnonzero((model == curves.model[c]) & (kind == curves.gpu_type[c]))
        if not error > 0 or not len(here):
            continue
        seen = rates.gpus[(rates.model == curves.model[c]) & (rates.gpu_type == curves.gpu_type[c])]
        size, place = np.unique(offer.gpus[here], return_inverse=True)
        speed = np.zeros(len(size))
        np.maximum.at(speed, place.reshape(-1), offer.rate[here])
        deviation = np.where(
            np.isin(size, seen), 0.0, profiling.prediction_deviation(size, np.unique(seen), error)
        )
        expected_gain = profiling.expected_gain(0.5 * np.log(size) - np.log(speed), deviation)
        i = int(np.argmax(np.round(expected_gain / size, DIGITS)))
        if expected_gain[i] <= profiling.LEAST:
            continue
        some = here[offer.gpus[here] == size[i]]
        job = offer.job[some[np.argmin(np.round(best[offer.job[some]] - value[some], DIGITS))]]
        yield _Try(
            some[offer.job[some] == job],
            int(size[i]),
            rounds * float(expected_gain[i]) * float(best[np.unique(offer.job[here])].sum()),
        )
