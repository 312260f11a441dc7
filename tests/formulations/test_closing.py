"""Closing a gap by branch and bound: against exhaustive search, and by hand."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from choice_models import best_choice, drawn_model, view
from examples import examples
from hypothesis import given, strategies as st

from formulations.bounds.lagrangian import Dual, evaluate, minimise_dual
from formulations.model.choices import Choices, choices
from formulations.primal import closing
from formulations.primal.closing import close_gap, find_columns_of_better_plans
from formulations.primal.losses import Losses
from formulations.primal.rounding import round_dual

ALONE = np.array([0, -1, -1])


def knapsack() -> tuple[Choices, Dual]:
    """A pool of 10 GPUs and jobs of 6, 5 and 5: the two smaller ones are best, value 10.

    At price 1.1 the bound is 11.1, and they lose .1, .5 and .5 to nothing.
    """
    c = view([[(6.7, {0: 6})], [(5, {0: 5})], [(5, {0: 5})]], [(-np.inf, 10)])
    return c, evaluate(c, np.array([0, 0, 0, 1.1]))


def close(groups: int, columns: int, gap: float = 0.0) -> tuple[list[int], float, list[str]]:
    """Return plan, bound and steps from the plan of the job of 6 GPUs alone."""
    c, dual = knapsack()
    steps: list[str] = []
    settings = {"GROUPS": groups, "COLUMNS": columns, "LITTLE": 0, "is_ready": lambda: True}
    with mock.patch.multiple(closing, **settings):
        plan, bound = close_gap(c, dual, ALONE, gap, report=lambda name, *_: steps.append(name))
    return plan.tolist(), bound, steps


@pytest.mark.parametrize(
    ("groups", "columns", "gap", "expected"),
    [
        (3, 9, 0.0, ([-1, 1, 2], 10.0, 3)),
        # a plan within the gap needs no search, and the bound is that of the prices
        (3, 9, 0.7, ([0, -1, -1], 11.1, 0)),
        # three groups are few enough to change: the second step is not needed for a gap of 11 %
        (1, 9, 0.12, ([-1, 1, 2], 11.1, 3)),
        (1, 1, 0.0, ([-1, 1, 2], 10.0, 3)),
    ],
)
def test_steps_by_hand(groups, columns, gap, expected):
    """The two smaller jobs are found and proven, whatever the first steps may change."""
    plan, bound, steps = close(groups, columns, gap)
    assert (plan, len(steps)) == (expected[0], expected[2])
    assert bound == pytest.approx(expected[1])
    assert steps == ["change_few_groups", "use_few_columns", "prove"][: expected[2]]


def test_a_search_that_is_not_compiled_changes_nothing():
    c, dual = knapsack()
    with mock.patch.object(closing, "is_ready", lambda: False):
        plan, bound = close_gap(c, dual, ALONE, 0.0)
    assert plan is ALONE and bound == dual.bound


def test_losses_by_hand():
    """A group loses least by a change to nothing; columns of plans above 10.4 are left."""
    c, dual = knapsack()
    losses = Losses.of(c, dual)
    assert losses.column == pytest.approx([0, 0.5, 0.5]) or losses.nothing[0] == pytest.approx(0.1)
    assert losses.nearest(c, ALONE, 1).tolist() == [True, False, False]


@examples(80, 300)
@given(
    seed=st.integers(0, 10**9),
    size=st.sampled_from([0.0, 0.3, 2.0]),
    groups=st.sampled_from([1, 2, 100]),
    columns=st.sampled_from([1, 3, 500]),
    few=st.sampled_from([0, 20]),
)
def test_the_best_plan_is_never_excluded(
    seed: int, size: float, groups: int, columns: int, few: int
):
    """Rows of all kinds, any prices: the bound covers the best plan, and the gap is closed."""
    rng = np.random.default_rng(seed)
    model = drawn_model(rng)
    c = choices(model)
    dual = minimise_dual(c)
    best, plan = best_choice(c), round_dual(c, dual)
    if size:
        noise = size * rng.normal(size=model.m) * (rng.random(model.m) < 0.5)
        dual = evaluate(c, dual.prices + noise)
    if best is None or plan is None:
        return
    slack, gap = 1e-9 * (1 + abs(best)), float(rng.choice([0.0, 1e-3, 0.5]))
    settings = {"GROUPS": groups, "COLUMNS": columns, "LITTLE": few, "is_ready": lambda: True}
    with mock.patch.multiple(closing, **settings):
        closed, bound = close_gap(c, dual, plan, gap)
    assert c.feasible(closed)
    value, gap = c.value_of(closed), 0.0 if few else gap
    assert c.value_of(plan) <= value <= best + slack
    assert best - slack <= bound <= value + gap * abs(value) + 10 * slack
    columns_left = find_columns_of_better_plans(c, dual, plan)
    assert np.isin(closed[closed >= 0], columns_left).all()
