"""The rows of one family of hard rules over the options of a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from formulations.model.linear import Bools, Floats, Ints


@dataclass(frozen=True)
class Block:
    """The rows of one family: lower <= sum_o coef_o x_o [row_o = r] <= upper for every row r.

    `coef` has the shape (n,), `row` the shape (n,) or (L, n), -1 = none, `lower` and `upper` one
    entry per row.
    """

    kind: str
    labels: Sequence[str]
    row: Ints
    coef: Floats
    lower: Floats
    upper: Floats

    @classmethod
    def at_most(
        cls, kind: str, labels: Sequence[str], row: Ints, coef: Ints | Floats, upper: Floats
    ) -> Block:
        """Return the rows that have a limit, inf = none."""
        lower = np.full(len(upper), -np.inf)
        return cls(kind, labels, row, coef.astype(float), lower, upper).keep(np.isfinite(upper))

    @classmethod
    def empty(cls, kind: str) -> Block:
        """Return a block without rows, and therefore without the rows of options."""
        none = np.zeros(0)
        return cls(kind, (), np.zeros(0, dtype=np.int64), none, none, none)

    @property
    def layers(self) -> Ints:
        """The row that each option uses in each layer, (L, n), -1 = none; no layer without rows."""
        return np.atleast_2d(self.row) if len(self.upper) else np.zeros((0, len(self.row)), int)

    def keep(self, use: Bools) -> Block:
        """Return the block without the rows that `use` leaves out."""
        if use.all():
            return self
        if not use.any():
            return Block.empty(self.kind)
        new = np.append(np.where(use, np.cumsum(use) - 1, -1), -1)  # the last place is that of -1
        return Block(
            self.kind,
            [name for name, u in zip(self.labels, use, strict=True) if u],
            new[self.row],
            self.coef,
            self.lower[use],
            self.upper[use],
        )

    def take(self, option: Ints) -> Block:
        """Return the rows for only these options."""
        if not len(self.upper):
            return self
        return replace(self, row=self.row[..., option], coef=self.coef[option])
