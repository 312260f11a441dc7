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


def one_resource(
    rng: np.random.Generator, jobs: int = 8, options: int = 5
) -> tuple[LinearModel, float]:
    """A random multiple-choice knapsack with one capacity row, and its optimum by exact dynamic
    programming.
    """
    gpus = rng.integers(1, 9, (jobs, options))
    value = np.round(rng.uniform(0.1, 3.0, (jobs, options)) * gpus**0.6, 3)
    capacity = int(rng.integers(3, 4 * jobs))
    rows = [(-INF, np.repeat(np.arange(jobs), options) == j, 1.0) for j in range(jobs)]
    model = dense(value.ravel(), [*rows, (-INF, gpus.ravel(), capacity)], choices=jobs)
    best = np.zeros(capacity + 1)  # best[c]: of the jobs so far, with c GPUs
    for j in range(jobs):
        taken = [
            np.r_[np.full(min(k, capacity + 1), -INF), best[:-k] if k <= capacity else []][
                : capacity + 1
            ]
            + v
            for k, v in zip(gpus[j].tolist(), value[j].tolist(), strict=True)
        ]
        best = np.max([best, *taken], axis=0)
    return model, float(best[-1])
