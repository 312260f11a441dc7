"""What every solver must do: one suite for all back ends, each in its worker; by hand, by
enumeration and by DP.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from models import INF, dense, one_resource
from rounds import best, random_instance

from allocator.bench.solvers.instances import generate
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits, Solver, SolverResult, Termination, WarmStart
from allocator.solvers.isolation.isolated import Isolated
from allocator.solvers.pulp_reference import read_log
from formulations.bounds.lagrangian import minimise_dual
from formulations.model.choices import choices
from formulations.model.linear import LinearModel
from formulations.model.single_round import build_model
from formulations.primal.rounding import round_dual

EXACT = SolveLimits(gap=0.0)
REL = 1e-6


@pytest.fixture(params=list(registry.SOLVERS))
def solver(request: pytest.FixtureRequest) -> Solver:
    """Each registered solver."""
    return registry.get(request.param)


def optimal(answer: SolverResult, model: LinearModel, value: float) -> bool:
    """A feasible plan of that value with a true bound, and the claim that it is optimal."""
    tolerance = REL * max(1.0, abs(value))
    return (
        answer.termination is Termination.GAP
        and answer.values is not None
        and model.feasible(answer.values)
        and abs(answer.objective - value) <= tolerance
        and abs(answer.objective - model.value @ answer.values) <= 1e-9
        and value - 1e-9 * max(1.0, abs(value)) <= answer.bound <= value + tolerance
    )


def test_knapsack_by_hand(solver: Solver) -> None:
    """Capacity 10; (value, size) = (6, 5), (5, 4), (5, 4), (1, 1): the two of 4 and the one of 1
    make 11 with 9 used; 5 + 4 + 1 = 10 makes 12."""
    model = dense([6, 5, 5, 1], [(-INF, [5, 4, 4, 1], 10)])
    assert optimal(solver.solve(model, EXACT), model, 12.0)


def test_choices_by_hand(solver: Solver) -> None:
    """Two jobs of 1 or 2 GPUs on 3: job a has value 1 or 1.5, job b 1 or 1.8: a takes 1 and b
    takes 2.
    """
    model = dense(
        [1, 1.5, 1, 1.8],
        [(-INF, [1, 1, 0, 0], 1), (-INF, [0, 0, 1, 1], 1), (-INF, [1, 2, 1, 2], 3)],
        choices=2,
    )
    answer = solver.solve(model, EXACT)
    assert optimal(answer, model, 2.8)
    assert answer.values is not None and answer.values.tolist() == [1, 0, 0, 1]


def test_equations_lower_bounds_and_negative_values(solver: Solver) -> None:
    """Exactly one of a (-1) and b (-2), and at least 3 GPUs of b's 3 and c's 2 (c has value -5):
    b alone, -2.
    """
    model = dense([-1, -2, -5], [(1, [1, 1, 0], 1), (3, [0, 3, 2], INF)], choices=1)
    assert optimal(solver.solve(model, EXACT), model, -2.0)


def test_both_sides_of_a_row(solver: Solver) -> None:
    """2 <= a + 2b + 4c <= 5 with values -1, -1, 3: c alone is 4 GPUs and of value 3."""
    model = dense([-1, -1, 3], [(2, [1, 2, 4], 5)])
    assert optimal(solver.solve(model, EXACT), model, 3.0)


def test_whole_numbers_beyond_one(solver: Solver) -> None:
    """Columns from -2 to 3: maximise 2a - b with a + b >= -1 and 2a <= 5: a = 2, b = -2 breaks
    nothing, of value 6.
    """
    model = dense([2, -1], [(-1, [1, 1], INF), (-INF, [2, 0], 5)], box=(-2.0, 3.0))
    assert optimal(solver.solve(model, EXACT), model, 6.0)


def test_infeasible(solver: Solver) -> None:
    """Two of three binaries with space for one: proven infeasible, no values."""
    model = dense([1, 1, 1], [(2, [1, 1, 1], INF), (-INF, [1, 1, 1], 1)])
    answer = solver.solve(model, EXACT)
    assert (answer.termination, answer.values) == (Termination.INFEASIBLE, None)


def test_a_row_without_columns_can_be_infeasible(solver: Solver) -> None:
    """0 >= 1 is infeasible, whatever the columns do."""
    assert solver.solve(dense([1.0], [(1, [0], INF)]), EXACT).termination is Termination.INFEASIBLE


@pytest.mark.parametrize("n", [0, 2])
def test_nothing_to_decide(solver: Solver, n: int) -> None:
    """No columns and no rows has value 0; columns without rows take all they can: 2 of value 1."""
    model = dense([1.0] * n)
    assert optimal(solver.solve(model, EXACT), model, float(n))


def test_no_value_at_all(solver: Solver) -> None:
    """All values 0: any feasible plan, of value 0 and known to be."""
    model = dense([0.0, 0.0], [(1, [1, 1], 1)])
    assert optimal(solver.solve(model, EXACT), model, 0.0)


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1e9])
def test_the_unit_of_value_does_not_matter(solver: Solver, unit: float) -> None:
    """The knapsack above in other units: the same plan, whatever the size of the numbers."""
    answer = solver.solve(
        dense([6 * unit, 5 * unit, 5 * unit, unit], [(-INF, [5, 4, 4, 1], 10)]), EXACT
    )
    assert answer.termination is Termination.GAP
    assert answer.objective == pytest.approx(12 * unit, rel=REL)
    assert answer.bound == pytest.approx(12 * unit, rel=REL)


def test_a_budget_may_be_spent_to_the_last_cent(solver: Solver) -> None:
    """0.1 + 0.2 dollars fit 0.3, though their sum in float64 is larger."""
    model = dense([1, 1], [(-INF, [0.1, 0.2], 0.3)])
    assert optimal(solver.solve(model, EXACT), model, 2.0)


@pytest.mark.parametrize(("over", "value"), [(5e-7, 1.0), (1e-10, 2.0)])
def test_a_budget_is_broken_by_nobody(solver: Solver, over: float, value: float) -> None:
    """Two jobs that cost 5e-7 more than the budget of 12345.67 are refused; one part in 10^10 is
    rounding.
    """
    model = dense([1, 1], [(-INF, [2345.67 * (1 + over), 10000.0 * (1 + over)], 12345.67)])
    assert optimal(solver.solve(model, EXACT), model, value)


@cache
def enumerated() -> tuple[tuple[LinearModel, float | None], ...]:
    """120 random rounds with every kind of row, and their optima by trying all plans; None:
    infeasible.
    """
    rounds = [random_instance(np.random.default_rng(seed), jobs=3) for seed in range(120)]
    return tuple((model, best(model, r.start)) for r in rounds for model in [build_model(r)])


def test_random_rounds_equal_exhaustive_search(solver: Solver) -> None:
    """Gap 0 is the optimum to 1e-6, and infeasible is infeasible, on 120 rounds."""
    for k, (model, value) in enumerate(enumerated()):
        answer = solver.solve(model, EXACT)
        if value is None:
            assert answer.termination is Termination.INFEASIBLE, k
        else:
            assert optimal(answer, model, value), (k, answer, value)


def test_one_resource_equals_dynamic_programming(solver: Solver) -> None:
    """Gap 0 is the optimum of the exact dynamic programme, on 100 multiple-choice knapsacks of 8
    jobs.
    """
    for seed in range(100):
        model, value = one_resource(np.random.default_rng(seed))
        answer = solver.solve(model, EXACT)
        assert optimal(answer, model, value), (seed, answer, value)


def large(seed: int = 0, jobs: int = 60) -> LinearModel:
    """A knapsack of 300 columns with prices of odd digits, too hard to be closed at once."""
    rng = np.random.default_rng(seed)
    model, _ = one_resource(rng, jobs)
    cost = rng.uniform(1.0, 9.0, model.n)
    choice = np.repeat(np.eye(jobs), 5, axis=1)
    rows = [(-INF, c, 1.0) for c in choice]
    gpus = model.coef[model.index == jobs]
    rows += [(-INF, gpus, float(model.upper[-1])), (-INF, cost, float(cost.sum() / 12))]
    return dense(rng.uniform(1.0, 3.0, model.n) * gpus**0.8, rows, choices=jobs)


@pytest.mark.parametrize("gap", [0.3, 0.01])
def test_the_gap_that_was_asked_for_is_proven(solver: Solver, gap: float) -> None:
    """With termination "gap" the bound is within the gap of the value, and no better plan exists
    above the bound.
    """
    model = large()
    answer = solver.solve(model, SolveLimits(gap=gap))
    exact = registry.get("highs").solve(model, SolveLimits(gap=1e-7))
    assert answer.termination is Termination.GAP
    assert answer.values is not None and model.feasible(answer.values)
    assert answer.bound - answer.objective <= gap * answer.objective * (1 + 1e-6)
    assert answer.objective <= exact.bound * (1 + 1e-7) and exact.objective <= answer.bound * (
        1 + 1e-7
    )


def test_an_infinite_gap_asks_for_any_plan(solver: Solver) -> None:
    """gap = inf: the first feasible plan will do."""
    model = large()
    answer = solver.solve(model, SolveLimits(gap=math.inf))
    assert answer.values is not None and model.feasible(answer.values)


@pytest.mark.parametrize(
    "hint",
    [
        WarmStart(np.array([0.0, 1, 1, 0])),
        WarmStart(np.array([1.0, 1, 1, 1])),
        WarmStart(np.array([1.0, 1, 0, 1])),
        WarmStart(np.array([0.4, 7.0, -3.0, np.nan])),
        WarmStart(np.zeros(2)),
        WarmStart(None, np.zeros(1)),
    ],
    ids=["feasible", "infeasible", "optimal", "nonsense", "too short", "prices only"],
)
def test_hints_never_change_the_optimum(solver: Solver, hint: WarmStart) -> None:
    """The knapsack by hand with good and bad starts: always 12."""
    model = dense([6, 5, 5, 1], [(-INF, [5, 4, 4, 1], 10)])
    assert optimal(solver.solve(model, EXACT, hint), model, 12.0)


def test_a_good_hint_is_a_floor(solver: Solver) -> None:
    """Started from a plan, no solver returns a worse one, though it may stop at once."""
    model = large()
    known = registry.get("highs").solve(model, SolveLimits(gap=1e-4))
    answer = solver.solve(model, SolveLimits(gap=0.5), WarmStart(known.values))
    assert answer.objective >= known.objective - 1e-9


def test_no_time_no_plan(solver: Solver) -> None:
    """Time limit 0 is "time_limit" without values."""
    answer = solver.solve(large(), SolveLimits(time_s=0.0))
    assert (answer.termination, answer.values) == (Termination.TIME_LIMIT, None)


@pytest.mark.parametrize("time_s", [0.02, 0.3])
def test_little_time_is_no_failure(solver: Solver, time_s: float) -> None:
    """A search cut short says so: what it has is feasible and below its bound; "gap" only if it
    was proven.
    """
    model = large(jobs=400)
    answer = solver.solve(model, SolveLimits(time_s=time_s, gap=0.0))
    assert answer.termination in (Termination.TIME_LIMIT, Termination.GAP)
    assert answer.bound >= answer.objective - 1e-9
    assert answer.values is None or model.feasible(answer.values)
    if answer.termination is Termination.GAP:
        assert answer.bound <= answer.objective * (1 + REL)


def test_same_question_same_answer(solver: Solver) -> None:
    """One thread, no time limit, the same seed: the same plan and bound, also after other work
    in between.
    """
    model = large()
    first = solver.solve(model, SolveLimits(gap=1e-3, seed=7))
    solver.solve(large(1), SolveLimits(gap=0.1, seed=3))
    second = solver.solve(model, SolveLimits(gap=1e-3, seed=7))
    assert first.values is not None and second.values is not None
    assert (first.values == second.values).all()
    assert (first.objective, first.bound) == (second.objective, second.bound)


def test_threads_may_change_between_calls(solver: Solver) -> None:
    """One thread, two, one again in the same worker: always the optimum."""
    model, value = one_resource(np.random.default_rng(5))
    for threads in (1, 2, 1):
        assert optimal(solver.solve(model, SolveLimits(gap=0.0, threads=threads)), model, value)


def test_the_log_is_kept_on_request(solver: Solver) -> None:
    """With log=True the solver's own words are in the answer, else nothing; name, version and
    time always.
    """
    model = dense([6, 5, 5, 1], [(-INF, [5, 4, 4, 1], 10)])
    with_log, without = (
        solver.solve(model, SolveLimits(log=True)),
        solver.solve(model, SolveLimits()),
    )
    word = {"highs": "HiGHS", "cpsat": "CP-SAT", "pulp": "CBC"}
    assert word.get(solver.name, "") in with_log.log
    assert without.log == ""
    assert with_log.solver == solver.name
    assert str(registry.available(solver.name)) in with_log.version
    assert with_log.seconds > 0


@pytest.mark.parametrize("name", ["highs", "pulp"])
def test_continuous_columns(name: str) -> None:
    """b is continuous: maximise 2a + b with a + b <= 1.5 and b <= 1: a = 1, b = 0.5 has value
    2.5.
    """
    model = dense([2, 1], [(-INF, [1, 1], 1.5)], integer=[True, False])
    assert optimal(registry.get(name).solve(model, EXACT), model, 2.5)


def test_cpsat_refuses_continuous_columns() -> None:
    """CP-SAT takes whole numbers only and says so."""
    answer = registry.get("cpsat").solve(dense([2, 1], integer=[True, False]), EXACT)
    assert (answer.termination, answer.values) == (Termination.FAILED, None)
    assert "1 columns are continuous" in answer.detail


def test_prices_of_a_relaxation_by_hand() -> None:
    """Maximise 3x + 2y with x + y <= 4, x <= 2.5, y >= 0.5 as rows: (2.5, 1.5); one more of the
    first has value 2, of the second 1, and the third does not bind."""
    model = dense(
        [3, 2],
        [(-INF, [1, 1], 4), (-INF, [1, 0], 2.5), (0.5, [0, 1], INF)],
        box=(0, 10),
        integer=False,
    )
    answer = registry.get("highs").solve(model, EXACT)
    assert answer.prices is not None
    assert answer.prices == pytest.approx([2, 1, 0])
    assert answer.objective == answer.bound == pytest.approx(10.5)


def test_prices_of_lower_bounds_are_negative() -> None:
    """A guarantee of 2 that costs 3 each: one unit more changes the value by -3; scaled dollars
    are scaled back.
    """
    model = dense([-3, 1], [(2, [1, 0], INF), (-INF, [0, 0.1], 100.0)], box=(0, 1e6), integer=False)
    answer = registry.get("highs").solve(model, EXACT)
    assert answer.prices == pytest.approx([-3, 10])


@pytest.mark.parametrize("time_s", [0.05, 0.4])
def test_cpsat_stopped_in_presolve_claims_no_bound(time_s: float) -> None:
    """2,000 jobs take CP-SAT longer than this to load: a bound of 0, which it then has, would be
    below every plan.
    """
    model = build_model(generate("L", 0))
    structure = choices(model)
    plan = round_dual(structure, minimise_dual(structure))
    assert plan is not None
    assert registry.get("cpsat").solve(
        model, SolveLimits(time_s=time_s)
    ).bound >= structure.value_of(plan)


def test_pulp_takes_what_it_finds() -> None:
    """Without CBC PuLP solves by another of its engines: the same optimum, but no bound."""
    solver = Isolated(
        "pulp",
        "faulty_backends.pulp_without_cbc",
        (str(Path(__file__).resolve().parents[1] / "support" / "processes"),),
    )
    answer = solver.solve(dense([6, 5, 5, 1], [(-INF, [5, 4, 4, 1], 10)]), EXACT)
    assert (answer.termination, answer.objective, answer.bound) == (Termination.GAP, 12.0, INF)


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            "Result - Optimal solution found\n\nObjective value:                -155.81624210\n",
            (True, -155.8162421),
        ),
        (
            (
                "Result - Optimal solution found (within gap tolerance)\n\nObjective value:  "
                " -155.8\nLower bound:   -156.115\n"
            ),
            (True, -156.1155),
        ),
        (
            (
                "Result - Stopped on time limit\n\nNo feasible solution found\nLower bound:        "
                "            -17711.402\n"
            ),
            (False, -17711.4025),
        ),
        ("Killed\n", None),
    ],
)
def test_what_cbc_says_of_its_bound(log: str, says: tuple[bool, float] | None) -> None:
    """CBC's last lines: proven or not, and its bound less what its three decimals may hide."""
    assert read_log(log) == (says and (says[0], pytest.approx(says[1], rel=1e-12)))
