"""Objective `maxmin`: max-min fairness, by a power of the ratio so high that the worst job counts.

    v_o = ((rho_j(waiting) / w)^p - (rho_j(o) / w)^p) / p
    rho = as of `fairness`
    w   = max over the jobs with options of rho(waiting)
    p   = max(2, ln J / ln 1.25)

A sum of J p-th powers is at most J times the largest. So a plan of least sum has a worst rho of at
most J^(1/p) <= 1.25 times the least possible (norms that are near the largest: Awerbuch et al.,
"Load balancing in the L_p norm", FOCS 1995). In this form, max-min fairness keeps the structure of
one choice per job under few rows, on which bound, prices and rounding rely. The form `max t: t <=
...` over all jobs has a column in every row and would lose it. Jobs far from the worst count for
almost nothing; `maxmin > completion` decides about them by `completion`.
"""

from __future__ import annotations

import math

import numpy as np

from formulations.model.linear import Floats
from formulations.objectives import Objective, fairness
from formulations.objectives.context import Context, measure_whole_jobs

NEAR = 1.25  # how near the worst ratio is to the least possible one


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    rho, sooner = fairness.ratios(c)
    most, jobs = worst(c)
    p = max(2.0, math.log(jobs, NEAR))
    # where nothing is left of a rho, log 0 = -inf, whose exp is 0
    with np.errstate(divide="ignore"):
        shrunk = np.log1p(-np.minimum(1.0, sooner / rho))
    return (rho / most) ** p * -np.expm1(p * shrunk) / p  # powers do not cancel


@measure_whole_jobs
def worst(c: Context) -> tuple[float, int]:
    """Return w, and the number of jobs with options; 1 and 1 if there are none."""
    rho = fairness.ratios(c)[0]
    return float(rho.max(initial=0.0)) or 1.0, max(1, len(np.unique(c.job)))


OBJECTIVE = Objective("maxmin", value)
