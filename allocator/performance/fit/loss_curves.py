"""What the losses that a job reports while it trains say of the work until its target loss.

A curve keeps at most MOST_POINTS losses as they were reported, the first one in each of as many
equal stretches of work. A stretch is a power of two that doubles as the job goes on, so what is
kept depends on the reports only. Work that is done again after a checkpoint adds nothing. The law,
its fit and its range are in formulations/loss_curve.py.

Losses say something where the target is reached in more than half of the distribution of the fit,
and ln of the work at which it is reached is known to DEVIATION. The error of what is left has a
part LAW more: no training follows the law exactly.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from allocator.domain.problem import Floats
from formulations.loss_curve import Reach, predict_reach

MOST_POINTS = 64
DEVIATION = 0.5  # of ln of the work at the target: what is less certain says nothing
LAW = 0.2  # deviation of ln of the work left, because losses follow the law only roughly
MOST_ERROR = 1.0  # of ln of the work left: near the end it is uncertain, but short

Point = tuple[float, float]  # work done, loss


class LossCurve(NamedTuple):
    """Losses of a job by the work done, ascending."""

    points: tuple[Point, ...] = ()

    def add(self, work: float, loss: float) -> LossCurve:
        """Return the curve with one more loss, itself if that adds nothing.

        Examples
        --------
        >>> LossCurve().add(100, 2.5).add(100, 2.4).add(200, 1.9).points
        ((100, 2.5), (200, 1.9))
        """
        size = _stretch(max((work, *(k for k, _ in self.points))))
        if any(k // size == work // size for k, _ in self.points):
            return self
        points = list(self.points)
        insort(points, (work, loss))
        first = {point[0] // size: point for point in reversed(points)}
        return LossCurve(tuple(first[stretch] for stretch in sorted(first)))


def _stretch(most: float) -> float:
    """Return the least power of two of which MOST_POINTS are more than `most`."""
    return 2.0 ** math.floor(math.log2(most / MOST_POINTS) + 1) if most / MOST_POINTS > 0 else 1.0


def describe_fault(loss: float) -> str | None:
    """Return why a number is no loss that counts, None if it is one.

    Examples
    --------
    >>> describe_fault(-1.0)
    'loss -1: must be above 0, as the law of losses has it'
    """
    if not math.isfinite(loss):
        return f"loss {loss:g}: must be a finite number"
    return None if loss > 0 else f"loss {loss:g}: must be above 0, as the law of losses has it"


def predict(curves: Sequence[LossCurve], target: Floats) -> Reach:
    """Return when curves reach their targets (n,), as their fit says."""
    most = max((len(curve.points) for curve in curves), default=0)
    points = np.full((len(curves), most, 2), np.nan)
    for i, curve in enumerate(curves):
        points[i, : len(curve.points)] = np.array(curve.points).reshape(-1, 2)
    return predict_reach(points[..., 0], points[..., 1], target)


def expect_work(curves: Sequence[LossCurve], target: Floats) -> tuple[Floats, Floats]:
    """Return the whole work of jobs (n,) until their target loss, and its error.

    The first one is a median, the error the standard deviation of ln of the work that is left after
    the last point; both are nan where the curve says nothing.
    """
    reach = predict(curves, target)
    last = np.array([curve.points[-1][0] if curve.points else 0.0 for curve in curves])
    says = (reach.never <= 0.5) & (reach.total_error <= DEVIATION)
    error = np.minimum(np.hypot(reach.error, LAW), MOST_ERROR)
    return np.where(says, last + reach.left, np.nan), np.where(says, error, np.nan)
