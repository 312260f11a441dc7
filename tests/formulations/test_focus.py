"""Near ties as a small model: the same rows, fewer columns."""

from __future__ import annotations

import numpy as np
from choice_models import view

from allocator.bench.solvers.instances import PLAIN, generate
from formulations.bounds.lagrangian import minimise_dual
from formulations.model.choices import choices
from formulations.model.single_round import build_model
from formulations.primal.restriction import NearTies
from formulations.primal.rounding import fill, repair


def test_only_near_ties_are_seen():
    """Price 2 per unit: group 0 ties between its columns (1 each), group 1 is sure of its column (8
    against 1), so only group 0 is free, and the row has 4 of its 6 units left for it."""
    c = view([[(3, {0: 1}), (5, {0: 2})], [(12, {0: 2}), (3, {0: 1})]], [(-np.inf, 6)])
    focus = NearTies(c, np.array([0.0, 0.0, 2.0]), 1).around(np.array([0, 2]))
    assert focus.columns.tolist() == [0, 1]
    assert focus.groups.tolist() == [0]
    assert np.isclose(focus.view.high, 4).all()
    assert focus.widen(np.array([1])).tolist() == [1, 2]
    assert focus.narrow(np.array([0, 2])).tolist() == [0]


def test_who_holds_no_near_tie_may_leave_it():
    """Group 1 holds what loses 7 at the price, or nothing: it is free to take its best again."""
    c = view([[(3, {0: 1}), (5, {0: 2})], [(12, {0: 2}), (3, {0: 1})]], [(-np.inf, 6)])
    ties = NearTies(c, np.array([0.0, 0.0, 2.0]), 1)
    held = ties.around(np.array([0, 3]))
    assert held.columns.tolist() == [0, 1, 2, 3]
    assert held.widen(held.narrow(np.array([0, 3]))).tolist() == [0, 3]
    assert ties.around(np.array([0, -1])).groups.tolist() == [0, 1]


def test_a_plan_of_the_focus_is_a_plan_of_the_whole():
    """1,000 jobs: repaired and filled among near ties, then checked on the whole."""
    c = choices(build_model(generate((1_000, 1_024, 5), 3, PLAIN)))
    dual = minimise_dual(c)
    focus = NearTies(c, dual.prices, 1_500).around(dual.choice)
    assert focus.view.n < c.n / 2
    plan = repair(focus.view, focus.narrow(dual.choice), focus.prices)
    assert plan is not None
    filled = focus.widen(fill(focus.view, plan, focus.prices))
    assert c.feasible(filled)
    assert c.value_of(filled) >= c.value_of(focus.widen(plan))
