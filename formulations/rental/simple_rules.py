"""The effect of a rental budget by simpler rules, and the curve of budget against response time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from formulations.model.linear import Floats
from formulations.rental.speed_curves import HALVINGS, halve
from formulations.rental.widths import (
    MOST_EXPONENT,
    BudgetCurve,
    JobClasses,
    RentalPlan,
    at_price,
    plan,
    plan_fixed_widths,
    widths,
)

REACH = 4.0  # end of a curve, in multiples of the given budget
TINY = 1e-9  # a curve starts at this spending above the least, relative


def equal_widths(classes: JobClasses, budget: Floats) -> Floats:
    """Return widths (N, M) with the same width for all classes, as far as their limits allow.

    budget (N,) is in units per hour and above the cost of the narrowest widths. Every class uses
    its cheapest row.
    """
    c = classes.cheapest

    def widths_of(exponent: Floats) -> Floats:
        return np.clip(2.0 ** exponent[:, None], c.speed.least, c.speed.most)

    low, _ = halve(
        np.zeros(len(budget)),
        np.full(len(budget), 1000.0),
        lambda x: _spending(c, widths_of(x)).sum(axis=1) > budget,
    )
    return widths_of(low)


def _spending(c: JobClasses, width: Floats) -> Floats:
    """Return the spending of classes of one row each, (..., M)."""
    return c.load * c.price * width / c.speed.speed(width)


def equal_spend(classes: JobClasses, budget: Floats) -> Floats:
    """Return widths (N, M) with the same spending on every class, as far as widths allow.

    budget (N,) is that of `equal_widths`. A class whose narrowest width costs more than its part
    gets that width. A class that cannot use its part gets its widest. The others share the rest
    equally.
    """
    c = classes.cheapest
    with np.errstate(over="ignore"):
        most = np.where(np.isinf(c.speed.most), 2.0**1000, c.speed.most)
        floor, ceiling = (_spending(c, k) for k in (c.speed.least, most))
    low, _ = halve(
        np.zeros(len(budget)),
        budget,
        lambda part: np.clip(part[:, None], floor, ceiling).sum(axis=1) > budget,
        2 * HALVINGS,
    )
    part = np.clip(low[:, None], floor, ceiling)
    return c.speed.width_of_cost(part / (c.load * c.price))


def curve(classes: JobClasses, budget: float, points: int = 100) -> BudgetCurve:
    """Return budget against response time, from the least budget to REACH times `budget`.

    It ends earlier where more money buys nothing. `points` is the number of prices, in equal
    ratios; every step of a table has additional points. Raises BudgetTooSmall.
    """
    far = plan(classes, REACH * budget)
    dear = MOST_EXPONENT
    cheap = np.log2(far.mu) if far.mu > 0 else -MOST_EXPONENT
    least, most = (float(at_price(classes, np.array([2.0**e])).spend[0]) for e in (dear, cheap))
    if not most > least:
        return at_price(classes, np.array([1.0]))
    first = _exponent(classes, least + TINY * (most - least), cheap, dear)
    last = _exponent(classes, most - TINY * (most - least), cheap, dear)
    steps = np.log2(np.unique(_steps(classes)))
    steps = steps[(steps > last) & (steps < first)]
    exponents = np.concatenate(
        [np.linspace(first, last, points), steps, np.nextafter(steps, -np.inf) - TINY]
    )
    best = at_price(classes, 2.0 ** np.append(dear, np.sort(exponents)[::-1]))
    new = np.append(True, np.diff(best.spend) > TINY * most)
    # the price at the least budget is the value of the first additional dollar
    mu = np.append(best.mu[1:2], best.mu[1:])
    return replace(best, mu=mu).take(np.flatnonzero(new))


def _steps(classes: JobClasses) -> Floats:
    """Return the prices mu at which a table's next size becomes better."""
    price = (classes.price / classes.weight[classes.of])[:, None]
    mu = classes.speed.step / price
    return mu[mu > 0]


def _exponent(classes: JobClasses, spend: float, low: float, high: float) -> float:
    """Return the largest exponent e, to a millionth, for which price 2^e spends >= `spend`."""
    while high - low > 1e-6 * max(1.0, abs(low)):
        middle = (low + high) / 2
        if at_price(classes, np.array([2.0**middle])).spend[0] >= spend:
            low = middle
        else:
            high = middle
    return float(low)


def response_h(classes: JobClasses, width: Floats) -> Floats:
    """Return the mean response time, hours, (...), of widths (..., M) on the cheapest rows."""
    c = classes.cheapest
    return np.asarray((c.load / c.speed.speed(width)).sum(axis=-1) / c.arrivals.sum(), np.float64)


def plan_by_rule(classes: JobClasses, budget: float, width: Floats) -> RentalPlan:
    """Return the plan of widths (M,) on the cheapest row of every class; its mu has no meaning."""
    row, _ = widths(classes, 2.0**MOST_EXPONENT)
    return plan_fixed_widths(classes, budget, 0.0, row, width)
