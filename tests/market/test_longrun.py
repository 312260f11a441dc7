"""Long-run budgets: the books always balance, the price follows them, and every dollar is booked
once.
"""

from __future__ import annotations

import dataclasses
import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from builders import problem
from cases import rental as rental_case
from hypothesis import given, strategies as st
from places import ROOT
from queues import empty
from service_worlds import World

from allocator.cli.measure.simulate import budget_lines
from allocator.controller import spending
from allocator.controller.reporting.journal import replay
from allocator.controller.reporting.status import format_status, status
from allocator.domain.problem import Problem
from allocator.engine.decision import decide_round
from allocator.io.workloads import read_workload
from allocator.market import books, longrun
from allocator.market.longrun import HOUR, BudgetAccount, LongRunBudget
from allocator.queue.cluster_tables import set_config
from allocator.simulator import SimulationOptions, simulate

DATA = ROOT / "data" / "workloads"
DAY = 24 * HOUR
AVERAGE = LongRunBudget(average_per_hour=10.0)
AMOUNT = LongRunBudget(amount=2400.0, until_s=10 * DAY)


def books_of(budget: LongRunBudget, *steps: tuple[float, float], present: float) -> BudgetAccount:
    """Books after (dollars, time) after (dollars, time), with jobs of this weight."""
    account = longrun.open_account(budget, 0.0, present)
    for dollars, at_s in steps:
        account = longrun.update_account(account, budget, dollars, at_s, present)
    return account


def test_an_average_by_hand() -> None:
    """10 $/h: after two hours and 5 dollars 15 are saved; of 14 days 334 hours are left, less a
    twentieth of 336 in which the books are to be closed."""
    account = books_of(AVERAGE, (5.0, 2 * HOUR), present=3.0)
    assert (account.income, account.spent, account.balance, account.load) == (20.0, 5.0, 15.0, 3.0)
    assert longrun.remaining(account, AVERAGE) == pytest.approx(3360 - 5)
    left = 334 - 0.05 * 336
    credit = 0.5 * 10 * left
    asks = longrun.next_terms(account, AVERAGE, 600.0)
    assert asks.mu == pytest.approx(3.0 / 10 * math.exp(-15 / (0.3 * credit)))
    assert asks.per_hour == pytest.approx(10 + (15 + credit) / (left / 24))
    last = books_of(AVERAGE, (5.0, 2 * HOUR), (3345.0, 335 * HOUR), present=3.0)
    assert last.balance == pytest.approx(0)
    asks = longrun.next_terms(last, AVERAGE, 600.0)
    assert asks.per_hour == pytest.approx(10 + 0.5 * 10 * 3.36 / (1 / 6))


def test_an_amount_by_hand() -> None:
    """2400 $ in ten days: 10 $/h; after a day with 500 $ 260 are overdrawn, 1900 remain, and at the
    rate of that day they are gone 91.2 hours later; a day after the date nothing may be spent."""
    account = books_of(AMOUNT, (500.0, DAY), present=1.0)
    assert account.balance == pytest.approx(-260)
    assert longrun.remaining(account, AMOUNT) == pytest.approx(1900)
    assert longrun.runs_out_s(account, AMOUNT) == pytest.approx(DAY + 1900 / (500 / 24) * HOUR)
    over = books_of(AMOUNT, (500.0, DAY), (100.0, 11 * DAY), present=1.0)
    assert over.balance == pytest.approx(1800)
    assert longrun.next_terms(over, AMOUNT, 600.0) == longrun.RoundTerms(0.0, 0.0)


def test_a_later_date_opens_new_books_after_the_old_one() -> None:
    """Before the date the amount is topped up, after it a new one begins; so does a budget of
    another kind.
    """
    more = LongRunBudget(amount=4800.0, until_s=20 * DAY)
    for spent_until, budget, spent in (
        (DAY, more, 107.0),
        (10 * DAY, more, 7.0),
        (DAY, AVERAGE, 7.0),
    ):
        account = books_of(AMOUNT, (100.0, spent_until), present=1.0)
        assert longrun.update_account(account, budget, 7.0, 11 * DAY, 1.0).spent == spent


steps = st.lists(
    st.tuples(st.floats(-2 * HOUR, 3 * DAY), st.floats(0, 1e4), st.floats(0, 50)), max_size=40
)


@given(
    steps, st.sampled_from([AVERAGE, AMOUNT, LongRunBudget(average_per_hour=3.0, window_s=HOUR)])
)
def test_the_books_balance(steps: list[tuple[float, float, float]], budget: LongRunBudget) -> None:
    """Booked = spent, balance = income - spent, income = time x rate or the share of the amount,
    also when clocks go back, nothing is spent for days, and dates pass; kept as text and read again
    nothing changes."""
    account, now, latest = longrun.open_account(budget, 0.0, 1.0), 0.0, 0.0
    for hours, dollars, present in steps:
        now += hours
        latest = max(latest, now)
        account = longrun.update_account(account, budget, dollars, now, present)
        account = longrun.from_json(json.loads(json.dumps(longrun.to_json(account))))
        asks = longrun.next_terms(account, budget, 300.0)
        assert 0 <= asks.mu < math.inf and 0 <= asks.per_hour < math.inf
        assert (
            math.isfinite(longrun.remaining(account, budget))
            and longrun.runs_out_s(account, budget) >= account.at_s
        )
    assert account.at_s == latest
    assert account.spent == pytest.approx(math.fsum(d for _, d, _ in steps))
    due = (
        budget.amount * min(1.0, latest / budget.until_s)
        if budget.has_end
        else budget.average_per_hour * latest / HOUR
    )
    assert account.income == pytest.approx(due, rel=1e-9, abs=1e-6)
    assert account.balance == account.income - account.spent


@given(st.lists(st.floats(0, 5), min_size=30, max_size=30), st.sampled_from([AVERAGE, AMOUNT]))
def test_who_keeps_to_the_limit_never_owes_more_than_the_credit(
    share: list[float], budget: LongRunBudget
) -> None:
    """Spending up to the limit of every round: the overdraft is at most the credit, and what the
    credit shrinks by within the time ahead that a limit looks; an amount is never overspent."""
    account, now = longrun.open_account(budget, 0.0, 1.0), 0.0
    for part in share:
        most = longrun.next_terms(account, budget, 8 * HOUR).per_hour
        now += 8 * HOUR
        account = longrun.update_account(account, budget, min(1.0, part) * most * 8, now, 1.0)
        left_h, shrinks = (
            longrun.left_s(account, budget) / HOUR,
            longrun.BETA * budget.average_per_hour,
        )
        if budget.has_end:
            assert longrun.remaining(account, budget) >= -1e-6
        elif now < budget.window_s:
            assert (
                account.balance
                >= -shrinks * (left_h + 8 + (left_h + 8) / longrun.CORRECTION_SHARE) - 1e-6
            )


def cluster(config: dict[str, Any], tenants: list[dict[str, Any]], **more: Any) -> Problem:
    """Three jobs of two tenants on eight rented GPUs at 2 $/h and four reserved ones at 1 $/h."""
    on_demand = {"market": "on_demand", "price_per_gpu_hour": 2}
    return problem(
        [{"tenant": "x", "max_gpus": 4, **more}, {"tenant": "y", "max_gpus": 4}, {"tenant": "y"}],
        [{"pool": "rent", **on_demand}, {"pool": "own", "gpus": 4, "price_per_gpu_hour": 1}],
        tenants=tenants,
        config={"objective": "response", "now_s": 0, **config},
    )


def test_the_round_has_price_and_limit_of_the_books() -> None:
    """An average of 10 $/h for all and 1 $/h for x: prices are those of the accounts, limits allow
    the reserved GPUs on top; tenants without a budget have none."""
    tenants = [{"tenant": "x", "average_per_hour": 1}, {"tenant": "y"}]
    held = {"state": "running", "pool": "rent", "gpus": 1, "weight": 3}
    p = cluster({"longrun": {"average_per_hour": 10}}, tenants, **held)
    kept = books.update_books({}, p, {})
    assert kept[books.WHOLE].load == kept["x"].load == 3.0
    q = books.apply_books(p, kept)
    assert (q.dollar_price, q.budget_per_hour) == pytest.approx((3 / 10, 10 + 0.5 * 10 * 24 + 4))
    assert q.tenants.dollar_price.tolist() == pytest.approx([3.0, 0.0])
    assert q.tenants.budget_per_hour.tolist() == pytest.approx([1 + 0.5 * 24 + 4, math.inf])


def test_a_spent_amount_stops_what_may_be_stopped() -> None:
    """Nothing left: only the reserved GPUs work. A job that may not be paused keeps what it
    rents.
    """
    config = {"longrun": {"amount": 100, "until_s": 9e5}, "now_s": 1000}
    p = cluster(config, [])
    empty = {"": BudgetAccount(0.0, 1000.0, income=1.0, spent=100.0, until_s=9e5)}
    plan = decide_round(books.apply_books(p, empty)).allocation
    assert set(plan.pool.tolist()) <= {-1, 1}
    stuck = cluster(config, [], state="running", pool="rent", gpus=4, preemptible=False)
    assert decide_round(books.apply_books(stuck, empty)).allocation.gpus[0] == 4


def test_the_simulated_books_are_the_bill() -> None:
    """The account has what the GPUs cost, its rows in rounds.csv too; the amount is kept, the cap
    of 4 times never broken."""
    w = rental_case.workload(25, interval_s=1800.0)
    w = dataclasses.replace(w, problem=dataclasses.replace(w.problem, objective="response"))
    options = SimulationOptions(
        budget=8.0, budget_average=2.0, prove_every=0, budget_window_s=48 * HOUR
    )
    s = simulate(w, policy="marginal", options=options)
    kept = s.metrics["longrun"][""]
    assert kept["spent"] == pytest.approx(s.metrics["bill_dollars"])
    assert s.rounds["balance"].notna().all() and (s.rounds["dollar_price"] >= 0).all()
    assert s.timeline["used"].max() <= 8


def test_the_controller_keeps_books(tmp_path: Path) -> None:
    """A queue run to its end: rounds of the journal are decided again to the byte, with the price
    of their books; status and metrics say what was spent; without the budget the books are gone
    after the next round."""
    with empty("sqlite", tmp_path) as name, ExitStack() as stack:
        world = World(name, 0, faults=0)
        stack.callback(world.queue.close)
        world.run()
        store = world.queue.store
        assert all(replay(store, n).same for n in (1, 2, 3))
        found = status(world.queue)
        assert 0 < found["longrun"][""]["spent"] == pytest.approx(world.costs_by_tenant)
        words = "1000 $/h on average for GPUs that are not reserved: "
        assert f"budget      {words}" in "\n".join(format_status(found))
        assert "allocator_longrun_spent_dollars" in world.controller.log.metrics.text()
        with store.write() as connection:
            set_config(connection, {"longrun": None})
        world.submit(job_id="more", model="m", total_work=10.0, max_gpus=1)
        world.clock.sleep(120.0)
        world.controller.step()
        with store.read() as connection:
            assert spending.report(connection) == {}


def test_simulate_says_what_became_of_the_budget() -> None:
    """16 GPUs at 2 $/h, rented: asked, spent, and why more was spent than came in; within one
    window it is kept."""
    pools = read_workload(DATA / "mixed").problem
    kept = {"average_per_hour": 20.0, "amount": None, "until_s": None, "most_per_hour": 5.0}
    kept |= {"opened_s": 0.0, "at_s": 36_000.0, "spent": 510.0, "balance": -310.0}

    def lines(window_s: float | None = None, of: str = "", **changes: float) -> list[str]:
        return list(budget_lines(pools, window_s, {"greedy": {"longrun": {of: kept | changes}}}))

    line, reserved = lines()
    assert "310 $ overdrawn so far" in line and "46.8 $/h" in reserved
    assert "not kept, 310 $ too much" in lines(3600.0)[0]
    line, _ = lines(of="red", balance=1.0)
    assert line.startswith("budget of red, greedy") and line.endswith("kept.")
