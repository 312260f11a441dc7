"""A proof for every plan without a solver: prices on the coupling rows and the bound they give.

For any prices p of the right sign (>= 0 where a row has only an upper bound, <= 0 where it has only
a lower one)

    L(p) =   sum_r (p_r high_r if p_r > 0 else p_r low_r)
           + sum_j max( 0 unless must_j, max_{c of j} v_c - a_c'p )

is at least the value of every plan (weak duality: Geoffrion 1974, "Lagrangean relaxation for
integer programming"). The best such bound is that of the LP relaxation; the prices are its dual
values.

Near the prices of a similar round only few columns may be best. Prices p that differ by at most w
from known prices q change what a column c costs by at most |a_c|'w. So a column whose reduced value
at q is below another one's of its group by more than what both may change is never the best of its
group at such prices. Most groups have one column left, which counts as taken. The dual of the
others is the whole dual for all these prices, but for a constant, and takes a tenth of the time.
Where the lowest point lies at an end of this box of prices, the next box begins there and is larger
in that direction.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from formulations.bounds.smoothing import CAP, ScaledRows, Smooth, newton
from formulations.model.choices import Choices
from formulations.model.linear import Bools, Floats, Ints

SAMPLE, SAMPLE_PER_ROW = 3000, 20  # groups of the first phase where there are many more
SAMPLE_CAP = 10.0  # highest price in the sample, in mean values per mean use
FIRST = (0.06, 0.015)  # temperatures of the first phase
FIRST_TOLERANCE = 1e-4
SECOND = (0.004, 0.001, 2.5e-4, 6e-5, 1.5e-5)  # temperatures of the second phase, in boxes
WARM = 0.001  # warmest temperature if there are prices to begin from
TOLERANCE = 0.2  # share of `close` that a step or a temperature has to gain
LEAST_GAIN = 2e-6  # the search ends if a colder temperature improves the bound by less, relative
PATIENT = 20_000  # with more columns it ends the first time, else the second


@dataclass(frozen=True)
class Dual:
    """Prices and the bound that they give.

    Attributes
    ----------
    prices : (m,)
        Price of every model row, 0 on rows that couple nothing.
    bound : float
        L(prices), safe against rounding.
    reduced : (J,)
        Best v_c - a_c'p of each group, at least 0 unless the group is mandatory.
    choice : (J,)
        The column that attains it.
    values : (n,) or None
        Solution of the linear programme that the prices come from.
    """

    prices: Floats
    bound: float
    reduced: Floats
    choice: Ints
    values: Floats | None = None


def project_prices(choices: Choices, prices: Floats) -> Floats:
    """Turn model prices (m,) into prices of the coupling rows (R,) of the right sign.

    Prices that are not finite become 0.
    """
    p = prices[choices.rows]
    p = np.where(np.isfinite(p), p, 0.0)
    p = np.where(np.isfinite(choices.high), p, np.minimum(p, 0.0))
    return np.where(np.isfinite(choices.low), p, np.maximum(p, 0.0))


def spread_prices(choices: Choices, p: Floats) -> Floats:
    """Turn prices of the coupling rows (R,) into prices of all model rows (m,)."""
    prices = np.zeros(choices.model.m)
    prices[choices.rows] = p
    return prices


def bound_at(choices: Choices, prices: Floats) -> float:
    """Return L(prices) for any prices (m,), rounded up by more than its rounding errors."""
    return evaluate(choices, prices).bound


def evaluate(choices: Choices, prices: Floats) -> Dual:
    """Return L and its maximisers at any prices (m,)."""
    p = project_prices(choices, prices)
    with np.errstate(over="ignore", invalid="ignore"):
        reduced = choices.value - choices.matrix @ p if p.any() else choices.value
        best, choice = best_columns(choices, reduced)
        rent = p * np.where(p > 0, choices.high, np.where(p < 0, choices.low, 0.0))
        # Each entry passes through a product, at most d sums inside a column, and two long sums.
        # All columns are counted, not only the best ones. The margin stays below 1e-12.
        magnitude = float(np.abs(rent).sum() + np.abs(p) @ choices.total) + choices.total_value
        d = choices.most_entries if choices.n else 1
        margin = (
            4.0
            * np.finfo(float).eps
            * (d + 8 + math.log2(choices.n + choices.J + choices.R + 2))
            * magnitude
        )
        bound = float(rent.sum() + best.sum()) + margin
    return Dual(
        spread_prices(choices, p), bound if not math.isnan(bound) else math.inf, best, choice
    )


def excludes_every_plan(choices: Choices, dual: Dual) -> bool:
    """Return whether the bound lies below the value of every choice of columns.

    Then no choice keeps the rows, because otherwise its value would not exceed the bound.
    """
    least = -group_max(choices, -choices.value, -math.inf)
    least = np.where(choices.mandatory, least, np.minimum(least, 0.0))
    lowest = float(least.sum())
    return dual.bound < lowest - 1e-9 * (abs(lowest) + choices.total_value)


def group_max(choices: Choices, x: Floats, empty: float) -> Floats:
    """Return the largest entry of x (n,) in each group, (J,), `empty` where there is none."""
    top = np.full(choices.J, empty)
    if choices.n:
        top[choices.filled] = np.maximum.reduceat(x, choices.start[choices.filled])
    return top


def best_columns(choices: Choices, reduced: Floats) -> tuple[Floats, Ints]:
    """Return the best reduced value and its first column in each group, (J,) each.

    The column is -1 where the group may take nothing and no column has a positive reduced value.
    """
    best = group_max(choices, reduced, 0.0)
    at = np.flatnonzero(reduced >= np.repeat(best, np.diff(choices.start)))[::-1]
    choice = np.full(choices.J, -1)
    choice[choices.group[at]] = at  # reversed: the first column writes last
    off = ~choices.mandatory & (best <= 0)
    return np.where(off, 0.0, best), np.where(off, -1, choice)


def minimise_dual(
    choices: Choices,
    start: Floats | None = None,
    deadline: float | None = None,
    coldest: float = 0.0,
    close: float = 0.0,
) -> Dual:
    """Find prices close to the best ones, with their bound.

    The result is deterministic unless the deadline (time.monotonic) is reached.

    Parameters
    ----------
    start : (m,), optional
        Prices to begin from, for example those of a similar round.
    deadline : float, optional
        Latest end (time.monotonic).
    coldest : float
        Stop before colder temperatures.
    close : float
        Relative improvement of the bound that does not matter, where there are prices to begin
        from.

    Notes
    -----
    If no plan exists, the bound may fall without end; the search then stops somewhere, at a finite
    bound.
    """
    rows = ScaledRows.of(choices)
    until = math.inf if deadline is None else deadline
    if rows is None:
        return _best_start(choices, start)
    if start is not None and close > 0.0 and coldest == 0.0:
        near = rows.split(project_prices(choices, start))
        near, is_settled = find_nearby_prices(choices, rows, near, close, until)
        start = spread_prices(choices, rows.join(near))
        if is_settled:
            return evaluate(choices, start)
    return _minimise_everywhere(choices, rows, start, until, coldest, close)


def _minimise_everywhere(
    choices: Choices,
    rows: ScaledRows,
    start: Floats | None,
    until: float,
    coldest: float,
    close: float,
) -> Dual:
    """Find prices among all prices, from the given ones or from those of a sample."""
    best = _best_start(choices, start)
    warm = start is not None and bool(best.prices.any())
    p = rows.split(best.prices[choices.rows])
    if not warm:
        p = _find_first_prices(choices, rows, until, coldest, best.bound)
        # if time runs out now, these prices are better than none
        best = _lower(best, evaluate(choices, spread_prices(choices, rows.join(p))))
    stale = 0
    for mu in SECOND:
        if mu < coldest or time.monotonic() >= until:
            break
        if warm and mu > WARM:
            continue
        tolerance = TOLERANCE * close if warm else 0.0
        p = cool(choices, rows, p, mu, tolerance, until)
        new = evaluate(choices, spread_prices(choices, rows.join(p)))
        gain = best.bound - new.bound
        best = _lower(best, new)
        if warm and gain < 0:  # still too smooth to improve on the prices of the last round
            continue
        least = max(LEAST_GAIN, tolerance) * abs(best.bound)
        stale = stale + 1 if gain < least and mu < 0.004 else 0
        if stale >= (1 if choices.n > PATIENT else 2):
            break
    return best


def _lower(dual: Dual, other: Dual) -> Dual:
    return other if other.bound < dual.bound else dual


def _find_first_prices(
    choices: Choices, rows: ScaledRows, until: float, coldest: float, known: float
) -> Floats:
    """Return prices (R,) of the scaled rows at warm temperatures, from a sample of many groups.

    Prices of a sample that do not improve on the bound `known` are not used.
    """
    # a sample with few groups of a row says little about its price
    few = max(SAMPLE, SAMPLE_PER_ROW * choices.R)
    for size in [few, None] if len(choices.filled) > 1.5 * few else [None]:
        part = rows.smooth(choices, None if size is None else _sample(choices, size))
        p = _first_prices(part)
        for mu in FIRST if size is None else (*FIRST, SECOND[0]):
            if mu >= coldest:
                cap = CAP if size is None else SAMPLE_CAP
                p = newton(part, p, mu, FIRST_TOLERANCE, until, cap)
        if evaluate(choices, spread_prices(choices, rows.join(p))).bound < known:
            break
    return p


def _best_start(choices: Choices, start: Floats | None) -> Dual:
    """Return the dual at the prices to begin from, or without prices if they give no bound."""
    if start is not None:
        dual = evaluate(choices, start)
        if dual.bound < float(np.maximum(group_max(choices, choices.value, 0.0), 0.0).sum()):
            return dual
    return evaluate(choices, np.zeros(choices.model.m))


def sample_of_choices(choices: Choices, size: int) -> Choices:
    """Return the choices of a sample of the groups, with their share of the rows.

    Its prices are similar, and are found in a fraction of the time. Groups without columns are left
    out.
    """
    groups = _sample(choices, size) if len(choices.filled) > size else choices.filled
    columns = choices.columns_of(groups)
    share = len(groups) / max(1, len(choices.filled))
    width = np.diff(choices.start)[groups]
    return replace(
        choices,
        model=choices.model.take(columns),
        start=np.append(0, np.cumsum(width)),
        group=np.repeat(np.arange(len(groups)), width),
        mandatory=choices.mandatory[groups],
        low=choices.low * share,
        high=choices.high * share,
        matrix=choices.matrix[columns],
    )


def _sample(choices: Choices, size: int) -> Ints:
    """Draw groups among those that have columns, because the others say nothing about prices."""
    drawn = np.random.default_rng(0).choice(len(choices.filled), size, replace=False)
    return choices.filled[np.sort(drawn)]


def _first_prices(s: Smooth) -> Floats:
    """Return prices on the rows that would overflow if every group took its best column.

    They are scaled to the lowest bound.
    """
    zero = np.zeros(s.R)
    use = s.b - s.at(zero, 1e-3).g
    over: Bools = use > s.b
    total = s.exact(zero)
    direction = np.where(over & (s.b > 0), np.maximum(total, 0.0) / np.maximum(use, 1e-12), 0.0)
    if not direction.any():
        return zero
    scales = 2.0 ** np.arange(-7.0, 4.0)
    bounds = [s.exact(t * direction) for t in scales]
    return np.asarray(direction * scales[int(np.argmin(bounds))], dtype=np.float64)


BOX_REACH = 0.15  # of a price, up and down, relative
BOX_FLOOR = 0.1  # prices below this share of the mean price count as so large
BOXES = 6  # at most
BOX_SHARE = 0.25  # largest share of the columns for which a box takes less time than the whole dual
TEMPERATURES = (1e-3, 1e-4, 1e-5, 1e-6)  # those from the third on are not below `close`
# reach of a box at a temperature, in temperatures; of prices at its ends it grows by a factor
WIDTH, WIDER = 20.0, 4.0
BOXES_OF_ONE = 4  # boxes of one temperature, at most
FINE = 3e-3  # a step gains more than this share of the temperature, relative


def find_nearby_prices(
    choices: Choices, rows: ScaledRows, p: Floats, close: float, until: float
) -> tuple[Floats, bool]:
    """Return lower points of the dual near the prices p (R,), and whether none is much lower.

    Parameters
    ----------
    p : (R,)
        Prices of the scaled rows. If all of them are 0, none are near.
    close : float
        Relative improvement of the bound that does not matter.
    until : float
        Latest end (time.monotonic).
    """
    width = np.full(len(p), BOX_REACH)
    temperatures = [mu for mu in TEMPERATURES if mu >= min(close, TEMPERATURES[1])]
    for _ in range(BOXES if p.any() else 0):
        reach = width * np.maximum(p, BOX_FLOOR * p[p > 0].mean())
        smooth, taken = rows.smooth_near(choices, p, reach)
        if len(smooth.v) > BOX_SHARE * choices.n:
            break
        low = np.maximum(p - reach, 0.0)
        high = p + reach
        lowest = smooth.exact(p)
        trial = p
        for mu in temperatures:
            tolerance = max(1e-7, min(1e-4, mu * 1e-2), TOLERANCE * close)
            tolerance *= abs(lowest + taken) / max(abs(lowest), 1e-12)
            trial = newton(smooth, trial, mu, tolerance, until, cap=high, low=low)
            bound = smooth.exact(trial)
            if bound < lowest:
                lowest, p = bound, trial
        at_end = ((p <= low) & (low > 0.0)) | (p >= high)
        if not at_end.any():
            return p, True
        if time.monotonic() >= until or not p.any():
            break
        width = np.where(at_end, 2.0 * width, width)
    return p, False


def cool(
    choices: Choices, rows: ScaledRows, p: Floats, mu: float, tolerance: float, until: float
) -> Floats:
    """Return prices (R,) of the scaled rows near p, at which the dual of temperature mu is low.

    Parameters
    ----------
    tolerance : float
        Share of the dual that a step has to gain, if not less is asked at this temperature.
    until : float
        Latest end (time.monotonic).
    """
    width = np.full(len(p), WIDTH)
    for _ in range(BOXES_OF_ONE):
        reach = width * mu * (1.0 + p)
        smooth, taken = rows.smooth_near(choices, p, reach)
        if not len(smooth.v):
            break
        low, high = np.maximum(p - reach, 0.0), np.minimum(p + reach, CAP)
        value = smooth.exact(p)
        least = max(1e-7, FINE * mu, tolerance) * abs(value + taken) / max(abs(value), 1e-12)
        p = newton(smooth, p, mu, least, until, cap=high, low=low)
        at_end = ((p <= low) & (low > 0.0)) | ((p >= high) & (high < CAP))
        if not at_end.any() or time.monotonic() >= until:
            break
        width = np.where(at_end, WIDER * width, width)
    return p
