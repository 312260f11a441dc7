"""Prices near those of a similar round: a dual of the few columns that may be best there.

Prices p that differ by at most w from known prices q change what a column c costs by at most
|a_c|'w. So a column whose reduced value at q is below another one's of its group by more than what
both may change is never the best of its group at such prices. Most groups have one column left,
which counts as taken. The dual of the others is the whole dual for all these prices, but for a
constant, and takes a tenth of the time. Where the lowest point lies at an end of this box of
prices, the next box begins there and is larger in that direction.
"""

from __future__ import annotations

import time

import numpy as np

from formulations.bounds.scaled_rows import ScaledRows
from formulations.bounds.smoothing import CAP, newton
from formulations.model.choices import Choices
from formulations.model.linear import Floats

REACH = 0.15  # of a price, up and down, relative
FLOOR = 0.1  # prices below this share of the mean price count as so large
BOXES = 6  # at most
MOST = 0.25  # largest share of the columns for which a box takes less time than the whole dual
TEMPERATURES = (1e-3, 1e-4, 1e-5, 1e-6)  # those from the third on are not below `close`
TOLERANCE = 0.2  # share of `close` that a step has to gain
# reach of a box at a temperature, in temperatures; of prices at its ends it grows by a factor
WIDTH, WIDER = 20.0, 4.0
BOXES_OF_ONE = 4  # boxes of one temperature, at most
FINE = 3e-3  # a step gains more than this share of the temperature, relative


def find_nearby_prices(
    choices: Choices, rows: ScaledRows, p: Floats, close: float, until: float
) -> tuple[Floats, bool]:
    """Return lower points of the dual near the prices p (R,), and whether none is much lower.

    Parameters
    ----------
    p : (R,)
        Prices of the scaled rows. If all of them are 0, none are near.
    close : float
        Relative improvement of the bound that does not matter.
    until : float
        Latest end (time.monotonic).
    """
    width = np.full(len(p), REACH)
    temperatures = [mu for mu in TEMPERATURES if mu >= min(close, TEMPERATURES[1])]
    for _ in range(BOXES if p.any() else 0):
        reach = width * np.maximum(p, FLOOR * p[p > 0].mean())
        smooth, taken = rows.smooth_near(choices, p, reach)
        if len(smooth.v) > MOST * choices.n:
            break
        low = np.maximum(p - reach, 0.0)
        high = p + reach
        lowest = smooth.exact(p)
        trial = p
        for mu in temperatures:
            tolerance = max(1e-7, min(1e-4, mu * 1e-2), TOLERANCE * close)
            tolerance *= abs(lowest + taken) / max(abs(lowest), 1e-12)
            trial = newton(smooth, trial, mu, tolerance, until, cap=high, low=low)
            bound = smooth.exact(trial)
            if bound < lowest:
                lowest, p = bound, trial
        at_end = ((p <= low) & (low > 0.0)) | (p >= high)
        if not at_end.any():
            return p, True
        if time.monotonic() >= until or not p.any():
            break
        width = np.where(at_end, 2.0 * width, width)
    return p, False


def cool(
    choices: Choices, rows: ScaledRows, p: Floats, mu: float, tolerance: float, until: float
) -> Floats:
    """Return prices (R,) of the scaled rows near p, at which the dual of temperature mu is low.

    Parameters
    ----------
    tolerance : float
        Share of the dual that a step has to gain, if not less is asked at this temperature.
    until : float
        Latest end (time.monotonic).
    """
    width = np.full(len(p), WIDTH)
    for _ in range(BOXES_OF_ONE):
        reach = width * mu * (1.0 + p)
        smooth, taken = rows.smooth_near(choices, p, reach)
        if not len(smooth.v):
            break
        low, high = np.maximum(p - reach, 0.0), np.minimum(p + reach, CAP)
        value = smooth.exact(p)
        least = max(1e-7, FINE * mu, tolerance) * abs(value + taken) / max(abs(value), 1e-12)
        p = newton(smooth, p, mu, least, until, cap=high, low=low)
        at_end = ((p <= low) & (low > 0.0)) | ((p >= high) & (high < CAP))
        if not at_end.any() or time.monotonic() >= until:
            break
        width = np.where(at_end, WIDER * width, width)
    return p
