"""The search of paths that counts priced rows: against exhaustive search, and by hand."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from choice_models import best_choice, drawn_model, view
from examples import examples
from hypothesis import example, given, strategies as st

from formulations.bounds import kept_rows
from formulations.bounds.blocks import bound_all_plans, evaluate_blocks
from formulations.bounds.diagram_building import Nearness, build_diagrams
from formulations.bounds.diagrams import Diagrams
from formulations.bounds.lagrangian import evaluate, minimise_dual
from formulations.model.choices import Choices, choices
from formulations.primal import path_search
from formulations.primal.path_search import find_path_plan

ENOUGH = 10_000  # states


def three_jobs() -> Choices:
    """Jobs of 3, 3 and 2 GPUs on 5 GPUs; the values are 3, 3 and 1.8."""
    return view([[(3.0, {0: 3})], [(3.0, {0: 3})], [(1.8, {0: 2})]], [(-np.inf, 5)])


def test_the_limit_of_time():
    """Nothing is proven after it."""
    c = three_jobs()
    diagrams = Diagrams.without_rows(c)
    near = evaluate_blocks(c, diagrams, np.append(np.zeros(c.J), 1.0))
    assert find_path_plan(c, diagrams, near, 4.0, ENOUGH, -math.inf).bound == math.inf


@examples(50, 2_000)
@given(
    seed=st.integers(0, 10**9),
    size=st.sampled_from([0.0, 0.3, 2.0]),
    width=st.sampled_from([1, 5, ENOUGH]),
    cells=st.sampled_from([0, 6_000_000]),
    far=st.sampled_from([0.1, math.inf, math.inf]),
    keeps=st.sampled_from([True, True, False]),
)
# the other bound of a row with a price had a price too
@example(seed=255890, size=0.0, width=1, cells=6_000_000, far=math.inf, keeps=True)
@example(seed=255890, size=0.0, width=1, cells=6_000_000, far=math.inf, keeps=False)
def test_no_better_plan_is_excluded(
    seed: int, size: float, width: int, cells: int, far: float, keeps: bool
):
    """Rows of all kinds, any prices, with and without kept rows: the bound covers the best plan.

    With `cells` of 0 there are no tables. With enough width the best plan is found.
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
    with (
        mock.patch.multiple(path_search, CELLS=cells),
        mock.patch.multiple(kept_rows, NARROW=1.0),
    ):
        value = best + float(rng.choice([-1.0, -0.1, 0.0, 0.1])) * (1 + abs(best))
        diagrams, reserve = Diagrams.without_rows(c), -math.inf
        if keeps:
            near = Nearness(dual.prices, far, max(0.0, dual.bound - value))
            wanted = rng.random(c.R) < rng.choice([0.5, 1.0])
            diagrams = build_diagrams(c, near, wanted) or diagrams
            if not diagrams.has_path.all():
                return
        first = evaluate_blocks(c, diagrams, dual.prices)
        if diagrams.kept.any():
            reserve = bound_all_plans(diagrams, first)[1]
        found = find_path_plan(c, diagrams, first, value, width)
    slack = 1e-9 * (1 + abs(best))
    assert max(found.bound, value, reserve) >= best - slack
    assert found.plan is None or c.feasible(found.plan)
    has_units = (model.coef >= 0).all()  # a row with negative uses is not counted
    if has_units and width == ENOUGH and best > max(value, reserve) + slack:
        assert c.value_of(found.plan) == pytest.approx(best, abs=slack)
        assert found.bound <= best + slack
