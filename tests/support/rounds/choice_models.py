"""Models made of choices for tests: by hand, at random, and exhaustive search over them."""

from __future__ import annotations

import numpy as np
from models import INF
from rounds import random_instance
from scipy import sparse
from scipy.optimize import linprog

from formulations.model.choices import Choices, choices
from formulations.model.linear import AT_MOST_ONE, CAPACITY, LinearModel, RowFamily
from formulations.model.single_round import build_model


def model_of(groups, rows, mandatory=()):
    """groups: per group a list of (value, {row: coef}); rows: list of (low, high); must: numbers
    of must-groups.
    """
    J, columns = len(groups), [(j, *column) for j, group in enumerate(groups) for column in group]
    entries = [{j: 1.0} | {J + r: a for r, a in sorted(use.items()) if a} for j, _, use in columns]
    families = [RowFamily(AT_MOST_ONE, 0, [f"j{j}" for j in range(J)])] if J else []
    families.append(RowFamily(CAPACITY, J, [f"r{J + r}" for r in range(len(rows))]))
    least = [1.0 if j in mandatory else -INF for j in range(J)]
    return LinearModel(
        np.array([value for _, value, _ in columns], dtype=float),
        np.zeros(len(columns)),
        np.ones(len(columns)),
        np.ones(len(columns), dtype=bool),
        np.cumsum([0, *map(len, entries)]),
        np.array([r for column in entries for r in column], dtype=np.int64),
        np.array([a for column in entries for a in column.values()], dtype=float),
        np.array([*least, *(low for low, _ in rows)], dtype=float),
        np.array([*[1.0] * J, *(high for _, high in rows)], dtype=float),
        tuple(families),
    )


def random_model(
    rng: np.random.Generator, jobs: int = 5, rows: int = 3, scale: float = 1.0
) -> LinearModel:
    """Rows of all kinds (<=, >=, ranged, equal), must-groups, empty groups, negative and zero
    values.
    """
    groups = []
    for _ in range(jobs):
        columns = []
        for _ in range(int(rng.integers(0, 4))):
            entries = {r: float(rng.integers(-1, 6)) for r in range(rows) if rng.random() < 0.7}
            columns.append((scale * float(np.round(rng.normal(1.0, 1.0), 2)), entries))
        groups.append(columns)
    bounds = []
    for _ in range(rows):
        a, b = sorted(rng.integers(0, 3 * jobs, 2).tolist())
        kinds = [(-np.inf, b), (-np.inf, b), (min(a, 3), np.inf), (min(a, 2), b), (a, a)]
        bounds.append(kinds[int(rng.integers(0, 5))])
    mandatory = {j for j in range(jobs) if groups[j] and rng.random() < 0.2}
    return model_of(groups, bounds, mandatory)


def drawn_model(rng: np.random.Generator) -> LinearModel:
    """A model of six jobs: rows of all kinds, or those of a round."""
    if rng.random() < 0.5:
        return random_model(rng, jobs=6, rows=4)
    return build_model(random_instance(rng, jobs=6, pools=2, tenants=3))


def best_choice(c: Choices) -> float | None:
    """Value of the best plan by trying all of them; None where there is none."""
    A, v = np.vstack([c.matrix.toarray(), np.zeros((1, c.R))]), np.append(c.value, 0.0)
    use, value = np.zeros((1, c.R)), np.zeros(1)
    for j in range(c.J):
        mine = [*range(c.start[j], c.start[j + 1]), *([] if c.mandatory[j] else [c.n])]
        use = (use[:, None] + A[mine][None]).reshape(-1, c.R)
        value = (value[:, None] + v[mine][None]).ravel()
    fine = ((use <= c.high) & (use >= c.low)).all(axis=1)
    return float(value[fine].max()) if fine.any() else None


def lp_bound(model: LinearModel) -> float | None:
    """Optimum of the LP relaxation, None where infeasible."""
    A = sparse.csc_matrix((model.coef, model.index, model.start), shape=(model.m, model.n)).tocsr()
    up, down = np.isfinite(model.upper), np.isfinite(model.lower)
    r = linprog(
        -model.value,
        A_ub=sparse.vstack([A[up], -A[down]]),
        bounds=(0, 1),
        method="highs",
        b_ub=np.concatenate([model.upper[up], -model.lower[down]]),
    )
    return -float(r.fun) if r.status == 0 else None


def view(groups, rows, mandatory=()) -> Choices:
    """choices(model_of(...))."""
    return choices(model_of(groups, rows, mandatory))
