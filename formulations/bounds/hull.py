"""Pareto fronts and lower convex hulls of many small sets of points; both coordinates are costs.

Every group has points (x, y): the cost of an option and the waiting that it leaves. Mixing options
moves along straight lines, so only the hull from the cheapest point downwards counts; each step
along it has a price, its slope. Source: Sinha and Zoltners, "The multiple-choice knapsack problem",
Operations Research 27 (1979), section 2.
"""

from __future__ import annotations

import numpy as np

from formulations.model.linear import Floats, Ints, begins_run


def front(group: Ints, x: Floats, y: Floats) -> Ints:
    """Return the Pareto points among the arrays (n,) as indices, by group and x ascending.

    No other point of the group is at most as large in both coordinates. Along a group x rises and y
    falls. Of equal points the first counts.
    """
    order = np.lexsort((y, x, group))
    before = np.append(np.inf, _least(group[order], y[order])[:-1])[: len(order)]
    first = begins_run(group[order])
    return order[first | (y[order] < before)]


def hull(group: Ints, x: Floats, y: Floats) -> Ints:
    """Return the points of the hulls among the arrays (n,) as indices, by group and x ascending.

    Along a group x rises, y falls, and the slopes of `slopes` fall strictly. Of equal points the
    first counts.
    """
    order = front(group, x, y)
    # a point above a chord of its neighbours is not on the hull, so all of them can go at once
    while True:
        slope = slopes(group[order], x[order], y[order])
        after = np.append(slope[1:], np.inf)
        drop = (slope < np.inf) & (after < np.inf) & (slope <= after)
        if not drop.any():
            return order
        order = order[~drop]


def slopes(group: Ints, x: Floats, y: Floats) -> Floats:
    """Return the fall of y per unit of x on the way to each point, (n,), inf at the first."""
    out = np.full(len(x), np.inf)
    same = np.flatnonzero(group[1:] == group[:-1])
    out[same + 1] = (y[same] - y[same + 1]) / (x[same + 1] - x[same])
    return out


def _least(group: Ints, y: Floats) -> Floats:
    """Return the running minimum of y within each group; groups are contiguous."""
    out = y.copy()
    step = 1
    while step < len(out):
        near = np.flatnonzero(group[step:] == group[:-step])
        out[near + step] = np.minimum(out[near + step], out[near])
        step *= 2
    return out
