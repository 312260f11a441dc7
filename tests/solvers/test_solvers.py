"""What every solver must do: one suite for all back ends, each in its worker; by hand, by
enumeration and by DP.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from examples import count
from models import INF, dense
from rounds import best, random_instance

from allocator.bench.solvers.instances import generate
from allocator.solvers import registry
from allocator.solvers.base import SolveLimits, Solver, SolverResult, Termination, WarmStart
from allocator.solvers.highs import LinearRelaxation
from allocator.solvers.isolation.isolated import Isolated
from allocator.solvers.pulp_reference import read_log
from formulations.bounds.lagrangian import evaluate, minimise_dual
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
    scale = np.abs(model.value).max(initial=abs(value)) or 1.0
    return (
        answer.termination is Termination.GAP
        and answer.values is not None
        and model.feasible(answer.values)
        and abs(answer.objective - value) <= REL * scale
        and abs(answer.objective - model.value @ answer.values) <= 1e-9 * scale
        and value - 1e-9 * scale <= answer.bound <= value + REL * scale
    )


def over(share: float) -> LinearModel:
    """Two jobs that cost so much more than a budget of 12345.67 dollars."""
    dollars = [2345.67 * (1 + share), 10000.0 * (1 + share)]
    return dense([1, 1], [(-INF, dollars, 12345.67)])


TWO_JOBS = dense(
    [1, 1.5, 1, 1.8],
    [(-INF, [1, 1, 0, 0], 1), (-INF, [0, 0, 1, 1], 1), (-INF, [1, 2, 1, 2], 3)],
    choices=2,
)
KNAPSACK = dense([6, 5, 5, 1], [(-INF, [5, 4, 4, 1], 10)])
BY_HAND = {
    # the two of 4 and the one of 1 make 11 with 9 used; 5 + 4 + 1 = 10 makes 12
    "knapsack": (KNAPSACK, 12.0),
    "columns from -2 to 3, a + b >= -1 and 2a <= 5: a = 2, b = -2": (
        dense([2, -1], [(-1, [1, 1], INF), (-INF, [2, 0], 5)], box=(-2.0, 3.0)),
        6.0,
    ),
    "no columns, no rows": (dense([]), 0.0),
    "a budget is spent to the last cent": (dense([1, 1], [(-INF, [0.1, 0.2], 0.3)]), 2.0),
    "a budget is broken by nobody": (over(5e-7), 1.0),
    "one part in 10^10 is rounding": (over(1e-10), 2.0),
    **{
        f"the knapsack in units of {unit}": (
            replace(KNAPSACK, value=unit * KNAPSACK.value),
            12 * unit,
        )
        for unit in (1e-9, 1e9)
    },
}


@pytest.mark.parametrize("name", BY_HAND)
def test_models_by_hand(solver: Solver, name: str) -> None:
    """What each line of the table says; with one thread and with two in the same worker."""
    model, value = BY_HAND[name]
    for threads in (1, 2, 1) if name == "knapsack" else (1,):
        answer = solver.solve(model, SolveLimits(gap=0.0, threads=threads))
        assert optimal(answer, model, value)


@cache
def enumerated() -> tuple[tuple[LinearModel, float | None], ...]:
    """Random rounds with every kind of row, and their optima by trying all plans; None:
    infeasible.
    """
    rounds = [
        random_instance(np.random.default_rng(seed), jobs=3, secondaries=3 * (seed % 2))
        for seed in range(count(10, 300))
    ]
    return tuple((model, best(model, r.start)) for r in rounds for model in [build_model(r)])


def test_random_rounds_equal_exhaustive_search(solver: Solver) -> None:
    """Gap 0 is the optimum to 1e-6, and infeasible is infeasible, on random rounds."""
    for k, (model, value) in enumerate(enumerated()):
        answer = solver.solve(model, EXACT)
        if value is None:
            assert (answer.termination, answer.values) == (Termination.INFEASIBLE, None), k
        else:
            assert optimal(answer, model, value), (k, answer, value)


def large(seed: int = 0, jobs: int = 60) -> LinearModel:
    """A knapsack of 300 columns with prices of odd digits, too hard to be closed at once."""
    rng = np.random.default_rng(seed)
    gpus, cost = rng.integers(1, 9, 5 * jobs), rng.uniform(1.0, 9.0, 5 * jobs)
    rows = [(-INF, own, 1.0) for own in np.repeat(np.eye(jobs), 5, axis=1)]
    rows += [(-INF, gpus, 2.0 * jobs), (-INF, cost, float(cost.sum() / 12))]
    return dense(rng.uniform(1.0, 3.0, 5 * jobs) * gpus**0.8, rows, choices=jobs)


@pytest.mark.parametrize("gap", [math.inf, 0.01])
def test_the_gap_that_was_asked_for_is_proven(solver: Solver, gap: float) -> None:
    """With termination "gap" the bound is within the gap of the value, and no better plan exists
    above the bound. With an infinite gap any plan will do."""
    model = large(jobs=30)
    answer = solver.solve(model, SolveLimits(gap=gap))
    exact = registry.get("highs").solve(model, SolveLimits(gap=1e-7))
    assert answer.termination is Termination.GAP
    assert answer.values is not None and model.feasible(answer.values)
    assert answer.bound - answer.objective <= gap * answer.objective * (1 + 1e-6)
    assert answer.objective <= exact.bound * (1 + 1e-7)
    assert exact.objective <= answer.bound * (1 + 1e-7)


@pytest.mark.parametrize(
    "hint",
    [
        WarmStart(np.array([0.0, 1, 1, 0])),
        WarmStart(np.array([0.4, 7.0, -3.0, np.nan])),
        WarmStart(np.zeros(2)),
        WarmStart(None, np.zeros(1)),
    ],
    ids=["feasible", "nonsense", "too short", "prices only"],
)
def test_hints_never_change_the_optimum(solver: Solver, hint: WarmStart) -> None:
    """The two jobs by hand with good and bad starts: always 2.8."""
    assert optimal(solver.solve(TWO_JOBS, EXACT, hint), TWO_JOBS, 2.8)


def test_a_good_hint_is_a_floor(solver: Solver) -> None:
    """Started from a plan, no solver returns a worse one, though it may stop at once."""
    model = large(jobs=30)
    known = registry.get("highs").solve(model, SolveLimits(gap=1e-4))
    answer = solver.solve(model, SolveLimits(gap=0.5), WarmStart(known.values))
    assert answer.objective >= known.objective - 1e-9


def test_little_time_is_no_failure(solver: Solver) -> None:
    """A search cut short says so: what it has is feasible and below its bound; "gap" only if it
    was proven. Without any time there is no plan.
    """
    model = large(jobs=400)
    none = solver.solve(model, SolveLimits(time_s=0.0))
    assert (none.termination, none.values) == (Termination.TIME_LIMIT, None)
    answer = solver.solve(model, SolveLimits(time_s=0.02, gap=0.0))
    assert answer.termination in (Termination.TIME_LIMIT, Termination.GAP)
    assert answer.bound >= answer.objective - 1e-9
    assert answer.values is None or model.feasible(answer.values)
    if answer.termination is Termination.GAP:
        assert answer.bound <= answer.objective * (1 + REL)


def test_same_question_same_answer(solver: Solver) -> None:
    """One thread, no time limit, the same seed: the same plan and bound, also after other work
    in between.
    """
    model = large(jobs=30)
    first = solver.solve(model, SolveLimits(gap=1e-3, seed=7))
    solver.solve(large(1), SolveLimits(gap=0.1, seed=3))
    second = solver.solve(model, SolveLimits(gap=1e-3, seed=7))
    assert first.values is not None and second.values is not None
    assert (first.values == second.values).all()
    assert (first.objective, first.bound) == (second.objective, second.bound)


def test_the_log_is_kept_on_request(solver: Solver) -> None:
    """With log=True the solver's own words are in the answer, else nothing; name, version and
    time always.
    """
    with_log, without = (solver.solve(KNAPSACK, SolveLimits(log=log)) for log in (True, False))
    word = {"highs": "HiGHS", "cpsat": "CP-SAT", "pulp": "CBC"}
    assert word.get(solver.name, "") in with_log.log
    assert without.log == ""
    assert with_log.solver == solver.name
    assert str(registry.available(solver.name)) in with_log.version
    assert with_log.seconds > 0


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


def test_a_relaxation_solved_again_is_that_of_a_new_problem() -> None:
    """Rows are lifted one at a time, and sometimes every third column is left out: the value is
    that of a new problem, and the prices give it as a bound."""
    c = choices(large())
    relaxation = LinearRelaxation(c)
    for row in range(-1, c.R):
        used = (np.arange(c.n) % 3 > 0) | (row % 2 > 0)
        lifted = replace(c, high=np.where(np.arange(c.R) == row, INF, c.high))
        again = relaxation.solve(lifted, used, INF)
        part = lifted.take(np.flatnonzero(used))
        alone = LinearRelaxation(part).solve(part, np.ones(part.n, dtype=bool), INF)
        assert again is not None and alone is not None
        values = [c.value @ again[0], evaluate(part, again[1]).bound]
        assert values == pytest.approx([part.value @ alone[0]] * 2, rel=1e-7)
    assert relaxation.solve(c, used, 0.0) is None


def test_cpsat_stopped_in_presolve_claims_no_bound() -> None:
    """2,000 jobs take CP-SAT longer than this to load: a bound of 0, which it then has, would be
    below every plan.
    """
    model = build_model(generate("L", 0))
    structure = choices(model)
    plan = round_dual(structure, minimise_dual(structure))
    assert plan is not None
    answer = registry.get("cpsat").solve(model, SolveLimits(time_s=0.05))
    assert answer.bound >= structure.value_of(plan)


def test_pulp_takes_what_it_finds() -> None:
    """Without CBC PuLP solves by another of its engines: the same optimum, but no bound."""
    solver = Isolated(
        "pulp",
        "faulty_backends.pulp_without_cbc",
        (str(Path(__file__).resolve().parents[1] / "support" / "processes"),),
    )
    answer = solver.solve(KNAPSACK, EXACT)
    assert (answer.termination, answer.objective, answer.bound) == (Termination.GAP, 12.0, INF)


@pytest.mark.parametrize(
    ("log", "says"),
    [
        (
            "Optimal solution found (within gap tolerance)\n\nObjective value:   -155.8\n"
            "Lower bound:   -156.115",
            (True, -156.1155),
        ),
        (
            "Stopped on time limit\n\nNo feasible solution found\nLower bound:   -17711.402",
            (False, -17711.4025),
        ),
        ("Killed", None),
    ],
)
def test_what_cbc_says_of_its_bound(log: str, says: tuple[bool, float] | None) -> None:
    """CBC's last lines: proven or not, and its bound less what its three decimals may hide."""
    assert read_log(f"Result - {log}\n") == (says and (says[0], pytest.approx(says[1], rel=1e-12)))
