"""The round with rules that may give way: how little must change for a plan to exist.

Every row r of the given kinds gets a slack e_r >= 0 in the direction in which it can be broken, and
a switch z_r with e_r <= M_r z_r:

    min  sum_r w_r ( z_r + e_r / |b_r| )
    s.t. rows with slack; all other rows unchanged

The programme relaxes few rules (z), and each by little relative to its limit b (e). The weights w
say which rules give way first: the limit on changes gives way most easily. Stopping a job that must
run is the last choice; its at-most-one row is a rule too. The GPUs of a pool are physics and are
never relaxed. Nor are the rows by which a secondary job needs its primary job.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from formulations.model.linear import (
    AT_MOST_ONE,
    CAPACITY,
    CHURN,
    COLOCATION,
    TAKEOVER,
    Bools,
    Floats,
    Ints,
    LinearModel,
)

WEIGHT = {CHURN: 0.5, AT_MOST_ONE: 2.0}  # w of a row by its kind, 1 for every other kind


@dataclass(frozen=True)
class Elastic:
    """A relaxed programme.

    Attributes
    ----------
    model : LinearModel
        Maximises minus the price. Its columns are the n of the original, s slacks, then s switches.
    rows : (s,)
        Rows that may give way.
    """

    model: LinearModel
    rows: Ints

    def slack(self, x: Floats) -> Floats:
        """Return how far each of `rows` gives way in the solution x, (s,)."""
        s = len(self.rows)
        return x[len(x) - 2 * s : len(x) - s]


def soft_rows(model: LinearModel) -> Bools:
    """Find the rows that are rules of people rather than of physics or logic, (m,)."""
    # the row of a job that may get nothing is logic: at most one option
    optional = model.rows_of(AT_MOST_ONE) & (model.lower <= 0)
    return ~(model.rows_of(CAPACITY, COLOCATION, TAKEOVER) | optional)


def build_elastic_model(model: LinearModel) -> Elastic:
    """Build the relaxed programme of a model, in which all soft rows may give way."""
    rows = np.flatnonzero(soft_rows(model))
    s = len(rows)
    n = model.n
    # soft rows are one-sided, except "must run" = [1, 1]
    low = np.isfinite(model.lower[rows])
    use = np.bincount(model.index, np.maximum(model.coef, 0), minlength=model.m)  # at most
    over = use[rows] - model.upper[rows]
    most = np.maximum(np.where(low, np.maximum(model.lower[rows], 0.0), over), 1e-6)
    limit = np.maximum(1.0, np.abs(np.where(low, model.lower[rows], model.upper[rows])))
    weight = _weights(model)[rows]
    sign = np.where(low, 1.0, -1.0)
    # A slack column has one entry in its row and one in the link row e_r - M_r z_r <= 0.
    links = model.m + np.arange(s)
    start = np.concatenate(
        [
            model.start,
            model.start[-1] + 2 * np.arange(1, s + 1),
            model.start[-1] + 2 * s + np.arange(1, s + 1),
        ]
    )
    index = np.concatenate([model.index, np.column_stack([rows, links]).ravel(), links])
    coef = np.concatenate([model.coef, np.column_stack([sign, np.ones(s)]).ravel(), -most])
    relaxed = LinearModel(
        value=np.concatenate([np.zeros(n), -weight / limit, -weight]),
        col_lower=np.concatenate([model.col_lower, np.zeros(2 * s)]),
        col_upper=np.concatenate([model.col_upper, most, np.ones(s)]),
        integer=np.concatenate([model.integer, np.zeros(s, dtype=bool), np.ones(s, dtype=bool)]),
        start=start,
        index=index,
        coef=coef,
        lower=np.concatenate([model.lower, np.full(s, -np.inf)]),
        upper=np.concatenate([model.upper, np.zeros(s)]),
        families=model.families,
    )
    return Elastic(relaxed, rows)


def _weights(model: LinearModel) -> Floats:
    weights = np.ones(model.m)
    for family in model.families:
        weights[family.first : family.stop] = WEIGHT.get(family.kind, 1.0)
    return weights


def without_rows(model: LinearModel, rows: Ints) -> LinearModel:
    """Return the model without the bounds of the given rows.

    Rows of jobs keep their upper bound: a job still gets at most one option.
    """
    lower = model.lower.copy()
    upper = model.upper.copy()
    lower[rows] = -np.inf
    upper[rows] = np.where(model.rows_of(AT_MOST_ONE)[rows], upper[rows], np.inf)
    return replace(model, lower=lower, upper=upper)
