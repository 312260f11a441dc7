"""Write a LinearModel in whole numbers, with a proven error, for solvers that need integers.

Rows. Column x_c has bounds l_c <= x_c <= u_c. A row side sum a_c x_c <= b, with its tolerance added
to b, becomes sum A_c x_c <= B in whole numbers. A lower side is mirrored: -a, -b. Every point that
LinearModel.feasible accepts is kept ("relaxed"). So a bound of the integer model is a bound of the
original model. There are two ways, which are tried in this order:

- exact: B = floor(s b + D). s is the smallest of 1, 10, ..., 10^6 for which every s a_c is whole up
  to rounding of its last digits, and A_c = rint(s a_c). D covers those digits:
  D = sum_c (|s a_c - A_c| + 2^-51 |s a_c|) (|l_c| + u_c - l_c).
- fine: B = floor(s (b - a.l) + D) + A.l, with s = 2^k and A_c = floor(s a_c). As x_c - l_c >= 0,
  A.(x - l) <= s a.(x - l). D covers only the rounding of s (b - a.l). k is so large that rounding
  loosens the row by at most 2^-34 of max(1, |b|), less than a tenth of the tolerance, as long as
  all numbers stay within the limits of the solver.

With relaxed=False the same is done inwards (ceil, -D, -tolerance/2): every point of that model is
feasible.

Values. V_c = rint(w v_c), and for every feasible x: |v.x - V.x / w| <= error, with

    error = (1 / w) units(|w v_c - V_c| + 2^-51 |w v_c|)

where units(q) >= sum_c q_c |x_c| for every feasible x. units(q) is the sum of the largest q of each
"at most one" row, plus q_c max|x_c| over the columns in no such row. Hence bound <= (integer bound)
/ w + error. w is a power of ten if the values are decimal fractions. Otherwise it is a power of two
so large that error <= 2^-30 units(|v|), about 1e-9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from formulations.model.linear import AT_MOST_ONE, Bools, Floats, Ints, LinearModel

LARGEST = 2.0**53  # whole numbers up to here are exact in float64
TOTAL = 2.0**61  # sum of |A_c x_c| in a row: CP-SAT's limit is 2^63
LAST_DIGITS = 2.0**-51  # relative; above the rounding error of one product
FREE = 2**62  # no bound


class NotInteger(Exception):
    """The model cannot be written in whole numbers.

    A column is continuous or unbounded, or its numbers are too far apart.
    """


@dataclass(frozen=True)
class Row:
    """One row: lower <= sum coef_i x_column_i <= upper, all whole; a missing bound is +-FREE."""

    column: Ints
    coef: Ints
    lower: int
    upper: int


@dataclass(frozen=True)
class IntegerModel:
    """Maximise value @ x over whole x in [lower, upper], with `groups` and `rows`.

    A group has at most one 1, or exactly one if its flag is True. The value of a plan is value @ x
    / scale. It differs from that of the original model by at most `error`. value, lower and upper
    are (n,).
    """

    value: Ints
    lower: Ints
    upper: Ints
    groups: tuple[tuple[Ints, bool], ...]
    rows: tuple[Row, ...]
    scale: float
    error: float

    def bound(self, claimed: float) -> float:
        """Return the bound of the original model that follows from a bound of this model."""
        return (claimed / self.scale + self.error) if math.isfinite(claimed) else math.inf


def integer_model(model: LinearModel, relaxed: bool = True) -> IntegerModel:
    """Return the model in whole numbers, see the module; raises NotInteger."""
    if not model.integer.all():
        raise NotInteger(
            f"{int((~model.integer).sum())} columns are continuous; this solver takes whole numbers"
            " only"
        )
    if (
        not (np.abs(model.col_lower) < 2.0**31).all()
        or not (np.abs(model.col_upper) < 2.0**31).all()
    ):
        raise NotInteger("a column without bounds; this solver needs both on every column")
    lower = np.ceil(model.col_lower - 1e-9)
    upper = np.floor(model.col_upper + 1e-9)
    group = _groups(model, lower, upper)
    start, column, coef = model.by_row()
    below, above = model.tolerance()
    sign = 1.0 if relaxed else -0.5
    low = model.lower - sign * below
    high = model.upper + sign * above
    groups = []
    rows = []
    in_use = set(group[group >= 0].tolist())
    for r in range(model.m):
        entries = slice(start[r], start[r + 1])
        if r in in_use:
            groups.append((column[entries], bool(model.lower[r] == 1.0)))
            continue
        rows += _row(column[entries], coef[entries], low[r], high[r], lower, upper, relaxed)
    value, scale, error = _values(model.value, group, np.maximum(np.abs(lower), np.abs(upper)))
    return IntegerModel(
        value,
        lower.astype(np.int64),
        upper.astype(np.int64),
        tuple(groups),
        tuple(rows),
        scale,
        error,
    )


def _groups(model: LinearModel, lower: Floats, upper: Floats) -> Ints:
    """Return the "at most one" row of every column, (n,), -1 for none.

    Only rows with coefficients 1 over binary columns count.
    """
    kind = model.rows_of(AT_MOST_ONE)
    kind &= (model.upper == 1.0) & ((model.lower == 1.0) | (model.lower <= 0.0))
    binary = (lower == 0.0) & (upper == 1.0)
    odd = (model.coef != 1.0) | ~binary[model.entry_column]
    kind[model.index[odd]] = False
    group = np.full(model.n, -1, dtype=np.int64)
    inside = kind[model.index]
    group[model.entry_column[inside]] = model.index[inside]
    # a column of two such rows belongs to the last one; the others stay ordinary rows
    kind[model.index[inside & (group[model.entry_column] != model.index)]] = False
    group[group >= 0] = np.where(kind[group[group >= 0]], group[group >= 0], -1)
    return group


def units(weight: Floats, group: Ints, most: Floats) -> float:
    """Return a bound on sum_c weight_c |x_c| over all feasible x.

    weight >= 0, group and most (the largest |x_c|) are (n,).
    """
    inside = group >= 0
    top = np.zeros(int(group.max(initial=-1)) + 1)
    np.maximum.at(top, group[inside], weight[inside])
    return float(top.sum() + (weight * most)[~inside].sum()) * (1.0 + 1e-12)


def _values(v: Floats, group: Ints, most: Floats) -> tuple[Ints, float, float]:
    total = units(np.abs(v), group, most)
    if total < 1e-200:
        return np.zeros(len(v), dtype=np.int64), 1.0, total
    tens = [10.0**k for k in range(7)]
    fine = 2.0 ** math.ceil(math.log2(2.0**29 * units(np.ones(len(v)), group, most) / total))
    for w in [*(t for t in tens if _are_whole(v * t).all()), fine]:
        scaled = w * v
        whole = np.rint(scaled)
        if w * total < LARGEST and (np.abs(scaled) * np.maximum(most, 1.0)).sum() < TOTAL:
            error = units(np.abs(scaled - whole) + LAST_DIGITS * np.abs(scaled), group, most) / w
            return whole.astype(np.int64), w, error
    raise NotInteger("values too far apart for whole numbers")


def _are_whole(scaled: Floats) -> Bools:
    """Return which numbers are whole up to their last digits."""
    whole: Bools = np.abs(scaled - np.rint(scaled)) <= 2.0**-50 * np.abs(scaled)
    return whole


def _row(
    column: Ints, a: Floats, low: float, high: float, lower: Floats, upper: Floats, relaxed: bool
) -> list[Row]:
    """Return the row as one integer row (exact), or one for each side that binds (fine)."""
    base = lower[column]
    span = (upper - lower)[column]
    outwards = 1.0 if relaxed else -1.0
    for s in (10.0**k for k in range(7)):
        scaled = s * a
        if _are_whole(scaled).all() and _fits(scaled, base, span, s, low, high):
            whole = np.rint(scaled)
            digits = outwards * float(
                (
                    (np.abs(scaled - whole) + LAST_DIGITS * np.abs(scaled)) * (np.abs(base) + span)
                ).sum()
            )
            return [
                Row(
                    column,
                    whole.astype(np.int64),
                    -_floor(-s * low, digits, outwards),
                    _floor(s * high, digits, outwards),
                )
            ]
    rows = []
    if high < math.inf:
        rows.append(_approximate_row(column, a, high, base, span, relaxed))
    if low > -math.inf:
        mirrored = _approximate_row(column, -a, -low, base, span, relaxed)
        rows.append(Row(column, -mirrored.coef, -mirrored.upper, FREE))
    return rows


def _fits(scaled: Floats, base: Floats, span: Floats, s: float, low: float, high: float) -> bool:
    bounds = [abs(b) * s for b in (low, high) if math.isfinite(b)]
    return (
        float((np.abs(scaled) * (np.abs(base) + span)).sum()) < LARGEST
        and max(bounds, default=0.0) < LARGEST
    )


def _approximate_row(
    column: Ints, a: Floats, b: float, base: Floats, span: Floats, relaxed: bool
) -> Row:
    size = float((np.abs(a) * (np.abs(base) + span)).sum())
    rest = b - float(a @ base)
    wanted = 2.0**34 * max(1.0, float(span.sum())) / max(1.0, abs(b))
    most = min(
        LARGEST / max(float(np.abs(a).max(initial=0.0)), abs(rest), 1e-280),
        TOTAL / max(size, 1e-280),
    )
    s = 2.0 ** math.floor(math.log2(min(2.0 * wanted, most)))
    # products with powers of two have no error
    whole = np.floor(s * a) if relaxed else np.ceil(s * a)
    outwards = 1.0 if relaxed else -1.0
    digits = (
        outwards * s * LAST_DIGITS * (len(a) * float((np.abs(a) * np.abs(base)).sum()) + abs(b))
    )
    coef = whole.astype(np.int64)
    return Row(
        column, coef, -FREE, _floor(s * rest, digits, outwards) + int(coef @ base.astype(np.int64))
    )


def _floor(b: float, slack: float, outwards: float) -> int:
    """Return floor(b + slack), with a margin for the rounding of b; FREE for infinite b."""
    if math.isinf(b):
        return FREE if b > 0 else -FREE
    return math.floor(b + slack + outwards * LAST_DIGITS * abs(b))
