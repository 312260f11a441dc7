"""What one round leaves to the next: prices by the names of their rows.

Rounds follow each other with few jobs replaced and few values moved, so the last prices are almost the next ones and
finding them takes a fraction of the time. The plan needs no memory: what runs is in the snapshot, and "change nothing"
is always among the starts. The model is built anew: that costs less than finding out what changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from formulations.linear import AT_MOST_ONE, Floats, LinearModel


@dataclass(frozen=True)
class Memory:
    """objective: what the prices are units of. prices: (kind, label) of a coupling row -> price."""

    objective: str
    prices: Mapping[tuple[str, str], float]

    @classmethod
    def of(cls, objective: str, model: LinearModel, prices: Floats) -> Memory:
        """The memory of a round with row prices (m,)."""
        return cls(objective, {(f.kind, label): float(p) for f in model.families if f.kind != AT_MOST_ONE
                               for label, p in zip(f.labels, prices[f.first:f.stop], strict=True)})

    def row_prices(self, model: LinearModel) -> tuple[Floats, int]:
        """(m,) the remembered price of every row of another round's model, 0 where the row is new; rows known."""
        prices, known = np.zeros(model.m), 0
        for f in model.families:
            if f.kind != AT_MOST_ONE:
                found = [self.prices.get((f.kind, label)) for label in f.labels]
                prices[f.first:f.stop] = [p or 0.0 for p in found]
                known += sum(p is not None for p in found)
        return prices, known
