"""The bound that keeps the rows of few groups: against exhaustive search, and by hand."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from choice_models import best_choice, drawn_model, view
from examples import examples
from hypothesis import given, strategies as st

from formulations.bounds import diagram_building, kept_rows
from formulations.bounds.blocks import bound_all_plans, evaluate_blocks
from formulations.bounds.diagram_building import Nearness, build_diagrams
from formulations.bounds.lagrangian import evaluate, minimise_dual
from formulations.model.choices import Choices, choices
from formulations.primal import block_plans
from formulations.primal.block_plans import find_block_plan, loses_in_blocks, round_blocks


def two_tenants() -> Choices:
    """Jobs of 4 and 3 GPUs of a tenant with a quota of 5, and of 2 and 2 with a quota of 3."""
    return view(
        [[(4, {0: 4})], [(3, {0: 3})], [(2, {1: 2})], [(2, {1: 2})], *[[(1, {2: 1})]] * 4],
        [(-np.inf, 5), (-np.inf, 3), (-np.inf, 3)],
    )


@examples(20, 1_000)
@given(
    seed=st.integers(0, 10**9),
    size=st.sampled_from([0.0, 0.3, 2.0]),
    narrow=st.sampled_from([0.34, 1.0]),
    states=st.sampled_from([3, 300]),
    far=st.sampled_from([0.0, 0.1, 1.0, math.inf]),
    wider=st.sampled_from([0, 1, 8]),
)
def test_never_below_the_optimum(
    seed: int, size: float, narrow: float, states: int, far: float, wider: int
):
    """Rows of all kinds, any prices: the bound covers the best plan.

    With `narrow` of 1 all rows may be kept. Choices that lose more than `far` may be left out, and
    with 3 `states` many more. Blocks without a path are built again up to `wider` times, and then
    their rows are priced.
    """
    rng = np.random.default_rng(seed)
    model = drawn_model(rng)
    c = choices(model)
    best = best_choice(c)
    if best is None:
        return
    dual = minimise_dual(c)
    if size:
        noise = size * rng.normal(size=model.m) * (rng.random(model.m) < 0.5)
        dual = evaluate(c, dual.prices + noise)
    # a plan with at most this value need not be covered
    enough = best - rng.choice([0.0, 0.1, 1.0]) if rng.random() < 0.5 else -math.inf
    near = Nearness(dual.prices, far, max(0.0, dual.bound - enough))
    with (
        mock.patch.multiple(kept_rows, NARROW=narrow),
        mock.patch.multiple(diagram_building, STATES=states, WIDENINGS=wider),
    ):
        diagrams = build_diagrams(c, near)
    if diagrams is None:
        return
    slack = 1e-9 * (1 + abs(best))
    if not diagrams.has_path.all():
        excludes = (diagrams.left_out[~diagrams.has_path] == -np.inf).any()
        assert not excludes or best <= enough + slack
        return
    first = evaluate_blocks(c, diagrams, dual.prices)
    bound = bound_all_plans(diagrams, first)
    assert best - slack <= max(bound, enough) <= max(dual.bound, enough) + slack
    plan = find_block_plan(c, diagrams, first.prices, first.bound)
    assert plan is None or c.feasible(plan)


def test_a_first_plan_of_tenants_by_hand():
    """The quota of 5 holds a job of 4 GPUs, that of 3 one of 2, and the wide row three jobs of 1.

    At a price of 1 for a unit of each row the bound is 11. Two units cannot be used, so no plan
    has more than 9, and the plan of tenants has that.
    """
    c = two_tenants()
    dual = evaluate(c, np.ones(c.model.m))
    assert dual.bound == pytest.approx(11)
    plan, bound = round_blocks(c, dual, 0.0)
    assert bound == pytest.approx(9)
    assert plan is not None and c.feasible(plan) and c.value_of(plan) == pytest.approx(9)
    assert not loses_in_blocks(c, dual, 0.01)  # few groups
    with mock.patch.multiple(block_plans, FEW=7):
        assert loses_in_blocks(c, dual, 0.01)
        assert not loses_in_blocks(c, dual, 0.1)
        assert not loses_in_blocks(c, evaluate(c, np.zeros(c.model.m)), 0.0)


@examples(20, 1_000)
@given(
    seed=st.integers(0, 10**9),
    size=st.sampled_from([0.0, 0.3, 3.0]),
    narrow=st.sampled_from([kept_rows.NARROW, 1.0]),
    states=st.sampled_from([2, 300]),
    window=st.sampled_from([0.0, 0.1, 1.0, math.inf]),
)
def test_a_first_plan_keeps_all_rows_and_its_bound_covers_every_plan(
    seed: int, size: float, narrow: float, states: int, window: float
):
    """Rows of all kinds, good prices and bad ones, windows from none to all choices."""
    rng = np.random.default_rng(seed)
    model = drawn_model(rng)
    c = choices(model)
    best = best_choice(c)
    dual = evaluate(c, minimise_dual(c).prices + size * rng.normal(size=model.m))
    with (
        mock.patch.multiple(kept_rows, NARROW=narrow),
        mock.patch.multiple(diagram_building, STATES=states),
        mock.patch.multiple(block_plans, WINDOW=window),
    ):
        plan, bound = round_blocks(c, dual, float(rng.choice([0.0, 0.01, 0.3])))
    if best is not None:
        assert best - 1e-9 * (1 + abs(best)) <= bound <= dual.bound
    assert plan is None or c.feasible(plan)
    assert plan is None or best is not None
