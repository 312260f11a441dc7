"""What changed between two rounds: which rows of a table stay, and which are new.

Rows that stay come first, in the order of the round before, and new rows come after them. Their
cells may differ. A table in another order counts as new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from allocator.domain.problem import Bools, Ints


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
            return cells[self.stays]
        if self.are_all:
            return list(cells)
        out: list[Any] = []
        for begin, end in self._runs:
            out += cells[begin:end]
        return out

    @cached_property
    def _runs(self) -> list[tuple[int, int]]:
        """The ranges of rows that stay."""
        edge = np.flatnonzero(np.diff(np.r_[False, self.stays, False].astype(np.int8)))
        return list(zip(edge[::2].tolist(), edge[1::2].tolist(), strict=True))


def find_rows_that_stay(before: Sequence[str], now: Sequence[str]) -> StayingRows | None:
    """Find the rows whose names are still there, None if they do not come first now, in order.

    The names of the round before are distinct.
    """
    kept = 0
    gone: list[int] = []
    old = iter(enumerate(before))
    for name in now:
        for i, known in old:
            if known == name:
                break
            gone.append(i)
        else:
            break
        kept += 1
    gone += [i for i, _ in old]
    if not {before[i] for i in gone}.isdisjoint(now[kept:]):
        return None
    stays = np.ones(len(before), dtype=bool)
    stays[gone] = False
    return StayingRows(stays)
