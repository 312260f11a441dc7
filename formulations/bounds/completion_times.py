"""A mean completion time that no policy can go below, even if it knows everything.

Job j arrives at r_j with the work w_j; in the best case it does s(p, k) of it in a second on k GPUs
of pool p. A policy is a plan for each job that uses at most G_pt GPUs in interval t. Prices pi_pt
per GPU-second relax that, as those of pools do in a round:

    sum_j (C_j - r_j)  >=  sum_j min_C ( C - r_j + cost_j(C) )  -  sum_pt pi_pt G_pt length_t

where cost_j(C) is the least price of doing w_j from r_j to C. By duality it is, for any value nu of
work, at least

    nu w_j  -  int_{r_j}^{C} max( 0, max_{p,k} nu s(p, k) - pi_pt k ) dt

so that every set of prices and values proves a bound. Rounds, pauses and failures make a policy
worse, and are left out. From the best prices so far, those where more GPUs are wanted than there
are go up by a factor. What is wanted is an average over turns, as in the volume algorithm (Barahona
and Anbil, Mathematical Programming 87, 2000), because a job wants all or nothing at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.model.linear import Floats, Ints

TURNS = 150  # of the search for prices
NEW = 0.1  # weight of a turn in the average of what is wanted
PATIENCE = 3  # turns without a better bound, after which steps are shorter
MOST_STEP = 2.0  # largest step of the logarithm of a price
LEVELS = np.geomspace(0.005, 2.0, 14)  # tried as the price at all times; the best is the start
VALUES = 48  # values of a unit of work that are tried, evenly on a logarithmic scale
# the least of them, and the largest divided by the number of jobs, in seconds that the unit takes
FIRST, MOST = 0.3, 3.0
PARTS = 4  # parts of an interval; a job may be done at the end of each


@dataclass(frozen=True)
class Speeds:
    """How fast a job is: `rate` units of work per second on `gpus` GPUs of `pool`, (m,) each."""

    pool: Ints
    gpus: Floats
    rate: Floats


@dataclass(frozen=True)
class Demand:
    """Jobs with the same speeds: their arrival times, in seconds, and their work, (n,) each."""

    speeds: Speeds
    arrival: Floats
    work: Floats


def least_total_completion(
    demands: Sequence[Demand], times: Floats, gpus: Floats, turns: int = TURNS
) -> float:
    """Return a bound on the sum over jobs of completion less arrival, in seconds.

    Parameters
    ----------
    times : (T+1,)
        Ends of the intervals, seconds, from the first arrival. After the last nothing is scarce.
    gpus : (P, T)
        GPUs of each pool, the mean over the interval.
    turns : int
        Changes of the prices: the more, the tighter is the bound.

    Examples
    --------
    Two jobs of 1 h and 2 h on one GPU take 1 h and 3 h.

    >>> speeds = Speeds(np.array([0]), np.array([1.0]), np.array([1.0]))
    >>> jobs = [Demand(speeds, np.zeros(2), np.array([3600.0, 7200.0]))]
    >>> bound = least_total_completion(jobs, np.linspace(0, 12000, 101), np.ones((1, 100)))
    >>> 3.9 < bound / 3600 <= 4.0
    True
    """
    slowest = max(float((d.work / d.speeds.rate.max()).max()) for d in demands)
    times = np.append(times, times[-1] + slowest)
    offer = gpus * np.diff(times[:-1])
    fast = np.zeros(len(gpus))
    for d in demands:
        np.maximum.at(fast, d.speeds.pool, d.speeds.rate / d.speeds.rate.max() / d.speeds.gpus)
    jobs = sum(len(d.work) for d in demands)
    flat = fast[:, None] / fast.max() * np.ones_like(gpus)
    best, prices, wanted = -np.inf, flat, offer
    for level in LEVELS:
        bound, used = _evaluate(demands, times, offer, level * flat, jobs)
        if bound > best:
            best, prices, wanted = bound, level * flat, used
    step, missed, some = 0.3, 0, np.maximum(offer, 1e-9)
    excess = (wanted - offer) / some
    for _ in range(turns):
        now = prices * np.exp(step * np.clip(excess, -1.0, 1.0))
        bound, wanted = _evaluate(demands, times, offer, now, jobs)
        excess += NEW * ((wanted - offer) / some - excess)
        missed = 0 if bound > best else missed + 1
        if bound > best:
            best, prices, step = bound, now, min(MOST_STEP, 1.1 * step)
        elif missed % PATIENCE == 0:
            step *= 0.8
    return best


def _evaluate(
    demands: Sequence[Demand], times: Floats, offer: Floats, prices: Floats, jobs: int
) -> tuple[float, Floats]:
    """Return the bound at some prices (P, T), and the GPU-seconds wanted at them, (P, T)."""
    total, wanted = -float((prices * offer).sum()), np.zeros((len(offer), len(times) - 1))
    prices = np.append(prices, np.zeros((len(prices), 1)), axis=1)
    for d in demands:
        gain, used = _evaluate_alike(d, times, prices, jobs)
        total += gain
        wanted += used
    return total, wanted[:, :-1]


def _evaluate_alike(d: Demand, times: Floats, prices: Floats, jobs: int) -> tuple[float, Floats]:
    """Return sum_j min_C (C - r_j + cost_j(C)) over some jobs, and the GPU-seconds (P, T+1)."""
    s, length, n = d.speeds, np.diff(times), np.arange(len(d.work))
    values = np.geomspace(FIRST, MOST * max(10, jobs), VALUES) / s.rate.max()
    cost = prices[s.pool] * s.gpus[:, None]
    here = np.minimum(np.searchsorted(times, d.arrival, side="right") - 1, len(length) - 1)
    share = (d.arrival - times[here]) / length[here]
    begin = (times[:-1, None] + length[:, None] * np.arange(PARTS) / PARTS).ravel()
    end = np.append(begin[1:], times[-1])
    least = np.zeros((len(n), len(begin)))  # cost_j(C) for a C in each part
    which = np.full(least.shape, -1)
    gains, sizes = [], []
    for v, value in enumerate(values):
        gain = value * s.rate[:, None] - cost
        size = gain.argmax(axis=0)
        gain = np.maximum(gain[size, np.arange(len(length))], 0.0)
        until = np.append(0.0, np.cumsum(gain * length))
        by_end = np.interp(end, times, until)
        before = until[here] + share * gain[here] * length[here]
        priced = (value * d.work + before)[:, None] - by_end[None, :]
        which = np.where(priced > least, v, which)
        least = np.maximum(least, priced)
        gains.append(gain)
        sizes.append(size)
    takes = np.maximum(begin[None, :], d.arrival[:, None]) + least
    takes[end[None, :] <= d.arrival[:, None]] = np.inf
    done = takes.argmin(axis=1)
    used = np.zeros((len(prices), len(length)))
    for j, v in enumerate(which[n, done].tolist()):
        if v >= 0:
            held = np.minimum(end[done[j]], times[1:]) - np.maximum(d.arrival[j], times[:-1])
            t = np.flatnonzero((held > 0) & (gains[v] > 0))
            size = sizes[v][t]
            np.add.at(used, (s.pool[size], t), s.gpus[size] * held[t])
    return float((takes[n, done] - d.arrival).sum()), used
