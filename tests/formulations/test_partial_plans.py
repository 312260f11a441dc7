"""Plans above a value: against exhaustive search, and by hand."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from choice_models import best_choice, drawn_model, view
from examples import examples
from hypothesis import given, strategies as st

from formulations.bounds.lagrangian import Dual, evaluate, minimise_dual
from formulations.model.choices import Choices, choices
from formulations.primal import partial_plans
from formulations.primal.closing import close_gap
from formulations.primal.partial_plans import Losses, find_better_plan, improve_near_ties
from formulations.primal.rounding import round_dual


def knapsack() -> tuple[Choices, Dual]:
    """A pool of 10 GPUs and jobs of 6, 5 and 5: the two smaller ones are best, value 10.

    At price 1.1 the bound is 11.1.
    """
    c = view([[(6.7, {0: 6})], [(5, {0: 5})], [(5, {0: 5})]], [(-np.inf, 10)])
    return c, evaluate(c, np.array([0, 0, 0, 1.1]))


def test_a_better_plan_is_found_and_proven():
    """From the plan of the job of 6 GPUs alone; there is no plan above the best one."""
    c, dual = knapsack()
    assert dual.bound == pytest.approx(11.1)
    found = find_better_plan(c, Losses.of(c, dual), 6.7, 100)
    assert found.plan.tolist() == [-1, 1, 2]
    assert found.bound == pytest.approx(10)
    assert find_better_plan(c, Losses.of(c, dual), 10.0, 100).plan is None
    assert find_better_plan(c, Losses.of(c, dual), 10.0, 100).bound <= 10 + 1e-9
    for groups, improved in ((3, [-1, 1, 2]), (1, [0, -1, -1])):
        near = improve_near_ties(c, Losses.of(c, dual), np.array([0, -1, -1]), groups, 100)
        assert near.tolist() == improved
    plan, bound = close_gap(c, dual, np.array([0, -1, -1]), 0.0)
    assert plan.tolist() == [-1, 1, 2]
    assert bound == pytest.approx(10)


@examples(80, 300)
@given(
    seed=st.integers(0, 10**9),
    size=st.sampled_from([0.0, 0.3, 2.0]),
    width=st.sampled_from([1, 2, 5, 1000]),
    few=st.sampled_from([0, 100]),
)
def test_the_best_plan_is_never_excluded(seed: int, size: float, width: int, few: int):
    """Rows of all kinds, any prices, any width: the bound covers the best plan.

    With enough width the best plan is found. With `few` of 0 rows are counted exactly.
    """
    with mock.patch.object(partial_plans, "FEW", few):
        _check_searches(seed, size, width)


def _check_searches(seed: int, size: float, width: int) -> None:
    rng = np.random.default_rng(seed)
    model = drawn_model(rng)
    c = choices(model)
    dual = minimise_dual(c)
    if size:
        noise = size * rng.normal(size=model.m) * (rng.random(model.m) < 0.5)
        dual = evaluate(c, dual.prices + noise)
    best, plan = best_choice(c), round_dual(c, minimise_dual(c))
    if best is None or plan is None:
        return
    value, slack = c.value_of(plan), 1e-9 * (1 + abs(best))
    asked = value + float(rng.choice([-1.0, 0.0, 0.5])) * abs(best - value)
    found = find_better_plan(c, Losses.of(c, dual), asked, width)
    assert max(found.bound, asked) >= best - slack
    if width == 1000 and best > asked + slack:
        assert c.value_of(found.plan) == pytest.approx(best, abs=slack)
    if found.plan is not None:
        assert c.feasible(found.plan)
        assert c.value_of(found.plan) > asked
    near = improve_near_ties(c, Losses.of(c, dual), plan, 3, width)
    assert c.feasible(near)
    assert value <= c.value_of(near) <= best + slack
    # so few groups are decided exactly whatever gap is enough
    closed, bound = close_gap(c, dual, plan, float(rng.choice([0.0, 1e-3, 0.5])))
    assert c.feasible(closed)
    assert c.value_of(closed) == pytest.approx(best, abs=slack)
    assert best - slack <= bound <= best + 10 * slack
