"""Plans from prices: repaired, filled, close to the best."""

from __future__ import annotations

import numpy as np
import pytest
from choice_models import best_choice, random_model, view
from examples import examples
from hypothesis import given, strategies as st
from rounds import random_instance

from formulations.bounds.lagrangian import evaluate, minimise_dual
from formulations.model.choices import choices
from formulations.model.single_round import build_model
from formulations.primal.rounding import fill, repair, round_dual, round_dual_otherwise


def test_repair_gives_up_the_least_value_per_gpu():
    """Pool of 4, jobs of 4 GPUs (value 3) and 2 GPUs (value 2 each): the large one goes, 3/4 <
    2/2.
    """
    c = view([[(3, {0: 4})], [(2, {0: 2})], [(2, {0: 2})]], [(-np.inf, 4)])
    assert repair(c, np.array([0, 1, 2]), np.zeros(4)).tolist() == [-1, 1, 2]


def test_repair_raises_a_guarantee():
    """At least 3 GPUs: the job that loses least by growing grows."""
    c = view([[(3, {0: 1}), (1, {0: 2})], [(3, {0: 1}), (2, {0: 2})]], [(3, np.inf)])
    assert repair(c, np.array([0, 2]), np.zeros(3)).tolist() == [0, 3]


def test_repair_needs_a_pair():
    """Exactly 3 units from columns of 2 and 3: the 2 must leave as the 3 enters, no single move
    helps.
    """
    c = view([[(5, {0: 2})], [(1, {0: 3})]], [(3, 3)])
    assert repair(c, np.array([0, -1]), np.zeros(3)).tolist() == [-1, 1]


def test_repair_starts_must_groups_and_reports_when_stuck():
    """A must-group left out is put in; two must-groups that do not fit together give None."""
    c = view([[(1, {0: 1})], [(1, {0: 1})]], [(-np.inf, 1)], mandatory={0})
    assert repair(c, np.array([-1, 1]), np.zeros(3)).tolist() == [0, -1]
    stuck = view([[(1, {0: 1})], [(1, {0: 1})]], [(-np.inf, 1)], mandatory={0, 1})
    assert repair(stuck, np.array([0, 1]), np.zeros(3)) is None
    assert repair(view([[]], [], mandatory={0}), np.array([-1]), np.zeros(1)) is None


def test_fill_uses_what_is_left():
    """Pool of 5 with 2 in use: the better of the growths that fit is taken."""
    c = view([[(3, {0: 2}), (5, {0: 4})], [(1, {0: 1})]], [(-np.inf, 5)])
    assert fill(c, np.array([0, -1]), np.zeros(3)).tolist() == [1, 2]


def test_fill_swaps():
    """A full pool: a job of value 5 enters as a job of value 3 of the same size leaves."""
    c = view([[(3, {0: 2})], [(5, {0: 2})]], [(-np.inf, 2)])
    assert fill(c, np.array([0, -1]), np.zeros(3)).tolist() == [-1, 1]


def test_fill_without_coupling_rows():
    """Nothing couples: everyone takes the best; no groups at all: the empty choice."""
    assert fill(view([[(3, {}), (5, {})]], []), np.array([0]), np.zeros(1)).tolist() == [1]
    assert fill(view([], []), np.zeros(0, dtype=int), np.zeros(0)).tolist() == []


def test_fill_never_breaks_a_rule_or_loses_value():
    """At the optimum nothing moves."""
    c = view([[(3, {0: 1}), (5, {0: 2})], [(4, {0: 2})]], [(-np.inf, 2)])
    assert fill(c, np.array([1, -1]), np.zeros(3)).tolist() == [1, -1]


def test_idle_scarce_units_go_to_a_column_that_is_no_near_tie():
    """4,000 large jobs of 2 GPUs and 2,501 small ones of 1 share 10,502 GPUs: a price of 0.5 leaves
    one GPU idle that only a third kind of job can use, whose loss of 0.2 is no near tie.
    """
    large, small, third = [(2.0, {0: 2})], [(0.5 + 1e-6, {0: 1})], [(0.3, {0: 1})]
    c = view([large] * 4_000 + [small] * 2_501 + [third], [(-np.inf, 10_502)])
    prices = np.append(np.zeros(c.J), 0.5)
    dual = evaluate(c, prices)
    assert c.use_of(dual.choice).tolist() == [10_501]
    gap = 0.25 / dual.bound  # less than the GPU that is left idle
    for plan in (round_dual_otherwise(c, dual, np.inf, gap, 0.1), round_dual(c, dual, enough=gap)):
        assert c.feasible(plan) and c.use_of(plan).tolist() == [10_502]


@examples(50, 100)
@given(seed=st.integers(0, 10**9))
def test_another_plan_keeps_all_rows(seed):
    """Plans of another try keep all rows and are no better than the best one."""
    c = choices(random_model(np.random.default_rng(seed)))
    plan, best = round_dual_otherwise(c, minimise_dual(c), np.inf, 1e-3, 0.2), best_choice(c)
    if plan is not None:
        assert c.feasible(plan)
        assert best is not None
        assert c.value_of(plan) <= best + 1e-9


@examples(50, 100)
@given(seed=st.integers(0, 10**9))
def test_rounded_plans_keep_all_rows(seed):
    """Whatever the rows: a plan that comes out is feasible and below the bound; none comes where
    none exists.
    """
    c = choices(random_model(np.random.default_rng(seed)))
    dual = minimise_dual(c)
    plan, best = round_dual(c, dual), best_choice(c)
    if plan is not None:
        assert c.feasible(plan)
        assert c.model.feasible(c.to_x(plan))
        assert best is not None
        assert c.value_of(plan) <= best + 1e-9 <= dual.bound + 2e-9
    assert best is not None or plan is None


def test_rounds_with_every_rule():
    """120 random rounds: a plan wherever one exists (374 of 374 measured on other seeds), within
    2 % on average.
    """
    lost, missed = [], 0
    for seed in range(2000, 2120):
        c = choices(
            build_model(random_instance(np.random.default_rng(seed), jobs=5, pools=2, tenants=3))
        )
        best, plan = best_choice(c), round_dual(c, minimise_dual(c))
        if best is None:
            assert plan is None
            continue
        missed += plan is None
        if plan is not None:
            lost.append((best - c.value_of(plan)) / max(best, 1e-9))
    assert len(lost) > 40
    assert missed == 0
    assert np.mean(lost) < 0.02


def test_relabelled_jobs_get_a_plan_of_the_same_value():
    """Jobs in reverse order: the same value up to a little."""
    rng = np.random.default_rng(8)
    groups = [[(float(rng.random() * k), {0: k, 1: 2 * k}) for k in (1, 2, 4)] for _ in range(60)]
    rows = [(-np.inf, 40), (-np.inf, 60)]
    a, b = (view(g, rows) for g in (groups, groups[::-1]))
    assert a.value_of(round_dual(a, minimise_dual(a))) == pytest.approx(
        b.value_of(round_dual(b, minimise_dual(b))), rel=0.01
    )


def test_same_dual_same_plan():
    """Two calls give the same plan."""
    c = choices(build_model(random_instance(np.random.default_rng(1), jobs=30, pools=2, tenants=3)))
    dual = minimise_dual(c)
    a, b = round_dual(c, dual), round_dual(c, dual)
    assert (a is None and b is None) or a.tolist() == b.tolist()
