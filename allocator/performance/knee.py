"""The knee of a curve of diminishing returns (Satopaa, Albrecht, Irwin and Raghavan, "Kneedle",
ICDCSW 2011).
"""

from __future__ import annotations

import numpy as np

from allocator.domain.problem import Bools, Floats
from formulations.bounds import hull


def front(cost: Floats, time: Floats) -> Bools:
    """(n,) True where no other point is at most as dear and as slow; of equal points the first."""
    out = np.zeros(len(cost), dtype=bool)
    out[hull.front(np.zeros(len(cost), dtype=np.int64), cost, time)] = True
    return out


def knee(cost: Floats, time: Floats) -> int:
    """The point where dearer stops paying: both axes scaled to 0..1 over the front, the point
    furthest below the line from its cheapest to its fastest point. The fastest if the front has
    fewer than three points.

    Kneedle without smoothing, for a falling convex curve: the largest 1 - x - y. Raises ValueError
    without points.
    """
    on = np.flatnonzero(front(cost, time))
    if len(on) < 3:
        return int(on[np.argmin(time[on])])
    x, y = cost[on], time[on]
    below = 1.0 - (x - x.min()) / np.ptp(x) - (y - y.min()) / np.ptp(y)
    return int(on[np.argmax(below)])
