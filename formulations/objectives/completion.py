"""Objective `completion`: weighted hours by which the round brings completion times forward.

It is `response` with a price of work that also counts the jobs that wait behind:

    V_j = max(V_j of response,  B_j / (3600 C_j))
    C_j = sum over pools p of GPUs of p x max_{o of j in p} r_o / k_o
    B_j = sum of W_i over the jobs i with R_i / (C_i W_i) >= R_j / (C_j W_j)

C_j is the speed of the whole cluster if it worked on jobs like j only. Assume that the cluster
works on one job after the other, each at its best size, in the order of Smith's rule (Smith,
"Various optimizers for single-stage production", 1956: least time per weight first). A unit of work
of job j then delays the job itself and all jobs after it by 1 / C_j. V_j is the slope of that fluid
plan. Among few jobs the objective is `response`. With many jobs, short ones come first, and no
job's share of a round has more value only because it ends. Sizes have to be known.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Bools, Floats
from formulations.objectives import Objective, response
from formulations.objectives.context import Context, measure_whole_jobs
from formulations.objectives.interval import HOUR

DIGITS = 9  # of a logarithm, so that ties in Smith's order do not depend on the last bit


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    return response.hours_saved(c, work_price(c), c.done)


def linear(c: Context) -> tuple[Floats, Floats]:
    """Return the values (J,) of a unit of work and of an hour."""
    return work_price(c), c.facts.weight


@measure_whole_jobs
def work_price(c: Context) -> Floats:
    """Return V_j (J,), inf for jobs without options."""
    return work_price_among(c, True)


def work_price_among(c: Context, counted: Bools | bool, unseen: float = 0.0) -> Floats:
    """Return V_j (J,) with only the jobs `counted` (J,) in the queue; others as in `response`.

    The context has all exclusive options. `unseen` is that of `queue_price`.
    """
    f = c.facts
    price = response.work_price(c).copy()
    able = np.flatnonzero(np.isfinite(price) & counted)
    whole = rate_per_gpu(c)[able] @ f.pool_gpus
    behind = queue_price(f.weight[able], f.remaining_work[able], whole, unseen)
    price[able] = np.maximum(price[able], behind)
    return price


@measure_whole_jobs
def rate_per_gpu(c: Context) -> Floats:
    """Return the best work per second of a GPU (J, P) of each job in each pool, 0 without options.

    It is measured of the exclusive options.
    """
    out = np.zeros((len(c.facts.weight), len(c.facts.pool_gpus)))
    np.maximum.at(out, (c.job, c.pool), c.rate / c.offer.gpus)
    return out


def queue_price(
    weight: Floats, remaining_work: Floats, whole: Floats, unseen: float = 0.0
) -> Floats:
    """Return B_j / (3600 C_j), shape (J,).

    Parameters
    ----------
    weight, remaining_work : (J,)
        W_j and R_j.
    whole : (J,)
        C_j > 0, work per second.
    unseen : float
        Jobs of the mean weight that are added to each B_j.
    """
    key = np.round(np.log(remaining_work / (whole * weight)), DIGITS)
    order = np.argsort(key, kind="stable")
    behind = np.append(np.cumsum(weight[order][::-1])[::-1], 0.0)
    count = behind[np.searchsorted(key[order], key)] + unseen * weight.sum() / max(1, len(weight))
    return np.asarray(count / (whole * HOUR), np.float64)


OBJECTIVE = Objective("completion", value, linear=linear)
