"""What groups can still gain at most, where the use of a few rows is counted exactly.

At prices p a row costs p_r for every unit, used or not, and a part of a large job looks as good as
the whole. For a set E of few rows, the groups k, k+1, ... and what is left of the rows E (capacity
of an upper bound, need of a lower bound)

    T_k(left) = max over options of these groups that keep E of  sum (v - sum_{r not in E} p_r a_r)

follows group by group from the last one: T_k(left) = max_o (v_o - ..) + T_{k+1}(left - a_o). It
counts lumps exactly, and every other row by its price. This is a partial dualisation (Geoffrion
1974), tabulated as in dynamic programming for several knapsacks (Kellerer, Pferschy and Pisinger
2004, section 9.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from formulations.model.linear import Bools, Floats, Ints


@dataclass(frozen=True)
class CountedRows:
    """Rows whose use is counted in whole units.

    Attributes
    ----------
    rows : (E,)
        Which rows they are.
    unit : (E,)
        All uses of a row are whole multiples of its unit, and not negative.
    is_need : (E,)
        Whether the row has a lower bound; else it has an upper bound.
    bound : (E,)
        The bound.
    most : (E,)
        What is left of each row at first, in units.
    """

    rows: Ints
    unit: Floats
    is_need: Bools
    bound: Floats
    most: Ints

    @staticmethod
    def of(rows: Ints, unit: Floats, is_need: Bools, bound: Floats, use: Floats) -> CountedRows:
        """Return rows (E,) of which `use` (E,) is used already."""
        counted = CountedRows(rows, unit, is_need, bound, np.zeros(len(rows), dtype=np.int64))
        return CountedRows(rows, unit, is_need, bound, counted.left(use))

    def take(self, at: Ints) -> CountedRows:
        """Return some of the rows."""
        return CountedRows(
            self.rows[at], self.unit[at], self.is_need[at], self.bound[at], self.most[at]
        )

    def left(self, use: Floats) -> Ints:
        """Return what uses (..., E) leave of each row, in whole units, at least 0."""
        left = (self.bound - use) / self.unit
        whole = np.where(self.is_need, np.ceil(left - 1e-6), np.floor(left + 1e-6))
        return np.asarray(np.maximum(whole, 0.0).astype(np.int64))

    def sizes(self, uses: Floats) -> Ints:
        """Return uses (k, R) of all rows in units of these rows, (k, E)."""
        return np.asarray(np.rint(uses[:, self.rows] / self.unit).astype(np.int64))


class RowTables:
    """T_k of every counted row alone.

    Parameters
    ----------
    gain : (k, E)
        Value of every option, less the price of what it uses of all rows but this one.
    uses : (k, R)
        What every option uses of all rows.
    start : (G+1,)
        Group number g has the options start[g] .. start[g+1].
    """

    def __init__(self, counted: CountedRows, gain: Floats, uses: Floats, start: Ints) -> None:
        self.counted = counted
        E, L = len(counted.rows), int(counted.most.max(initial=0)) + 1
        # the last place of a line is that of options that do not fit
        self._line = np.arange(E) * (L + 1)
        places = np.arange(L) - counted.sizes(uses)[:, :, None]
        missing = np.where(counted.is_need, 0, L)[:, None]
        places = np.where(places < 0, missing, places) + self._line[:, None]
        self._best = np.full((len(start), E, L + 1), -np.inf)
        self._best[-1, :, :L] = 0.0
        self._best[-1, counted.is_need, 1:] = -np.inf
        for g in reversed(range(len(start) - 1)):
            own = slice(start[g], start[g + 1])
            reached = self._best[g + 1].ravel()[places[own]]
            self._best[g, :, :L] = (reached + gain[own, :, None]).max(axis=0)

    def at(self, k: int, use: Floats) -> Floats:
        """Return T_k (K, E) of partial plans that use (K, R) of all rows."""
        c = self.counted
        left = np.minimum(c.left(use[:, c.rows]), c.most)
        return np.asarray(self._best[k].ravel()[left + self._line])


class JointTable:
    """T_k of all counted rows together; parameters as of RowTables, with `gain` (k,)."""

    def __init__(self, counted: CountedRows, gain: Floats, uses: Floats, start: Ints) -> None:
        self.counted = counted
        most = counted.most
        # a need may fall below zero: these places repeat the place of zero
        self._zero = np.where(counted.is_need, most, 0)
        self._best = np.full((len(start), *(self._zero + most + 1)), -np.inf)
        nothing_needed = tuple(
            slice(zero + 1 if need else None)
            for zero, need in zip(self._zero.tolist(), counted.is_need.tolist(), strict=True)
        )
        self._best[-1][nothing_needed] = 0.0
        size = counted.sizes(uses)
        size = np.where(counted.is_need, np.minimum(size, most), size)
        sizes = [tuple(line) for line in size.tolist()]
        for g in reversed(range(len(start) - 1)):
            table, rest = self._best[g], self._best[g + 1]
            gains: dict[tuple[int, ...], float] = {}
            for o in range(start[g], start[g + 1]):
                gains[sizes[o]] = max(gains.get(sizes[o], -np.inf), float(gain[o]))
            for own, best in gains.items():
                if all(map(int.__le__, own, most.tolist())):
                    to, left = self._places(own)
                    np.maximum(table[to], rest[left] + best, out=table[to])
            for e in np.flatnonzero(counted.is_need):
                along = np.moveaxis(table, e, 0)
                along[: most[e]] = along[most[e]]

    def at(self, k: int, use: Floats) -> Floats:
        """Return T_k (K,) of partial plans that use (K, R) of all rows."""
        c = self.counted
        place = np.minimum(c.left(use[:, c.rows]), c.most) + self._zero
        return np.asarray(self._best[(k, *place.T)])

    def _places(self, size: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return places of a table, and those of the next one that an option leads to from them."""
        to, left = [], []
        for a, n, need in zip(
            size, self.counted.most.tolist(), self.counted.is_need.tolist(), strict=True
        ):
            to.append(slice(n, None) if need else slice(a, None))
            left.append(slice(n - a, 2 * n + 1 - a) if need else slice(0, n + 1 - a))
        return tuple(to), tuple(left)


def count_states(counted: CountedRows) -> int:
    """Return the number of entries of one joint table."""
    return int(np.prod((1.0 + counted.most) * np.where(counted.is_need, 2.0, 1.0)))
