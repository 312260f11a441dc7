"""The knee of a curve of diminishing returns.

Source: Satopaa, Albrecht, Irwin and Raghavan, "Kneedle", ICDCSW 2011.
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Floats
from formulations.bounds import hull


def front(cost: Floats, time: Floats) -> Bools:
    """Return the points that no other point beats in cost and time, (n,).

    Of equal points only the first is returned.
    """
    out = np.zeros(len(cost), bool)
    out[hull.front(np.zeros(len(cost), np.int64), cost, time)] = True
    return out


def knee(cost: Floats, time: Floats) -> int:
    """Return the point beyond which more cost brings little.

    Both axes are scaled to 0..1 over the front. The knee is the point furthest below the line from
    the cheapest to the fastest point: Kneedle without smoothing for a falling convex curve, the
    largest 1 - x - y. It is the fastest point if the front has fewer than three. Raises ValueError
    without points.
    """
    on = np.flatnonzero(front(cost, time))
    if len(on) < 3:
        return int(on[np.argmin(time[on])])
    x = cost[on]
    y = time[on]
    below = 1.0 - (x - x.min()) / np.ptp(x) - (y - y.min()) / np.ptp(y)
    return int(on[np.argmax(below)])
