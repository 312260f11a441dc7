"""Small linear models written as a matrix, for tests of solvers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from formulations.model.linear import AT_MOST_ONE, CAPACITY, LinearModel, RowFamily

INF = np.inf


def dense(
    value: Sequence[float],
    rows: Sequence[tuple[float, Sequence[float], float]] = (),
    *,
    box: tuple[float, float] = (0.0, 1.0),
    integer: bool | Sequence[bool] = True,
    choices: int = 0,
) -> LinearModel:
    """Maximise value @ x with rows (lower, coefficients, upper) over columns in `box`.

    The first `choices` rows form the family "at most one", the others "capacity".
    """
    n, m = len(value), len(rows)
    a = np.array([r[1] for r in rows], dtype=float).reshape(m, n)
    column, row = np.nonzero(a.T)
    families = [RowFamily(AT_MOST_ONE, 0, [f"j{r}" for r in range(choices)])] if choices else []
    families.append(RowFamily(CAPACITY, choices, [f"r{r}" for r in range(choices, m)]))
    return LinearModel(
        np.array(value, dtype=float),
        np.full(n, box[0]),
        np.full(n, box[1]),
        np.broadcast_to(integer, n).copy(),
        np.searchsorted(column, np.arange(n + 1)),
        row,
        a[row, column],
        np.array([r[0] for r in rows], dtype=float),
        np.array([r[2] for r in rows], dtype=float),
        tuple(families),
    )
