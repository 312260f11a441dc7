"""Records of columns: arrays with an entry for each row, and values for all rows together."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from formulations.model.linear import Bools, Ints
from formulations.model.ragged import begins_run


class Columns:
    """What frozen dataclasses of columns have in common."""

    def take(self, rows: Ints | Bools) -> Self:
        """Return some of the rows, in this order."""
        columns = vars(self).values()
        return type(self)(*(x[rows] if isinstance(x, np.ndarray) else x for x in columns))


def number_rows(*columns: np.ndarray[Any, Any]) -> Ints:
    """Number the rows of some columns in ascending order, equal rows alike, (n,)."""
    order = np.lexsort(columns[::-1])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(begins_run(*(x[order] for x in columns))) - 1
    return number
