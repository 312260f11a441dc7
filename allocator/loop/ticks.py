"""When rounds are due: ticks on a grid, in the simulator and in the controller alike.

Tick n is at start_s + n interval_s. Early rounds move no tick, late polls do not add up, and a
controller that takes over goes on with the same ticks.
"""

from __future__ import annotations

import math

EXACT = 1e-9  # share of an interval: a time so close before a tick counts as the tick


def latest_tick(at_s: float, start_s: float, interval_s: float) -> int:
    """Return the number of the latest tick that is not after at_s."""
    return math.floor((at_s - start_s) / interval_s + EXACT)
