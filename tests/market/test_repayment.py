"""What live rental plans spent too much or too little is made good, without oscillation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from builders import problem
from cases import rental as case
from hypothesis import given, settings, strategies as st

from allocator.cli.measure.simulate import budget_lines
from allocator.market import books
from allocator.simulator import Simulation, SimulationOptions, simulate
from formulations.rental.repayment import correct_budget, find_horizon_h, find_lag_h
from formulations.rental.speed_curves import POWER, speed_ups
from formulations.rental.widths import JobClasses, plan, restrict_to_whole_gpus

AT_ONCE = SimulationOptions(react_s=1e-6, prove_every=0)


def test_the_corrected_budget_by_hand() -> None:
    """With 168 dollars left over and 336 hours to use them up, half a dollar more per hour is
    planned; a debt takes as much away. Never more than half of the average. Jobs of 100 hours and
    plans every 20 hours: nothing is repaid quicker than in 480 hours, four times the delay."""
    by_hand = {168.0: 10.5, -168.0: 9.5, 1e6: 15.0, -1e6: 5.0}
    assert {owed: correct_budget(10.0, owed, 336.0) for owed in by_hand} == by_hand
    assert [find_horizon_h(336.0, *delay) for delay in ((1.0, 1.0), (100.0, 20.0))] == [336, 480]


def test_the_lag_is_that_of_what_is_paid() -> None:
    """Two classes of sqrt(k), one of an hour's work and one of ten. On 4 GPUs they take 1/2 and 5
    hours, and the second costs ten times as much: (1 x 1/2 + 10 x 5) / 11."""
    made = restrict_to_whole_gpus(
        JobClasses(
            np.ones(2),
            np.array([1.0, 10.0]),
            np.ones(2),
            np.arange(2),
            np.ones(2),
            speed_ups((POWER, POWER), (0.5, 0.5), ((), ())),
        )
    )
    found = plan(made, 22.0)
    assert found.width.tolist() == [4.0, 4.0]
    assert find_lag_h(found) == pytest.approx(50.5 / 11)


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0.0, 50.0),
    st.floats(0.1, 30.0),
    st.floats(1.0, 300.0),
    st.floats(0.8, 1.0),
    st.floats(-20.0, 20.0),
)
def test_a_deviation_shrinks_without_oscillation(
    lag_h: float, every_h: float, repay_h: float, gain: float, owed: float
) -> None:
    """Spending follows the budget of a plan, times a constant error of the load, with the lag of
    running jobs. From 10 dollars an hour and a balance it comes to rest where the plan, times the
    error, is the average. On the way it never crosses that balance by more than a hundredth."""
    average, horizon_h = 10.0, find_horizon_h(repay_h, lag_h, every_h)
    rest = average * horizon_h * (1.0 / gain - 1.0)
    balance, rate = rest + owed, average
    steps = 20
    step_h = every_h / steps
    far = abs(owed)
    for _ in range(int(8 * horizon_h / every_h) + 1):
        planned = gain * correct_budget(average, balance, horizon_h)
        for _ in range(steps):
            follow = 1.0 if lag_h < step_h else 1.0 - np.exp(-step_h / lag_h)
            rate += (planned - rate) * follow
            balance += (average - rate) * step_h
        assert (balance - rest) * np.sign(owed) >= -0.01 * far - 1e-9
    assert abs(balance - rest) <= 0.02 * far + 1e-9


def _play(repay_hours: float) -> Simulation:
    """Play jobs of both classes in turn, one every 1.25 h, with no price at the start.

    Each has one GPU-hour of work.
    """
    count = 150
    w = case.workload(count, law="deterministic", mu=0.0)
    jobs = dataclasses.replace(
        w.problem.jobs,
        model=np.arange(count) % 2,
        submitted_s=np.arange(count) * 1.25 * case.HOUR,
        total_work=np.ones(count),
    )
    table = {"average_per_hour": 2.0, "hours": 1e6, "every_s": 20_000.0, "repay_hours": repay_hours}
    settings = {**w.problem.settings, "rental": table}
    made = dataclasses.replace(w.problem, jobs=jobs, settings=settings)
    return simulate(dataclasses.replace(w, problem=made), policy="rental", options=AT_ONCE)


@pytest.mark.nightly
def test_what_early_plans_spent_is_repaid() -> None:
    """The first jobs get all the GPUs that they can use, because no price is known yet. With 30
    hours to repay it, the mean of all 150 jobs is the budget within 1 %, and no round's balance in
    rounds.csv is above what 20 hours cost. With a horizon far beyond the end a debt stays, and no
    window and no limit is named."""
    made = _play(30.0)
    kept = made.metrics["longrun"][""]
    assert kept["spent"] == pytest.approx(kept["income"], rel=0.01)
    assert made.rounds["balance"].notna().all()
    assert made.rounds["balance"].abs().max() < 20 * 2.0
    never = _play(1e9).metrics
    balance = never["longrun"][""]["balance"]
    assert abs(balance) > 2 * abs(kept["balance"])
    (line,) = budget_lines(case.workload(2).problem, None, {"rental": never})
    assert line.endswith(f"{-balance:.2f} $ overdrawn, which later plans would repay.")


def test_the_account_of_a_snapshot_is_read_back() -> None:
    """A round with a rental plan and a tenant's own budget has both books in its settings, and
    reading it again gives the same price."""
    config = {"rental": {"average_per_hour": 2.0}, "dollar_price": 0.25}
    tenants = [{"tenant": "a", "average_per_hour": 1.0}]
    made = problem([{"tenant": "a"}], tenants=tenants, config=config)
    rental = books.LongRunBudget(2.0, window_s=336 * 3600.0, is_rental=True)
    assert books.budgets(made)[books.WHOLE] == rental
    changed = books.apply_books(made, books.update_books({}, made, {}))
    assert changed.dollar_price == 0.25 and "account" not in changed.settings["longrun"]
