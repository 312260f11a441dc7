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
from formulations.objectives.context import HOUR, Context, measure_whole_jobs

EQUAL = 1e-9  # so that ties in Smith's order do not depend on the last bit


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


def work_price_among(
    c: Context, counted: Bools | bool, near: float = EQUAL, unseen: float = 0.0
) -> Floats:
    """Return V_j (J,) with only some jobs in the queue; others as in `response`.

    Parameters
    ----------
    c : Context
        All exclusive options.
    counted : bool or (J,)
        Whether a job is in the queue.
    near : float
        A job whose R / (C W) is less by up to this share comes behind, too.
    unseen : float
        Jobs of the mean weight that are added to each B_j.
    """
    f = c.facts
    price = response.work_price(c).copy()
    able = np.flatnonzero(np.isfinite(price) & counted)
    weight = f.weight[able]
    whole = rate_per_gpu(c)[able] @ f.pool_gpus
    key = np.log(f.remaining_work[able] / (whole * weight))
    order = np.argsort(key, kind="stable")
    behind = np.cumsum(weight[order][::-1])[::-1][np.searchsorted(key[order], key - near)]
    count = behind + unseen * weight.sum() / max(1, len(weight))
    price[able] = np.maximum(price[able], count / (whole * HOUR))
    return price


@measure_whole_jobs
def rate_per_gpu(c: Context) -> Floats:
    """Return the best work per second of a GPU (J, P) of each job in each pool, 0 without options.

    It is measured of the exclusive options.
    """
    out = np.zeros((len(c.facts.weight), len(c.facts.pool_gpus)))
    np.maximum.at(out, (c.job, c.pool), c.rate / c.offer.gpus)
    return out


OBJECTIVE = Objective("completion", value, linear=linear)
