"""Objective `fairness`: the decrease of the sum of squared ratios of finish-time fairness.

    v_o   = (rho_j(waiting)^2 - rho_j(o)^2) / 2
    rho_j = t_j / (total_work_j / e_j)
    t_j(waiting) = age_j + D + R_j / e_j
    t_j(o)       = age_j + b_o + (R_j - min(done_o, R_j)) / e_j
    e_j = work per second on s_j GPUs
    s_j = GPUs x share of the tenant x W_j / sum over jobs of the tenant of W_i

rho is the expected completion time divided by that alone on an equal share of the cluster (Mahajan
et al., "Themis", NSDI 2020, section 3). The job is assumed to work at the speed e_j after this
round, and to have been able to do so since its submission. Between the job's sizes e_j follows
straight lines, where the slowest pool of each size counts. Below the smallest size it falls in
proportion, because the job takes turns; above the largest it is constant. Tenants below the same
parent share what it has in proportion to their weights, whatever the number of their jobs; the
parent's own jobs count as one more tenant, of weight 1. Only jobs with options, and tenants with
such jobs, take part. A weight gives a claim to a larger share, and is not a factor of the value.

As every job gets one option, a sum over jobs of any function of rho is linear in the choice of
options, without approximation. The square is the gentlest power by which jobs that are behind count
more. A plan of least sum of squares has a worst rho of at most sqrt(J) times the least possible.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from formulations.model.linear import Bools, Floats, begins_run
from formulations.objectives import Objective
from formulations.objectives.context import Context, measure_whole_jobs


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    return squares_saved(*ratios(c))


def squares_saved(rho: Floats, sooner: Floats) -> Floats:
    """Return (rho^2 - (rho - sooner)^2) / 2, shape (n,)."""
    return sooner * (rho - 0.5 * sooner)


def ratios(c: Context) -> tuple[Floats, Floats]:
    """Return rho of a job that waits, and what each option takes off it, each (n,)."""
    job = c.job
    equal = equal_speed(c)[job]
    return times(c, equal, c.facts.age_s[job], c.facts.total_work[job] / equal)


def times(
    c: Context, equal: Floats, age_s: Floats | float, unit_s: Floats | float
) -> tuple[Floats, Floats]:
    """Return t of a job that waits, and what each option takes off it, in units; each (n,).

    Parameters
    ----------
    equal : (n,)
        e_j.
    age_s, unit_s : (n,)
        Seconds since submission that count, and seconds of a unit.
    """
    span = c.facts.interval_s
    waiting = age_s + span + c.remaining / equal
    return waiting / unit_s, (span - c.busy_s + np.minimum(c.done, c.remaining) / equal) / unit_s


@measure_whole_jobs
def equal_speed(c: Context) -> Floats:
    """Return e_j (J,), inf without options."""
    return speed_by_share(c, c.facts.fair_share)


def speed_by_share(c: Context, split: Callable[[Bools], Floats]) -> Floats:
    """Return e_j (J,), inf without options; the context has all options.

    Parameters
    ----------
    split : callable
        Returns the share (J,) of all GPUs of each job, if those of a mask (J,) take part.
    """
    order = np.lexsort((c.rate, c.offer.gpus, c.job))
    j, k, r = (x[order] for x in (c.job, c.offer.gpus.astype(np.float64), c.rate))
    slowest = begins_run(j, k)  # of one size the slowest counts
    j, k, r = j[slowest], k[slowest], r[slowest]
    out = np.full(len(c.facts.weight), np.inf)
    some = np.unique(j)
    if not len(some):
        return out
    share = c.facts.pool_gpus.sum() * split(np.bincount(some, minlength=len(out)) > 0)
    first = np.searchsorted(j, some)
    last = np.searchsorted(j, some, side="right") - 1
    x = np.clip(share[some], k[first], k[last])
    wide = k.max() + 1.0
    low = np.minimum(np.searchsorted(j * wide + k, some * wide + x, side="right") - 1, last)
    high = np.minimum(low + 1, last)
    part = np.where(high > low, (x - k[low]) / np.maximum(k[high] - k[low], 1.0), 0.0)
    out[some] = (r[low] + part * (r[high] - r[low])) * np.minimum(1.0, share[some] / k[first])
    return out


OBJECTIVE = Objective("fairness", value)
