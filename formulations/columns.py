"""Records of columns: arrays with an entry for each row, and values for all rows together."""

from __future__ import annotations

from typing import Self

import numpy as np

from formulations.model.linear import Bools, Ints


class Columns:
    """What frozen dataclasses of columns have in common."""

    def take(self, rows: Ints | Bools) -> Self:
        """Return some of the rows, in this order."""
        columns = (x[rows] if isinstance(x, np.ndarray) else x for x in vars(self).values())
        return type(self)(*columns)
