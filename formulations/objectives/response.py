"""Objective `response`: weighted hours of response time that the round saves, on rented GPUs.

    v_o = V_j min(done_o, R_j) + W_j (D - b_o) / 3600
    V_j = min over the job's options of (W_j + mu_j m_o) / (3600 r_o)
    b_o = min(D, a_o + R_j / r_o)                seconds in which the GPUs are held

V_j is what a unit of the job's work costs later in weighted hours, at its best option to the end.
Waiting costs W_j D now and V_j per unit of work later. An option that runs for the whole interval
also costs W_j D, and does `done` of the work that is left. An option that finishes ends the job's
time early. The money that an option costs is deducted later, as for every objective.

The option that attains V_j is the rental width: it minimises (W + mu c k) / s(k) (Li, Berg,
Mukhopadhyay and Harchol-Balter, "GPU rental on a budget", EPEW 2024). A job that runs at its rental
width has the value of the waiting that it saves, W_j D; every other width has less. `dollar_price`
is then the price mu of the long-run budget, in weighted hours per dollar.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Floats
from formulations.objectives import Objective
from formulations.objectives.context import HOUR, Context, least_by_job, measure_whole_jobs


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    return hours_saved(c, work_price(c), c.done)


def linear(c: Context) -> tuple[Floats, Floats]:
    """Return the values (J,) of a unit of work and of an hour."""
    return work_price(c), c.facts.weight


@measure_whole_jobs
def work_price(c: Context) -> Floats:
    """Return V_j (J,), inf for jobs without options."""
    each = cost_of_work(c.weight, c.dollar_price, c.cost_per_hour, c.rate)
    return least_by_job(len(c.facts.weight), c.job, each)


def cost_of_work(
    weight: Floats, dollar_price: Floats, cost_per_hour: Floats, rate: Floats
) -> Floats:
    """Return the weighted hours (n,) that a unit of work costs at each option to the end."""
    return (weight + dollar_price * cost_per_hour) / (rate * HOUR)


def hours_saved(c: Context, work_price: Floats, done: Floats) -> Floats:
    """Return V_j min(done_o, R_j) + W_j (D - b_o) / 3600, shape (n,).

    Parameters
    ----------
    work_price : (J,)
        V_j.
    done : (n,)
        Work of the interval.
    """
    price = work_price[c.job]
    done = np.minimum(done, c.remaining)
    return price * done + c.weight * (c.facts.interval_s - c.busy_s) / HOUR


OBJECTIVE = Objective("response", value, linear=linear)
