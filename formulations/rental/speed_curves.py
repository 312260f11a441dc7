"""Concave speed-up curves of many kinds of jobs at once, and the best width at a price.

On k >= 1 GPUs a job works s(k) times as fast as on one: Amdahl's law 1 / (1 - p + p/k), a power
k^a, or a table of sizes. Between the sizes of a table the speed follows the straight line of its
concave hull (the same as giving some jobs one size and the others the next). The width for a price
pi minimises (1 + pi k) / s(k). Source: Li, Berg, Mukhopadhyay, Harchol-Balter, "GPU rental on a
budget", EPEW 2024. The closed forms are derived from its convex program: Amdahl k = sqrt(p / ((1 -
p) pi)), power k = a / ((1 - a) pi).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from formulations.bounds.hull import hull
from formulations.columns import Columns
from formulations.model.linear import Bools, Floats, Ints

AMDAHL, POWER, TABLE = range(3)
HALVINGS = 64  # of an interval of exponents up to 1000: down to the last bits of a float


def halve(
    low: Floats, high: Floats, is_above: Callable[[Floats], Bools], times: int = HALVINGS
) -> tuple[Floats, Floats]:
    """Halve intervals, and return the ends between which `is_above` becomes true."""
    for _ in range(times):
        middle = (low + high) / 2
        above = is_above(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return low, high


@dataclass(frozen=True)
class SpeedUps(Columns):
    """R curves.

    Attributes
    ----------
    kind, parameter : (R,)
        AMDAHL, POWER or TABLE; p or a, nan for a table.
    least, most : (R,)
        Smallest and largest width.
    factor : (R,)
        Multiplies the speed at every width.
    k, s : (R, P)
        Points of a table's hull, with its last one repeated.
    step : (R, P - 1)
        Prices below which the next point is better.
    whole : bool
        Whether widths are whole numbers.
    """

    kind: Ints
    parameter: Floats
    factor: Floats
    least: Floats
    most: Floats
    k: Floats
    s: Floats
    step: Floats
    whole: bool = False

    def __len__(self) -> int:
        return len(self.kind)

    def speed(self, k: Floats) -> Floats:
        """Return the speed on k GPUs within least and most, (..., R) each."""
        p = self.parameter
        with np.errstate(all="ignore"):
            smooth = np.where(self.kind == AMDAHL, 1.0 / (1.0 - p + p / k), k**p)
        return self.factor * np.where(self.kind == TABLE, self._between(k), smooth)

    def width(self, price: Floats) -> Floats:
        """Return the k that minimises (1 + price k) / s(k), (..., R), the smallest of equal ones.

        price (..., R) is above 0.
        """
        p = self.parameter
        with np.errstate(all="ignore"):
            ratio = np.where(p >= 1.0, np.inf, np.where(p > 0.0, p / ((1.0 - p) * price), 0.0))
            smooth = np.where(self.kind == AMDAHL, np.sqrt(ratio), ratio)
        at = (self.step > np.asarray(price)[..., None]).sum(axis=-1)
        table = self.k[np.arange(len(self)), at]
        best = np.clip(np.where(self.kind == TABLE, table, smooth), self.least, self.most)
        if not self.whole:
            return np.asarray(best, np.float64)
        # (1 + price k) / s(k) falls up to `best` and rises from there
        low = np.floor(best)
        high = np.ceil(best)
        dearer = (1.0 / price + low) / self.speed(low) > (1.0 / price + high) / self.speed(high)
        return np.asarray(np.where(dearer, high, low), np.float64)

    def width_of_cost(self, cost: Floats) -> Floats:
        """Return the width at which k / s(k), GPU-hours of a unit of work, is closest to `cost`.

        Both have the shape (..., R).
        """

        def is_above(exponent: Floats) -> Bools:
            k = np.clip(2.0**exponent, self.least, self.most)
            return k / self.speed(k) > cost

        low, _ = halve(np.zeros(cost.shape), np.full_like(cost, 1000.0), is_above)
        return np.clip(2.0**low, self.least, self.most)

    def _between(self, k: Floats) -> Floats:
        last = self.k.shape[1] - 1
        if last == 0:
            return np.broadcast_to(self.s[:, 0], np.broadcast_shapes(np.shape(k), (len(self),)))
        rows = np.arange(len(self))
        at = np.clip((self.k <= np.asarray(k)[..., None]).sum(axis=-1) - 1, 0, last - 1)
        k0 = self.k[rows, at]
        k1 = self.k[rows, at + 1]
        s0 = self.s[rows, at]
        s1 = self.s[rows, at + 1]
        share = np.clip((k - k0) / np.where(k1 > k0, k1 - k0, 1.0), 0.0, 1.0)
        return np.asarray(s0 + share * (s1 - s0), np.float64)


def speed_ups(
    kind: Sequence[int],
    parameter: Sequence[float],
    points: Sequence[Sequence[tuple[int, float]]],
    factor: Sequence[float] | None = None,
    most: Sequence[float] | None = None,
) -> SpeedUps:
    """Build R curves from their kinds and parameters or points (k, s), see SpeedUps.

    The defaults are factor 1 and no limit. Raises ValueError where a speed-up has no end (p = 1 or
    a = 1 without a limit), because a linear speed-up would get infinitely many GPUs at no cost, or
    where a table has no point within its limit.
    """
    kinds = np.array(kind, np.int64)
    p = np.array(parameter, np.float64)
    limit = np.full(len(kinds), np.inf) if most is None else np.array(most, np.float64)
    endless = np.flatnonzero((kinds != TABLE) & (p >= 1.0) & np.isinf(limit))
    if len(endless):
        raise ValueError(
            f"speed-up {int(endless[0])} is linear without end: it needs a largest width"
        )
    tables = [
        tuple(sorted((k, s) for k, s in table if k <= limit[r])) if kinds[r] == TABLE else ()
        for r, table in enumerate(points)
    ]
    empty = [r for r, table in enumerate(tables) if kinds[r] == TABLE and not table]
    if empty:
        raise ValueError(f"speed-up {empty[0]} has no size within its limit")
    k, s, step = _hulls(tables)
    table = kinds == TABLE
    return SpeedUps(
        kinds,
        np.where(table, np.nan, p),
        np.ones(len(kinds)) if factor is None else np.array(factor, np.float64),
        np.where(table, k[:, 0], 1.0),
        np.where(table, k[:, -1], limit),
        k,
        s,
        step,
    )


def _hulls(tables: Sequence[Sequence[tuple[int, float]]]) -> tuple[Floats, Floats, Floats]:
    """Return k, s, step of SpeedUps.

    (k, s) -> (k/s, 1/s) maps lines to lines, and the concave hull to the lower one.
    """
    row = np.repeat(np.arange(len(tables)), [len(t) for t in tables])
    flat = np.array([point for t in tables for point in t], np.float64).reshape(-1, 2)
    cost = flat[:, 0] / flat[:, 1]
    time = 1.0 / flat[:, 1]
    on = hull(row, cost, time)
    row = row[on]
    flat = flat[on]
    cost = cost[on]
    time = time[on]
    many = np.bincount(row, minlength=len(tables))
    place = np.minimum(np.arange(max(1, many.max(initial=1))), np.maximum(many, 1)[:, None] - 1)
    at = np.minimum((np.cumsum(many) - many)[:, None] + place, max(len(row) - 1, 0))
    if not len(row):
        one = np.ones((len(tables), 1))
        return one, one, np.zeros((len(tables), 0))
    x = cost[at]
    y = time[at]
    rise = np.diff(x, axis=1)
    step = np.where(rise > 0, -np.diff(y, axis=1) / np.where(rise > 0, rise, 1.0), 0.0)
    return flat[at, 0], flat[at, 1], step
