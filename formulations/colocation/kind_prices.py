"""Prices of rows and of pairs of kinds: the dual of a round in which any two jobs may share GPUs.

Where the value of a pair is a sum of one term for each job, which depends on the other job by its
kind only, the pairs of two kinds k need one row and not one for each two jobs: as many jobs are
primary in k as are secondary in k. Which of them share is arbitrary. The price t_k of this row is
what a secondary job pays to its primary job for the right to run with it. With the prices p of the
other rows

    L(p, t) = rent of p + sum_j max( 0 unless must_j,  v_c - a_c'p,
                                     v_c - a_c'p + primary term_ck + t_k,
                                     secondary term_jk - t_k )

is a bound for every t of either sign (formulations/bounds/lagrangian.py). It is the bound of a
round of choices with few rows. Nearly all pairs of kinds are never wanted; only those for which the
search knows a t_k are in it. In a large round it keeps to a box of prices, like prices near those
of a similar round (lagrangian.py), and to the columns that may be best there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from formulations.bounds.quasi_newton import descend
from formulations.bounds.smoothing import ScaledRows, Smooth
from formulations.columns import Columns
from formulations.model.choices import Choices
from formulations.model.linear import COLOCATION, Floats, Ints, SparseRows

WARM = (0.06, 0.03)  # first temperatures, where prices may change much
TEMPERATURES = (0.01, 0.003, 0.001)
NEAR = 0.2  # a column may lose so much at the prices, as a multiple of the mean value of a job
REACH = 0.15  # a price may rise or fall by this share of itself
FLOOR = 0.1  # smaller prices count as this share of the mean price
SMALL = 100_000  # with at most so many columns and terms, all of them are considered
STEP = 0.7  # share of NEAR by which the price of the right to a secondary job may change
ENDS = 0.03  # share of the prices that may lie at an end
TOLERANCE = 0.002  # share of `close` that a step has to gain


@dataclass(frozen=True)
class Terms(Columns):
    """The terms of one side of pairs of kinds, arrays (e,).

    Attributes
    ----------
    kinds : (e,)
        Pair of kinds.
    group : (e,)
        Group of the job.
    term : (e,)
        Its term.
    column : (e,)
        Column that a primary job takes; -1 = none, for secondary jobs.
    """

    kinds: Ints
    group: Ints
    term: Floats
    column: Ints


@dataclass(frozen=True)
class KindPrices:
    """Prices of the coupling rows, `row` (R,), and t of some pairs of kinds, `right` (K,).

    `right` is nan for the others. `group` (J,) has the value of each group at these prices.
    """

    row: Floats
    right: Floats
    group: Floats


def find_nearby_kind_prices(
    c: Choices, primary: Terms, secondary: Terms, at: KindPrices, close: float, until: float
) -> tuple[Floats, Floats, bool]:
    """Return prices (R,) and rights (K,) near given ones with a lower bound.

    Also return whether nearly none of them lies at an end of its box.

    Parameters
    ----------
    close : float
        Relative improvement of the bound that does not matter.
    until : float
        Latest end (time.monotonic).
    """
    rows = ScaledRows.of(c)
    if rows is None:
        return at.row, at.right, True
    p = rows.split(at.row)
    known = np.flatnonzero(~np.isnan(at.right))
    sides = [
        side.take(np.flatnonzero(~np.isnan(at.right[side.kinds]))) for side in (primary, secondary)
    ]
    is_small = c.n + sum(len(side.term) for side in sides) <= SMALL
    near = np.inf if is_small else NEAR * float(np.abs(at.group).mean())
    smooth = _smooth_near(c, rows, sides, at, known, near)
    R = len(p)
    floor = FLOOR * p[p > 0].mean() if p.any() else 0.0
    reach = np.full(R, np.inf) if is_small else REACH * np.maximum(p, floor)
    step = np.full(len(known), STEP * near / rows.value_scale)
    right = at.right[known] / rows.value_scale
    low = np.append(np.maximum(p - reach, 0.0), right - step)
    high = np.append(p + reach, right + step)
    q = np.append(p, right)
    for mu in WARM + TEMPERATURES if is_small else TEMPERATURES:
        q = descend(smooth, q, mu, TOLERANCE * close, low, high, until)
    at_end = ((q <= low) & (low != 0.0)) | (q >= high)
    rights = at.right.copy()
    rights[known] = q[R:] * rows.value_scale
    return rows.join(q[:R]), rights, bool(at_end.mean() <= ENDS)


def _smooth_near(
    c: Choices,
    rows: ScaledRows,
    sides: Sequence[Terms],
    at: KindPrices,
    known: Ints,
    near: float,
) -> Smooth:
    """Return the smooth dual of the columns and terms that lose at most `near` at these prices.

    Its rows are those of `rows`, then the pairs of kinds `known`.
    """
    is_shared = c.model.rows_of(COLOCATION)[c.rows]
    own = np.flatnonzero(at.group[c.group] - c.value + c.matrix @ at.row <= near)
    # next to a job of a kind there is no other one, so the right to be that is not sold
    reduced = c.value - c.matrix @ np.where(is_shared, 0.0, at.row)
    taken = []
    for side, sign in zip(sides, (1.0, -1.0), strict=True):
        gain = side.term + sign * at.right[side.kinds] - at.group[side.group]
        gain[side.column >= 0] += reduced[side.column[side.column >= 0]]
        taken.append(side.take(np.flatnonzero(gain >= -near)))
    first, second = taken
    columns = np.append(own, first.column)
    A = rows.scale(c, c.matrix[columns])
    n = len(columns) + len(second.term)
    number = np.full(len(at.right), -1)
    number[known] = len(rows.at) + np.arange(len(known))
    column = np.concatenate([A.row, np.arange(len(own), len(columns)), np.arange(len(columns), n)])
    row = np.concatenate([A.indices, number[first.kinds], number[second.kinds]])
    sells = (A.row < len(own)) | ~is_shared[rows.at][A.indices]
    entry = np.concatenate([A.data * sells, -np.ones(len(first.term)), np.ones(len(second.term))])
    group = np.concatenate([c.group[own], first.group, second.group])
    value = np.concatenate([c.value[own], c.value[first.column] + first.term, second.term])
    order = np.argsort(group, kind="stable")
    place = np.empty(n, np.int64)
    place[order] = np.arange(n)
    column = place[column]
    by_column = np.argsort(column, kind="stable")
    many = np.bincount(column, minlength=n)
    indptr = np.concatenate([[0], np.cumsum(many)])
    R = len(rows.at) + len(known)
    size = np.bincount(group, minlength=c.J)
    filled = np.flatnonzero(size)
    return Smooth(
        value[order] / rows.value_scale,
        SparseRows(entry[by_column], row[by_column], indptr, (n, R)),
        size[filled],
        ~c.mandatory[filled],
        np.append(rows.b, np.zeros(len(known))),
    )
