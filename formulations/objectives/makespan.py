"""Objective `makespan`: the decrease of the squared hours that each job needs on an equal share.

    v_o = (t_j(waiting)^2 - t_j(o)^2) / 2
    t_j = as of `fairness`, in hours, without the age, and all jobs with the same share

So the longest jobs run first and wide, as far as width brings speed. The objective is meant for a
batch: with arrivals, short jobs wait for all longer ones.
"""

from __future__ import annotations

from formulations.model.linear import Floats
from formulations.objectives import Objective, fairness
from formulations.objectives.context import HOUR, Context, measure_whole_jobs


def value(c: Context) -> Floats:
    """Return the values (n,) of options."""
    return fairness.squares_saved(*fairness.times(c, even_speed(c)[c.job], 0.0, HOUR))


@measure_whole_jobs
def even_speed(c: Context) -> Floats:
    """Return e_j (J,) with all jobs alike, inf without options."""
    return fairness.speed_by_share(c, lambda takes_part: takes_part / takes_part.sum())


OBJECTIVE = Objective("makespan", value)
