"""Rental planning: the published two-class example, optimality, tables and GPU types, and what
cannot be stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given, strategies as st

from formulations.rental import widths as f
from formulations.rental.simple_rules import (
    curve,
    equal_spend,
    equal_widths,
    plan_by_rule,
)
from formulations.rental.speed_curves import AMDAHL, POWER, TABLE, SpeedUps, speed_ups

Points = Sequence[tuple[tuple[int, float], ...]]

# budget, mu, widths, mean response time: optimal, with equal widths, with equal spending
TABLE_OF_THE_EXAMPLE = """0.85 1.51479 1.6250 1.0000 0.846154 0.897287 0.875350
1.0 0.67820 2.4286 1.4745 0.676471 0.695551 0.677778
1.5 0.22522 4.2143 4.4401 0.432203 0.432314 0.441085
2.0 0.11111 6.0 9.0 0.333333 0.337873 0.347059
2.5 0.06599 7.7857 15.1543 0.279817 0.289073 0.294409
3.0 0.04366 9.5714 22.9031 0.246269 0.259046 0.260452"""


def classes(
    speed: SpeedUps, load: Any = None, weight: Any = None, of: Any = None, price: Any = None
) -> f.JobClasses:
    """One class per curve, of load .4 with jobs of mean work 1, unless said otherwise."""
    rows = len(speed)
    many = rows if of is None else max(of) + 1
    load = np.full(many, 0.4) if load is None else np.array(load, dtype=float)
    return f.JobClasses(
        load.copy(),
        load,
        np.ones(many) if weight is None else np.array(weight, dtype=float),
        np.arange(rows) if of is None else np.array(of),
        np.ones(rows) if price is None else np.array(price, dtype=float),
        speed,
    )


def example() -> f.JobClasses:
    """Amdahl with p = .8 and sqrt(k), .4 jobs an hour each of mean size 1."""
    return classes(speed_ups([AMDAHL, POWER], [0.8, 0.5], [(), ()]))


@pytest.mark.parametrize("row", TABLE_OF_THE_EXAMPLE.splitlines())
def test_the_published_example(row: str) -> None:
    """Every figure of the table to its last digit."""
    budget, mu, amdahl, root, best, same, spend = map(float, row.split())
    made, asked = example(), np.array([budget])
    plan = f.plan(made, budget)
    equal = plan_by_rule(made, budget, equal_widths(made, asked)[0])
    others = equal, plan_by_rule(made, budget, equal_spend(made, asked)[0])
    assert [plan.mu, *plan.width] == pytest.approx([mu, amdahl, root], abs=5e-5)
    assert [p.response_h for p in (plan, *others)] == pytest.approx([best, same, spend], abs=1e-6)
    assert [p.spend for p in (plan, *others)] == pytest.approx([budget] * 3, rel=1e-9)


@st.composite
def small(draw: st.DrawFn) -> tuple[f.JobClasses, Points]:
    """Classes of few widths, on one or two GPU types; tables may have sizes that are slower than
    smaller ones.
    """
    rows = draw(st.lists(st.integers(1, 2), min_size=1, max_size=6))
    of = np.repeat(np.arange(len(rows)), rows)
    kind = [draw(st.sampled_from([AMDAHL, POWER, TABLE])) for _ in of]
    points = [
        tuple(
            (k, draw(st.floats(0.3, 6)))
            for k in draw(st.sets(st.integers(1, 8), min_size=1, max_size=3))
        )
        for _ in of
    ]
    speed = speed_ups(
        kind,
        [draw(st.floats(0.0, 1.0)) for _ in of],
        points,
        [draw(st.floats(0.5, 3)) for _ in of],
        [draw(st.integers(1, 4)) if k != TABLE else 8 for k in kind],
    )
    positive = st.floats(0.1, 4)
    return (
        classes(
            speed,
            [draw(positive) for _ in rows],
            [draw(positive) for _ in rows],
            of,
            [draw(positive) for _ in of],
        ),
        points,
    )


@examples(20, 150)
@given(small(), st.floats(1.01, 6))
def test_no_other_widths_of_the_same_money_do_better(
    case: tuple[f.JobClasses, Points], times: float
) -> None:
    """Duality: at the price mu every class has its best option (looked for on a fine grid), and
    either the budget is spent to the last unit or more is of no use. At most one class is mixed of
    two options."""
    made, _ = case
    least = f.at_price(made, np.array([2.0**600])).spend[0]
    plan = f.plan(made, times * least)
    assert plan.spend <= times * least * (1 + 1e-9)
    assert plan.mu == 0 or plan.spend == pytest.approx(times * least, rel=1e-9)
    assert len(plan.of) <= len(made) + 1 and plan.by_class(plan.share) == pytest.approx(
        np.ones(len(made))
    )
    k = np.clip(np.geomspace(1, 60, 400)[:, None], made.speed.least, made.speed.most)
    lagrangian = (
        made.load[made.of] * (made.weight[made.of] + plan.mu * made.price * k) / made.speed.speed(k)
    )
    least_of_all = np.minimum.reduceat(lagrangian.min(axis=0), made.starts).sum()
    assert plan.weighted + plan.mu * plan.spend <= least_of_all * (1 + 1e-9)


def test_a_linear_speed_up_needs_a_largest_width() -> None:
    """It costs nothing to widen: without an end its width would be infinite."""
    with pytest.raises(ValueError, match="linear without end"):
        speed_ups([POWER], [1.0], [()])
    plan = f.plan(classes(speed_ups([AMDAHL], [1.0], [()], most=[16.0])), 0.5)
    assert (plan.mu, plan.width[0], plan.spend) == pytest.approx((0.0, 16.0, 0.4))


def test_every_point_of_the_curve_is_a_plan() -> None:
    """Budgets rise, mean weighted numbers fall, and the plan of a point's budget gives the
    point."""
    made = example()
    found = curve(made, 3.0, points=20)
    assert np.all(np.diff(found.spend) > 0) and np.all(np.diff(found.mu) <= 0)
    for at in (1, len(found.spend) // 2, -2):
        plan = f.plan(made, found.spend[at])
        assert plan.gpus == pytest.approx(found.gpus[at], rel=1e-4)
        assert plan.response_h == pytest.approx(found.response_h[at], rel=1e-4)
