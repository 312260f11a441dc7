"""When a training loss that falls like a convex curve reaches its target.

The loss after the work k, and the work at which it is at the target L:

    l(k) = A / (k + c) + b        A, c, b >= 0        k* = A / (L - b) - c, never where b >= L

With A = 1 / b0, c = b1 / b0 and b = b2 this is the law 1 / (b0 k + b1) + b2 of Peng, Bao, Chen, Wu
and Guo, "Optimus", EuroSys 2018, section 3.1, which follows from the convergence rate O(1 / k) of
stochastic gradient descent.

For a given c the law is linear in A and b, so their least squares are closed sums, and c is the
only number that is searched for: on GRID values from NEAR to FAR times the largest k, spaced evenly
in log c, and then on as many between those that the losses leave possible, until these do not get
closer. Residuals r_i are relative to the curve, and have weights w_i in proportion to k_i: what
comes next is like the latest losses, also where the law does not hold. The weights add up to the
number of losses n of equal weight that say as much, (sum w)^2 / sum w^2. What lies DEVIATIONS
robust deviations from the curve (1.48 times the median distance) is an outlier: it does not count.

The range comes from the residuals. s^2 = sum w_i r_i^2 / (n - 3) is their variance, and a value of
c has the likelihood exp(-(sum at c - least sum) / (2 s^2)). For each c, b is normal about its least
squares with the deviation that follows from s, in five nodes of Gauss and Hermite, below 0 taken as
0, and A is the best one for that b. Together these are a distribution of k*. This module returns
the mean and the standard deviation of ln(k* - k), the deviation of ln k*, and the share that never
ends.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from formulations.model.linear import Bools, Floats

FEWEST = 6  # points from which on a curve is fitted
GRID = 25
NEAR, FAR = 1e-3, 1e2  # c relative to the largest work
STAGES = 6  # at most, each with GRID values of c
CERTAIN = 8.0  # values of c whose weight is below e^-CERTAIN do not count
DEVIATIONS = 4.0
ROBUST = 1.4826  # deviation of a normal distribution over its median distance
PASSES = 3  # fits, each without the outliers of the one before
FIRST = 0.01  # least weight of a loss, relative to the latest one
NEXT = 0.01  # of the work so far: at least so much is left of a job that goes on
EXACT = 1e-9  # residuals below this, relative to the curve, are none
BLOCK = 64  # curves that are fitted at once: their arrays stay in the cache
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(5)


class Reach(NamedTuple):
    """When jobs reach their target, (n,).

    `left` is exp of the mean of ln(k* - k), `error` the standard deviation of that logarithm,
    `total_error` that of ln k*, and `never` the share of the distribution that never reaches the
    target. All are nan where there are too few points.
    """

    left: Floats
    error: Floats
    total_error: Floats
    never: Floats


class _Fit(NamedTuple):
    """Least squares for each c, (n, GRID), of data whose weights are (n, P)."""

    slope: Floats  # A
    floor: Floats  # b
    rest: Floats  # sum of the squared residuals, relative to the curve
    floor_unit: Floats  # deviation of b for residuals of deviation 1
    share: Floats  # how A follows b: dA / db


def predict_reach(work: Floats, loss: Floats, target: Floats) -> Reach:
    """Predict how much work is left until losses reach their targets.

    Parameters
    ----------
    work : (n, P)
        Work k >= 0 at which each loss was seen, ascending; nan where a job has fewer points.
    loss : (n, P)
        Losses > 0; nan where there is none.
    target : (n,)
        Losses L > 0 at which the jobs are done.

    References
    ----------
    Y. Peng, Y. Bao, Y. Chen, C. Wu, C. Guo, "Optimus: an efficient dynamic resource scheduler for
    deep learning clusters", EuroSys 2018, section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> k = np.arange(1.0, 9.0)[None, :]
    >>> found = predict_reach(k, 12 / (k + 2) + 0.5, np.array([1.0]))
    >>> float(found.left.round(3)[0])
    14.0
    """
    n = len(target)
    seen = np.isfinite(work) & np.isfinite(loss)
    able = np.flatnonzero(
        (seen.sum(axis=1) >= FEWEST) & (np.where(seen, work, 0.0).max(axis=1, initial=0.0) > 0)
    )
    out = Reach(*np.full((4, n), np.nan))
    if not len(able):
        return out
    here = seen[able]
    most = np.where(here, work[able], 0.0).max(axis=1)
    scale = np.where(here, loss[able], 0.0).max(axis=1)
    x = np.where(here, work[able] / most[:, None], 0.0)
    y = np.where(here, loss[able] / scale[:, None], 1.0)
    goal = target[able] / scale
    for first in range(0, len(able), BLOCK):
        some = slice(first, first + BLOCK)
        reach = _predict(x[some], y[some], here[some], goal[some])
        for whole, part in zip(out, reach, strict=True):
            whole[able[some]] = part
    out.left[able] *= most
    return out


def _predict(x: Floats, y: Floats, seen: Bools, target: Floats) -> Reach:
    """Return `Reach` of curves whose largest work and loss are 1."""
    size = smooth(y, seen)
    good = seen
    for turn in range(PASSES):
        last = turn == PASSES - 1
        trust = np.where(good, np.maximum(x, FIRST), 0.0)
        trust *= (trust.sum(axis=1) / (trust**2).sum(axis=1))[:, None]
        weight = trust / size**2
        number = trust.sum(axis=1)
        c, fit = _search(x, y if turn else smooth(y, seen), weight, number, sharp=last)
        best = np.argmin(fit.rest, axis=1)[:, None]
        a, at, b = (np.take_along_axis(part, best, axis=1) for part in (fit.slope, c, fit.floor))
        curve = a / (x + at) + b
        if last:
            break
        away = np.where(seen, np.abs(y - curve) / curve, np.nan)
        limit = DEVIATIONS * ROBUST * np.nanmedian(away, axis=1)[:, None]
        good = seen & (away <= np.maximum(limit, EXACT))
        good = np.where(good.sum(axis=1, keepdims=True) >= FEWEST, good, seen)
        size = np.where(seen, curve, 1.0)
    variance = _variance(fit.rest, number)[:, None]
    likely = np.exp(-(fit.rest - fit.rest.min(axis=1)[:, None]) / (2.0 * variance))
    deviation = np.sqrt(variance) * fit.floor_unit
    floor = np.maximum(fit.floor[:, :, None] + deviation[:, :, None] * NODES, 0.0)
    change = floor - fit.floor[:, :, None]
    slope = np.maximum(fit.slope[:, :, None] + fit.share[:, :, None] * change, 0.0)
    gap = target[:, None, None] - floor
    ends = (gap > 0) & (slope > 0)
    total = slope / np.where(ends, gap, 1.0) - c[:, :, None]
    mass = likely[:, :, None] * NODE_WEIGHTS
    never = (mass * ~ends).sum(axis=(1, 2)) / mass.sum(axis=(1, 2))
    mass = mass * ends
    left = np.maximum(total - 1.0, NEXT)
    mean, error = _moments(np.log(left), mass)
    return Reach(np.exp(mean), error, _moments(np.log(1.0 + left), mass)[1], never)


def _variance(rest: Floats, number: Floats) -> Floats:
    """Return s^2 (n,) of the best of the fits (n, GRID) to so many losses."""
    least = rest.min(axis=1) / np.maximum(number - 3.0, 1.0)
    variance: Floats = np.maximum(least, EXACT**2)
    return variance


def _moments(x: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation (n,) of a distribution, nan where it has no mass."""
    total = mass.sum(axis=(1, 2))
    with np.errstate(invalid="ignore"):
        mean = (mass * x).sum(axis=(1, 2)) / total
        return mean, np.sqrt((mass * (x - mean[:, None, None]) ** 2).sum(axis=(1, 2)) / total)


def _search(
    x: Floats, y: Floats, weight: Floats, number: Floats, *, sharp: bool
) -> tuple[Floats, _Fit]:
    """Return values of c (n, GRID) about the best one, and the least squares for each.

    They get close to each other only if `sharp`. `number` (n,) of losses say as much.
    """
    n = len(x)
    step = np.linspace(0.0, 1.0, GRID)
    low, high = np.full(n, np.log(NEAR)), np.full(n, np.log(FAR))
    c = np.exp(low[:, None] + (high - low)[:, None] * step)
    fit = _fit(x, y, weight, c)
    todo = np.arange(n)
    for _ in range(STAGES - 1 if sharp else 1):
        rest = fit.rest[todo]
        above = rest - rest.min(axis=1)[:, None]
        possible = above <= 2.0 * CERTAIN * _variance(rest, number[todo])[:, None]
        first = np.maximum(possible.argmax(axis=1) - 1, 0)
        last = np.minimum(GRID - possible[:, ::-1].argmax(axis=1), GRID - 1)
        wide = (high - low)[todo]
        new_low = low[todo] + wide * step[first]
        new_high = low[todo] + wide * step[last]
        closer = (new_high - new_low) < 0.7 * wide
        todo = todo[closer]
        if not len(todo):
            break
        low[todo], high[todo] = new_low[closer], new_high[closer]
        c[todo] = np.exp(low[todo, None] + (high - low)[todo, None] * step)
        fits = _fit(x[todo], y[todo], weight[todo], c[todo])
        for whole, part in zip(fit, fits, strict=True):
            whole[todo] = part
    return c, fit


def _fit(x: Floats, y: Floats, weight: Floats, c: Floats) -> _Fit:
    """Return the least squares of y ~ A / (x + c) + b with A, b >= 0 for each c (n, GRID)."""
    u = 1.0 / (x[:, None, :] + c[:, :, None])
    w = weight[:, None, :]
    total = weight.sum(axis=1)[:, None]
    mean_u = (w * u).sum(axis=2) / total
    mean_y = ((weight * y).sum(axis=1)[:, None]) / total
    du, dy = u - mean_u[:, :, None], (y - mean_y)[:, None, :]
    uu, uy = (w * du * du).sum(axis=2), (w * du * dy).sum(axis=2)
    slope = np.maximum(uy / uu, 0.0)
    floor = mean_y - slope * mean_u
    below = floor < 0
    raw = (w * u * u).sum(axis=2)
    slope = np.where(below, (w * u * y[:, None, :]).sum(axis=2) / raw, slope)
    floor = np.where(below, 0.0, floor)
    residual = y[:, None, :] - slope[:, :, None] * u - floor[:, :, None]
    rest = (w * residual**2).sum(axis=2)
    unit = np.sqrt(1.0 / total + mean_u**2 / uu)
    return _Fit(slope, floor, rest, unit, -mean_u * total / raw)


def smooth(values: Floats, seen: Bools) -> Floats:
    """Return running medians over five points that are seen, fewer at the ends, (n, P)."""
    order = np.argsort(~seen, axis=1, kind="stable")
    packed = np.take_along_axis(np.where(seen, values, np.nan), order, axis=1)
    wide = np.pad(packed, ((0, 0), (2, 2)), constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(wide, 5, axis=1)
    with np.errstate(invalid="ignore"):
        middle = np.nanmedian(np.where(np.isnan(packed)[:, :, None], 1.0, windows), axis=2)
    out = np.ones_like(values)
    np.put_along_axis(out, order, middle, axis=1)
    return out
