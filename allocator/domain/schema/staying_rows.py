"""What changed between two rounds: which rows of a table stay, and which are new.

Rows that stay come first, in the order of the round before, and new rows come after them. Their
cells may differ. A table in another order counts as new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import eq
from typing import Any

import numpy as np

from allocator.domain.problem import Bools, Ints

STEP = 32  # names of the first slice that is compared


@dataclass(frozen=True, eq=False)
class StayingRows:
    """Rows of the round before that are still there, in their order.

    Attributes
    ----------
    stays : (n,)
        Whether each row of the round before stays.
    """

    stays: Bools

    @classmethod
    def all_of(cls, count: int) -> StayingRows:
        """Return that all of so many rows stay."""
        return cls(np.ones(count, dtype=bool))

    @cached_property
    def rows(self) -> Ints:
        """The rows that stay, (k,)."""
        return np.flatnonzero(self.stays)

    @property
    def are_all(self) -> bool:
        """Whether every row stays."""
        return len(self.rows) == len(self.stays)

    def pick(self, cells: Any) -> Any:
        """Return the entries of a list or an array (n,) that stay."""
        if isinstance(cells, np.ndarray):
            return cells if self.are_all else cells[self.rows]
        if self.are_all:
            return list(cells)
        out: list[Any] = []
        for begin, end in zip(*self._runs, strict=True):
            out += cells[begin:end]
        return out

    @cached_property
    def _runs(self) -> tuple[list[int], list[int]]:
        """Where the ranges of rows that stay begin and end."""
        edge = np.flatnonzero(np.diff(np.r_[False, self.stays, False].astype(np.int8)))
        return edge[::2].tolist(), edge[1::2].tolist()


def find_rows_that_stay(before: Sequence[str], now: Sequence[str]) -> StayingRows | None:
    """Find the rows whose names are still there, None if they do not come first now, in order.

    The names of the round before are distinct.
    """
    if type(before) is not type(now):
        before, now = list(before), list(now)
    stays = np.zeros(len(before), dtype=bool)
    row = kept = 0
    while row < len(before) and kept < len(now):
        alike = _count_alike(before, row, now, kept)
        stays[row : row + alike] = True
        kept += alike
        row += alike + 1  # the row after those that are alike is gone
    gone = np.flatnonzero(~stays).tolist()
    return StayingRows(stays) if {before[i] for i in gone}.isdisjoint(now[kept:]) else None


def _count_alike(a: Sequence[str], i: int, b: Sequence[str], k: int) -> int:
    """Return how many names from a[i] on are those from b[k] on.

    They are compared in slices that grow, of which only the last one is looked through.
    """
    first, step = i, STEP
    while True:
        names, others = a[i : i + step], b[k : k + step]
        if names != others or not names:
            is_same = [*map(eq, names, others), False]
            return i + is_same.index(False) - first
        i, k, step = i + step, k + step, 2 * step
