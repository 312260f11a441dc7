"""Objectives of fairness, and a concave worth of speed, as arrays. Formulas:
formulations/README.md, "Fair shares".
"""

from __future__ import annotations

import math

import numpy as np

from formulations.linear import Floats, Ints

HOUR = 3600.0
# log(1 + 9 x): the slowest option is worth 2.3, twice its speed 0.64 more, four times 1.31 more
STEEP = 9.0
NEAR = 1.25  # how near the worst ratio of `maxmin` is to the least possible one
NEW_GPU_S = 600.0  # GPU-seconds after which a job counts 1/sqrt(2) of a new one


def utility(weight: Floats, speed: Floats, attained_gpu_s: Floats) -> Floats:
    """(n,) weight log(1 + 9 speed) / sqrt(1 + attained / 600): what more speed is worth, less and
    less.

    speed: work of the interval over that of the job's slowest option without pauses.
    attained_gpu_s: GPU-seconds held so far. No sizes: among jobs whose lengths vary a lot, who has
    had little is likely to be done soonest (least attained service: Nuyens and Wierman, "The
    foreground-background queue", 2008).
    """
    return np.asarray(weight * np.log1p(STEEP * speed) / np.sqrt(1.0 + attained_gpu_s / NEW_GPU_S))


def equal_speed(share: Floats, start: Ints, gpus: Ints, rate: Floats) -> Floats:
    """(J,) work per second on `share` (J,) GPUs, not always whole; inf without options.

    start (J+1,), gpus (n,), rate (n,): options of the jobs; of one size the slowest counts. Between
    two sizes along a straight line, above the largest as there, below the smallest in proportion:
    the job has its turns.
    """
    J = len(share)
    job = np.repeat(np.arange(J), np.diff(start))
    order = np.lexsort((rate, gpus, job))
    j, k, r = job[order], gpus[order], rate[order]
    first_of_size = np.append(True, (np.diff(j) != 0) | (np.diff(k) != 0))[: len(j)]
    j, k, r = j[first_of_size], k[first_of_size].astype(np.float64), r[first_of_size]
    out = np.full(J, np.inf)
    some = np.unique(j)
    if not len(some):
        return out
    first, last = np.searchsorted(j, some), np.searchsorted(j, some, side="right") - 1
    x = np.clip(share[some], k[first], k[last])
    wide = float(k.max()) + 1.0
    low = np.minimum(np.searchsorted(j * wide + k, some * wide + x, side="right") - 1, last)
    high = np.minimum(low + 1, last)
    part = np.where(high > low, (x - k[low]) / np.maximum(k[high] - k[low], 1.0), 0.0)
    out[some] = (r[low] + part * (r[high] - r[low])) * np.minimum(1.0, share[some] / k[first])
    return out


def ratios(
    age_s: Floats,
    busy_s: Floats,
    done: Floats,
    remaining_work: Floats,
    total_work: Floats,
    equal: Floats,
    interval_s: float,
) -> tuple[Floats, Floats]:
    """(n,) rho of a job that waits for this round, and by how much the option lowers it; rho =
    expected completion time / that on an equal share.

    equal: work per second on the equal share, at which the job is taken to go on after this round,
    and to have been able to run since its submission age_s ago. rho: finish-time fairness (Mahajan
    et al., "Themis", NSDI 2020, section 3).
    """
    alone = total_work / equal
    return (
        (age_s + interval_s + remaining_work / equal) / alone,
        (interval_s - busy_s + done / equal) / alone,
    )


def squares(rho: Floats, sooner: Floats) -> Floats:
    """(n,) (rho^2 - (rho - sooner)^2) / 2: of `ratios`. The sum of squares over all jobs is what is
    left after the values of a plan are taken off."""
    return np.asarray(sooner * (rho - 0.5 * sooner))


def maxmin(rho: Floats, sooner: Floats, worst: float, jobs: int) -> Floats:
    """(n,) ((rho / worst)^p - ((rho - sooner) / worst)^p) / p, p = max(2, ln jobs / ln 1.25): of
    `ratios`.

    worst > 0: the largest rho of waiting. A sum of `jobs` p-th powers is at most `jobs` times the
    largest, so a plan of least sum has a worst rho at most jobs^(1/p) <= 1.25 times the least
    possible (norms that are near the largest: Awerbuch et al., "Load balancing in the L_p norm",
    FOCS 1995).
    """
    p = max(2.0, math.log(jobs) / math.log(NEAR))
    # nothing is left of a rho: log 0 = -inf, whose exp is 0
    with np.errstate(divide="ignore"):
        shrunk = np.log1p(-np.minimum(1.0, sooner / rho))
    return np.asarray((rho / worst) ** p * -np.expm1(p * shrunk) / p)  # powers do not cancel
