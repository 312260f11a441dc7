"""The speed of n workers with parameter servers.

The parameter servers or the network carry at most the speed C. With the sum s of the workers' own
speeds, the speed v is

    v = min(s, C)                     sharp corner (p = inf)
    v = (s^-p + C^-p)^(-1/p)          soft corner

Source: systems of parameter servers, Li et al., ICDCS 2020.
"""

from __future__ import annotations

import math

import numpy as np

from formulations.model.linear import Bools, Floats, Ints
from formulations.transient.revocations import Values

# A measured speed that is lower than the sum of the workers' own speeds by more than this share is
# limited by something else.
CLEARLY = 0.1


def capped(total: Values, cap: Values = math.inf, sharpness: float = math.inf) -> Floats:
    """Return the speed of workers whose own speeds sum to `total` if at most `cap` is carried.

    `sharpness` is p > 0.
    """
    s = np.asarray(total, np.float64)
    c = np.asarray(cap, np.float64)
    if math.isinf(sharpness):
        return np.asarray(np.minimum(s, c), np.float64)
    low: Floats = np.minimum(s, c)
    high: Floats = np.maximum(s, c)
    with np.errstate(all="ignore"):
        ratio = np.where(np.isinf(high) | (high <= 0), 0.0, low / high)
    return np.asarray(low * (1.0 + ratio**sharpness) ** (-1.0 / sharpness), np.float64)


def bottleneck(own: Values, measured: Values) -> Bools:
    """Return whether a measured speed is clearly below the sum `own` of the workers' own speeds.

    If so, more workers do not help.
    """
    return np.asarray(np.asarray(measured) < (1.0 - CLEARLY) * np.asarray(own), np.bool_)


def expected_speed(
    workers: Ints, own: Floats, up: Floats, cap: float = math.inf, sharpness: float = math.inf
) -> float:
    """Return the expected speed of G kinds of workers; each works independently of the others.

    The result is exact: it weights all numbers of working workers by their binomial probabilities.

    Parameters
    ----------
    workers : (G,)
        Number of workers of each kind.
    own : (G,)
        Speed of one worker.
    up : (G,)
        Probability that a worker works, its share of time.
    cap, sharpness : float
        As of `capped`.
    """
    if math.isinf(cap):
        return float((workers * own * up).sum())
    speed = np.zeros(1)
    chance = np.ones(1)
    for n, v, p in zip(workers.tolist(), own.tolist(), up.tolist(), strict=True):
        speed = (speed[:, None] + v * np.arange(n + 1)).ravel()
        chance = (chance[:, None] * binomial(int(n), float(p))).ravel()
    return float(capped(speed, cap, sharpness) @ chance)


def binomial(n: int, p: float) -> Floats:
    """Return the probabilities of 0 .. n successes of n, (n + 1,)."""
    if p <= 0 or p >= 1:
        return np.asarray(np.arange(n + 1) == (n if p >= 1 else 0), np.float64)
    k = np.arange(1, n + 1)
    choose = np.concatenate([[0.0], np.cumsum(np.log((n + 1 - k) / k))])
    log = choose + np.arange(n + 1) * math.log(p) + (n - np.arange(n + 1)) * math.log1p(-p)
    chance = np.exp(log - log.max())
    return np.asarray(chance / chance.sum(), np.float64)
