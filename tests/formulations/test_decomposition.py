"""The decomposition against HiGHS on whole models, with every kind of row, and at its edges."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from choice_models import model_of, random_model, view
from examples import seeds
from rounds import random_instance
from waiting import in_time

from allocator.bench.solvers.instances import EVERYTHING, PLAIN, InstanceRules, generate
from allocator.solvers import highs
from allocator.solvers.base import SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.decomposition import solve
from allocator.solvers.decomposition.branch import find_surviving_columns
from allocator.solvers.decomposition.pricing import (
    losses,
    select_doubtful_columns,
    solve_relaxation,
)
from formulations.bounds.lagrangian import bound_at, minimise_dual
from formulations.model.choices import choices
from formulations.model.linear import LinearModel
from formulations.model.single_round import build_model


def solved(
    model: LinearModel, gap: float = 1e-4, time_s: float = math.inf, hint: WarmStart | None = None
) -> SolverResult:
    return solve.solve(
        model, SolveLimits(time_s=time_s, gap=gap), hint or WarmStart(), lambda values, bound: None
    )


def checked(model: LinearModel, gap: float) -> None:
    """The answer keeps the rows, its bound covers HiGHS's optimum, and its value lies within the
    gap it claims.
    """
    exact = highs.solve(model, SolveLimits(gap=0.0), WarmStart(), lambda values, bound: None)
    answer = solved(model, gap)
    if exact.termination is Termination.INFEASIBLE:
        assert answer.termination is Termination.INFEASIBLE
        return
    near = 1e-7 * max(1.0, abs(exact.objective))
    assert answer.values is not None
    assert model.feasible(answer.values)
    assert answer.objective == pytest.approx(float(model.value @ answer.values))
    assert answer.bound >= exact.objective - near
    assert answer.objective <= exact.objective + near
    assert answer.termination is Termination.GAP
    assert answer.bound - answer.objective <= gap * max(abs(answer.objective), 1e-9) + near
    assert answer.prices is not None
    assert bound_at(choices(model), answer.prices) >= exact.objective - near


@pytest.mark.parametrize("seed", range(60))
def test_small_rounds_with_every_rule(seed):
    """20 jobs, three pools, four tenants, all families of rows: as HiGHS, within a gap of 0.01
    %.
    """
    checked(
        build_model(random_instance(np.random.default_rng(seed), jobs=20, pools=3, tenants=4)), 1e-4
    )


@pytest.mark.parametrize("seed", range(60))
def test_random_rows_of_every_sign_to_optimality(seed):
    """Ranged, equal, lower and upper rows, negative coefficients and values, must-groups: as
    HiGHS, gap 0.
    """
    checked(random_model(np.random.default_rng(seed), jobs=12, rows=4), 0.0)


@pytest.mark.parametrize("seed", seeds(2, 4))
@pytest.mark.parametrize(
    "rules", [PLAIN, EVERYTHING, InstanceRules(tenants=30, demand=1.5, budget=0.5)], ids=repr
)
def test_generated_rounds(seed, rules):
    """150 jobs on 128 GPUs as in the benchmark: as HiGHS, gap 0.05 %."""
    checked(build_model(generate((150, 128, 3), seed, rules)), 5e-4)


def test_equal_values():
    """60 equal jobs for 40 GPUs: 40 run, proven."""
    answer = solved(model_of([[(1, {0: 1})]] * 60, [(-np.inf, 40)]), 0.0)
    assert (answer.objective, answer.termination) == (40, Termination.GAP)
    assert answer.bound == pytest.approx(40)


def test_sizes_that_do_not_divide():
    """Jobs of 6 and 10 GPUs on 31: the gap left by the prices is closed by the pool's own
    knapsack.
    """
    groups = [[(6 + j / 100, {0: 6}), (10 - j / 100, {0: 10})] for j in range(9)]
    answer = solved(model_of(groups, [(-np.inf, 31)]), 0.0)
    assert answer.termination is Termination.GAP
    assert "knapsack" in answer.detail


def test_what_prices_and_knapsacks_leave_is_closed_by_the_search():
    """150 jobs to optimality: HiGHS proves it on the columns that are left, and detail says so."""
    answer = solved(build_model(generate((150, 128, 3), 0, PLAIN)), 0.0)
    assert answer.termination is Termination.GAP
    assert "HiGHS" in answer.detail


def test_other_models_go_to_highs():
    """A continuous column: solved as one model, and the detail says why."""
    base = model_of([[(1, {0: 1})], [(1, {0: 1})]], [(-np.inf, 1.5)])
    answer = solved(dataclasses.replace(base, integer=np.array([True, False])))
    assert answer.objective == pytest.approx(1.5)
    assert "continuous" in answer.detail


def test_infeasible_is_said():
    """Two jobs that must run and do not fit."""
    assert (
        solved(model_of([[(1, {0: 1})]] * 2, [(-np.inf, 1)], {0, 1})).termination
        is Termination.INFEASIBLE
    )


def test_nothing_to_decide():
    """No options at all: the empty plan, of value 0."""
    answer = solved(model_of([[], []], [(-np.inf, 3)]))
    assert (answer.objective, answer.termination) == (0, Termination.GAP)


def test_the_same_answer_twice():
    """Values, bound and prices are the same bits."""
    model = build_model(generate((300, 256, 4), 1, EVERYTHING))
    a, b = solved(model), solved(model)
    assert a.values.tobytes() == b.values.tobytes()
    assert a.prices.tobytes() == b.prices.tobytes()
    assert (a.bound, a.detail) == (b.bound, b.detail)


def test_no_time_at_all():
    """A limit of a hundredth of a second: still a plan that keeps the rows and a true bound."""
    model = build_model(generate((1_000, 1_024, 5), 2, EVERYTHING))
    full = solved(model, 1e-3)
    short = solved(model, 0.0, 0.01)
    assert model.feasible(short.values)
    assert short.termination is Termination.TIME_LIMIT
    assert short.bound >= full.objective


def test_reports_only_true_things():
    """Every reported plan keeps the rows and gets better; every reported bound covers the final
    value.
    """
    model, heard = build_model(generate((400, 400, 4), 3, EVERYTHING)), []
    answer = solve.solve(
        model, SolveLimits(gap=1e-4), WarmStart(), lambda v, b: heard.append((v, b))
    )
    plans = [v for v, _ in heard if v is not None]
    assert plans
    assert all(model.feasible(v) for v in plans)
    values = [float(model.value @ v) for v in plans]
    assert values == sorted(values)
    assert min(b for _, b in heard) >= answer.objective * (1 - 1e-12)


def test_hints_good_and_bad():
    """A feasible hint is kept if nothing better comes; garbage is ignored."""
    model = build_model(generate((200, 128, 3), 4, PLAIN))
    best = solved(model, 1e-5)
    again = solved(model, 1e-3, hint=WarmStart(best.values, best.prices))
    assert again.objective >= best.objective
    for bad in (
        WarmStart(np.full(model.n, np.nan), np.full(model.m, np.inf)),
        WarmStart(np.ones(model.n), np.ones(2)),
        WarmStart(np.ones(3), None),
    ):
        assert solved(model, 1e-3, hint=bad).termination is Termination.GAP


def test_column_generation_reaches_the_lp_bound():
    """Value of the core's LP and Lagrangian bound meet to 1e-6 although only a part of the
    columns is in it.
    """
    c = choices(build_model(generate((2_000, 2_048, 6), 5, PLAIN)))
    relaxation = solve_relaxation(c, minimise_dual(c), 1.0, 1e-7, 1_500)
    assert len(relaxation.core.columns) < c.n / 2
    assert relaxation.dual.bound == pytest.approx(relaxation.value, rel=1e-6)


def test_reduced_cost_test_keeps_what_may_be_better():
    """One pool of 2: at the best price 2 and with the optimum in hand only ties remain, with a
    worse plan all do.
    """
    c = view([[(3, {0: 1}), (5, {0: 2})], [(4, {0: 2})]], [(-np.inf, 2)])
    dual = minimise_dual(c)
    assert find_surviving_columns(c, dual, None).columns.tolist() == [0, 1, 2]
    assert find_surviving_columns(c, dual, np.array([-1, -1])).columns.tolist() == [0, 1, 2]
    assert losses(c, dual).min() == 0
    columns, free = select_doubtful_columns(c, dual, losses(c, dual), 1)
    assert free.any()
    assert len(columns) >= 1


def test_a_tight_limit_is_kept():
    """2,000 jobs, gap 0, half a second: back within a second and a half."""
    model = build_model(generate("L", 6, EVERYTHING))
    with in_time(1.0):
        answer = solved(model, 0.0, 0.5)
    assert model.feasible(answer.values)
    assert answer.termination is Termination.TIME_LIMIT or answer.bound - answer.objective <= 1e-6
