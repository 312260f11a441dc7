"""The smooth dual minimised from gradients, where there are too many rows for second derivatives.

The steps are those of the limited-memory BFGS method (Liu and Nocedal 1989) inside a box of prices.
They are scaled by the diagonal of the second derivative, because a price of a whole pool and a
price that concerns three jobs differ by orders of magnitude in what they change.
"""

from __future__ import annotations

import time

import numpy as np

from formulations.bounds.smoothing import Point, Smooth
from formulations.model.linear import Floats

STEPS = 60  # of one search, at most
MEMORY = 8  # steps from which the curvature is known
RENEWED = 10  # steps after which the diagonal is computed anew
REACH = 100.0  # longest step of a price, in temperatures
CUTS = 16  # of a step that goes too far
PROMISE = 1e-4  # share of the decrease of the slope that a step has to bring
FLAT = 1e-3  # added to the diagonal, for each group of a mean row


def descend(
    s: Smooth, p: Floats, mu: float, tol: float, low: Floats, high: Floats, until: float
) -> Floats:
    """Return prices (R,) of a lower smooth dual at temperature mu, low <= p <= high.

    Parameters
    ----------
    tol : float
        Stop when a step gains less than tol x |f|.
    until : float
        Latest end (time.monotonic).
    """
    at = s.at(p, mu)
    scale = _diagonal(s, at)
    steps: list[tuple[Floats, Floats]] = []
    for count in range(1, STEPS + 1):
        is_bound = ((p <= low) & (at.g > 0)) | ((p >= high) & (at.g < 0))
        slope = np.where(is_bound, 0.0, at.g)
        step = -np.where(is_bound, 0.0, _times_inverse(steps, scale, slope))
        if not slope @ step < 0:
            steps, step = [], -slope / scale
        step *= min(1.0, REACH * mu / max(float(np.abs(step).max(initial=0.0)), 1e-300))
        for _ in range(CUTS):
            moved = np.clip(p + step, low, high)
            new = s.at(moved, mu)
            if new.f <= at.f + PROMISE * float(at.g @ (moved - p)):
                break
            step *= 0.4
        else:
            if not steps:
                break
            steps = []  # what is known of the curvature does not hold along the ends of the box
            continue
        change, bend = moved - p, new.g - at.g
        if change @ bend > 1e-12 * np.linalg.norm(change) * np.linalg.norm(bend):
            steps = [*steps[1 - MEMORY :], (change, bend)]
        gain = at.f - new.f
        p, at = moved, new
        if gain < tol * abs(at.f) or time.monotonic() >= until:
            break
        if count % RENEWED == 0:
            scale = _diagonal(s, at)
    return p


def _diagonal(s: Smooth, at: Point) -> Floats:
    """Return the diagonal of the second derivative, (R,), but for what groups share."""
    spread = at.x * (1.0 - at.x)
    A = s.A
    along = np.bincount(A.indices, A.data**2 * spread[A.row], s.R) / at.mu
    return np.asarray(along + FLAT * max(1, len(s.size)) / max(1, s.R), dtype=np.float64)


def _times_inverse(steps: list[tuple[Floats, Floats]], scale: Floats, slope: Floats) -> Floats:
    """Return the slope (R,) times the inverse of the curvature that the last steps show."""
    v = slope
    parts = []
    for change, bend in reversed(steps):
        part = float(change @ v) / float(change @ bend)
        parts.append(part)
        v = v - part * bend
    v = v / scale
    for (change, bend), part in zip(steps, reversed(parts), strict=True):
        v = v + (part - float(bend @ v) / float(change @ bend)) * change
    return v
