"""Several jobs, each with ways of (dollars, weighted hours): the best use of the next dollar.

    min  sum_j y_{j,o(j)}    s.t.  sum_j x_{j,o(j)} <= B

For a price mu each job by itself minimises y + mu x, on the lower convex hull of its ways. As mu
falls, the jobs step along their hulls in order of slope (formulations/bounds/hull.py). The corners
on this path are optimal for their spending, with one way per job. Points between two corners need a
mix: one job changes its way while it runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.bounds.hull import hull, slopes
from formulations.model.linear import Floats, Ints


@dataclass(frozen=True)
class Together:
    """The corners of the joint frontier, by spending.

    Attributes
    ----------
    way : (c, J)
        The way of each job.
    dollars, hours : (c,)
        Sums over jobs.
    mu : (c,)
        Weighted hours saved per dollar on the step to the corner, inf at the first.
    """

    way: Ints
    dollars: Floats
    hours: Floats
    mu: Floats

    def mixed(self, dollars: Floats) -> Floats:
        """Return the hours at spendings (m,) on the lines between corners.

        They are inf below the first corner.
        """
        hours = np.interp(dollars, self.dollars, self.hours)
        return np.where(dollars < self.dollars[0] * (1 - 1e-9), np.inf, hours)


def together(job: Ints, x: Floats, y: Floats) -> Together:
    """Return the corners of ways (n,) of jobs 0 .. J-1, each with at least one way.

    Equal slopes are one corner each.
    """
    on = hull(job, x, y)
    slope = slopes(job[on], x[on], y[on])
    first = np.isinf(slope)
    steps = np.flatnonzero(~first)
    steps = steps[np.argsort(-slope[steps], kind="stable")]
    way = np.tile(on[first], (len(steps) + 1, 1))
    for c, step in enumerate(steps.tolist()):
        way[c + 1 :, job[on[step]]] = on[step]
    return Together(way, x[way].sum(axis=1), y[way].sum(axis=1), np.append(np.inf, slope[steps]))
