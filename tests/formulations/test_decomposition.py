"""The decomposition against HiGHS on whole models, with every kind of row, and at its edges."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from choice_models import model_of, random_model
from examples import seeds
from rounds import random_instance
from waiting import in_time

from allocator.bench.solvers.instances import EVERYTHING, PLAIN, InstanceRules, generate
from allocator.solvers import highs
from allocator.solvers.base import SolveLimits, SolverResult, Termination, WarmStart
from allocator.solvers.decomposition import solve
from allocator.solvers.decomposition.pricing import (
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


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_small_rounds_with_every_rule(seed):
    """20 jobs, three pools, four tenants, all families of rows: as HiGHS, within a gap of 0.01
    %.
    """
    checked(
        build_model(random_instance(np.random.default_rng(seed), jobs=20, pools=3, tenants=4)), 1e-4
    )


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_random_rows_of_every_sign_to_optimality(seed):
    """Ranged, equal, lower and upper rows, negative coefficients and values, must-groups: as
    HiGHS, gap 0.
    """
    checked(random_model(np.random.default_rng(seed), jobs=12, rows=4), 0.0)


@pytest.mark.parametrize("seed", seeds(1, 4))
@pytest.mark.parametrize(
    "rules", [PLAIN, EVERYTHING, InstanceRules(tenants=30, demand=1.5, budget=0.5)], ids=repr
)
def test_generated_rounds(seed, rules):
    """150 jobs on 128 GPUs as in the benchmark: as HiGHS, gap 0.05 %."""
    checked(build_model(generate((150, 128, 3), seed, rules)), 5e-4)


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


def test_column_generation_reaches_the_lp_bound():
    """Value of the core's LP and Lagrangian bound meet to 1e-6 although only a part of the
    columns is in it.
    """
    c = choices(build_model(generate((2_000, 2_048, 6), 5, PLAIN)))
    relaxation = solve_relaxation(c, minimise_dual(c), 1.0, 1e-7, 1_500)
    assert len(relaxation.core.columns) < c.n / 2
    assert relaxation.dual.bound == pytest.approx(relaxation.value, rel=1e-6)


def test_a_tight_limit_is_kept():
    """2,000 jobs, gap 0, half a second: back within a second and a half."""
    model = build_model(generate("L", 6, EVERYTHING))
    with in_time(1.0):
        answer = solved(model, 0.0, 0.5)
    assert model.feasible(answer.values)
    assert answer.termination is Termination.TIME_LIMIT or answer.bound - answer.objective <= 1e-6
