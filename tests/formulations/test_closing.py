"""Closing a gap by branch and bound: against exhaustive search, and by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from choice_models import best_choice, drawn_model, view
from examples import examples
from hypothesis import given, strategies as st
from rounds import random_instance

from formulations.bounds.lagrangian import Dual, evaluate, minimise_dual
from formulations.model.choices import Choices, choices
from formulations.model.single_round import build_model
from formulations.primal import closing
from formulations.primal.closing import Search, close_gap
from formulations.primal.moves import Losses
from formulations.primal.rounding import round_dual

ALONE = np.array([0, -1, -1])


def settings(**values: Any) -> Any:
    """Constants of a search that is compiled, and exact only where that is asked for."""
    return mock.patch.multiple(closing, **{"is_ready": lambda: True, "LITTLE": 0, **values})


def knapsack() -> tuple[Choices, Dual]:
    """A pool of 10 GPUs and jobs of 6, 5 and 5: the two smaller ones are best, value 10.

    At price 1.1 the bound is 11.1: 11 for the pool, and .1 for the job of 6 GPUs.
    """
    c = view([[(6.7, {0: 6})], [(5, {0: 5})], [(5, {0: 5})]], [(-np.inf, 10)])
    return c, evaluate(c, np.array([0, 0, 0, 1.1]))


@pytest.mark.parametrize(
    ("groups", "gap", "expected"),
    [
        ((), 0.0, ([-1, 1, 2], 10.0, ["all better plans"])),
        # half of all groups and more are not worth a search of their own
        (
            (2,),
            0.0,
            ([-1, 1, 2], 10.0, ["change of 2 groups", "all better plans"]),
        ),
        # a gap that is proven is not searched, one that the proof closes is the asked one
        ((1,), 0.7, ([0, -1, -1], 11.1, [])),
        (
            (1,),
            0.05,
            ([-1, 1, 2], 10.5, ["change of 1 groups", "all better plans"]),
        ),
    ],
)
def test_steps_by_hand(groups, gap, expected):
    """From the plan of the job of 6 GPUs alone: the two smaller jobs are found and proven."""
    c, dual = knapsack()
    steps: list[str] = []
    with settings(GROUPS=groups):
        plan, bound = close_gap(c, dual, ALONE, gap, report=lambda name, *_: steps.append(name))
    assert (plan.tolist(), steps) == (expected[0], expected[2])
    assert bound == pytest.approx(expected[1])


@pytest.mark.parametrize(("few", "found"), [(2, False), (3, True)])
def test_only_few_groups_are_searched_before_the_loops_are_compiled(few: int, found: bool):
    """Three groups are open."""
    c, dual = knapsack()
    with settings(LITTLE=few, is_ready=lambda: False):
        plan, bound = close_gap(c, dual, ALONE, 0.0)
    assert (plan is not ALONE, bound < dual.bound) == (found, found)


@examples(25, 300)
@given(
    seed=st.integers(0, 10**9),
    size=st.sampled_from([0.0, 0.3, 2.0]),
    groups=st.sampled_from([(), (1, 2), (100,)]),
    few=st.sampled_from([0, 20]),
    first=st.sampled_from([0.0, closing.FIRST]),
    unit=st.sampled_from([0, 1, 3]),
    kind=st.sampled_from(["rows of all kinds", "a round"]),
)
def test_the_best_plan_is_never_excluded(
    seed: int,
    size: float,
    groups: tuple[int, ...],
    few: int,
    first: float,
    unit: int,
    kind: str,
):
    """At any prices the bound covers the best plan, and the gap is closed.

    Where few groups are open, the best plan is found whatever gap is enough. The model of what can
    change has the best plan, or with few columns the given one. If all values are multiples of a
    unit, the bound is one, too.
    """
    rng = np.random.default_rng(seed)
    if kind == "a round":
        model = build_model(random_instance(rng, jobs=6, pools=2, tenants=3))
    else:
        model = drawn_model(rng)
    c = choices(replace(model, value=unit * np.rint(3 * model.value)) if unit else model)
    dual = minimise_dual(c)
    best, plan = best_choice(c), round_dual(c, dual)
    if size:
        noise = size * rng.normal(size=c.model.m) * (rng.random(c.model.m) < 0.5)
        dual = evaluate(c, dual.prices + noise)
    if best is None or plan is None:
        return
    slack, gap = 1e-8 * (1 + abs(best)), float(rng.choice([0.0, 1e-3, 0.5]))
    with settings(GROUPS=groups, LITTLE=few, FIRST=first):
        closed, bound = close_gap(c, dual, plan, gap)
    assert c.feasible(closed)
    value, gap = c.value_of(closed), 0.0 if few else gap
    assert not c.value_unit or bound == value or bound % c.value_unit == 0
    assert c.value_of(plan) <= value <= best + slack
    assert best - slack <= bound <= value + gap * abs(value) + slack
    for most, kept in ((np.inf, closed), (2, plan)):
        part, columns, is_whole = Losses.of(c, dual).restrict(c, plan, most)
        x = np.append(c.to_x(kept)[columns], 1.0)
        assert part.feasible(x)
        assert part.value @ x == pytest.approx(c.value_of(kept))
        assert is_whole or len(columns) <= most


def test_a_group_that_holds_what_no_better_plan_does_is_open():
    """Plans above 16 have the first column of the first group; the plan of value 16 has not."""
    c = view([[(10, {}), (6, {})], [(10, {}), (9, {})]], [(-np.inf, 1)])
    with settings():
        search = Search(c, evaluate(c, np.zeros(3)), np.array([1, 2]), 0.0, np.inf, 20.0)
        search.improve()
    assert (search.plan.tolist(), search.bound) == ([0, 2], 20.0)
