"""Phases of training with widths of their own, and widths planned from what came so far."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from builders import problem
from cases import rental as case
from fakes.simulated_executor import (
    MachineBehaviour,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedMachines,
)
from places import ROOT

from allocator import Job, Pool, Problem, Rate
from allocator.cli.models.rent import read_classes
from allocator.controller.controller import Controller, ControllerOptions
from allocator.controller.reporting.journal import replay
from allocator.errors import InvalidInput
from allocator.loop.live_rental import NARROWEST, plan_terms
from allocator.market.history import History
from allocator.market.rent import rent
from allocator.queue import cluster_tables, round_journal, snapshot as snapshots
from allocator.queue.queue import Queue
from allocator.simulator import SimulationOptions, simulate

EXAMPLE = ROOT / "data" / "rental" / "example.csv"
AT_ONCE = SimulationOptions(react_s=1e-6, prove_every=0)


def test_every_phase_has_its_width() -> None:
    """The published example as two phases of one job: 6 GPUs for the first half and 9 for the
    second, 1/3 h each for one unit of work, so that a job of two takes 2/3 h."""
    s = simulate(case.phased_workload(10, dollar_price=1 / 9), policy="rental", options=AT_ONCE)
    assert s.jobs["jct_s"].to_numpy() / case.HOUR == pytest.approx(2 / 3, rel=1e-9)
    assert s.metrics["gpu_hours"] == pytest.approx(10 * (6 + 9) / 3, rel=1e-9)
    assert s.metrics["restarts"] == 10


def _example_history(gap_h: float, count: int) -> History:
    """Return jobs of both classes in turn, one every gap_h hours, of one GPU-hour each."""
    kind = np.arange(count) % 2
    return History(
        "test",
        kind,
        np.arange(count) * gap_h * case.HOUR,
        np.ones(count),
        np.ones(count),
        np.full(count, case.MOST),
    )


def test_terms_from_arrivals() -> None:
    """With half the arrivals of the example and 1.15 dollars, the terms are those of it at 2.3.
    With more load than money, the price asks for the narrowest widths. No plan is made of one job.
    """
    p = case.workload(4).problem
    split = plan_terms(p, _example_history(2.5, 40), 1.15)
    whole = rent(read_classes(str(EXAMPLE)), 2.3, whole=True)
    assert split == pytest.approx((whole.plan.mu, whole.wider_share), rel=1e-6)
    narrow = plan_terms(p, _example_history(0.1, 40), 2.0)
    assert narrow is not None and narrow.dollar_price == NARROWEST
    assert plan_terms(p, _example_history(1.0, 1), 2.0) is None


@pytest.mark.nightly
def test_the_budget_is_kept_without_a_price() -> None:
    """Jobs of both classes arrive in turn every 1.25 h, and no price is given. The mean number of
    GPUs is the budget within 3 %, and the response time is that of theory. The same for 4,000
    random jobs: `scripts/reproductions/reproduce_rental.py --live`.
    """
    w = case.workload(60, law="deterministic", mu=0.0)
    rental = {"average_per_hour": 2.0, "hours": 1e6, "every_s": 20_000.0}
    jobs = dataclasses.replace(
        w.problem.jobs, model=np.arange(60) % 2, submitted_s=np.arange(60) * 1.25 * case.HOUR
    )
    p = dataclasses.replace(w.problem, jobs=jobs, settings={**w.problem.settings, "rental": rental})
    s = simulate(dataclasses.replace(w, problem=p), policy="rental", options=AT_ONCE)
    settled = s.jobs[20:]
    hours = settled["gpu_hours"].mean(), settled["jct_s"].mean() / case.HOUR
    assert hours == pytest.approx((2.0 * 1.25, 1 / 3), rel=0.03)


def test_two_sources_of_a_price_are_refused() -> None:
    with pytest.raises(InvalidInput, match="follows one of them"):
        problem([], config={"rental": {"average_per_hour": 1.0}, "longrun": {"amount": 1.0}})


def test_the_controller_plans_from_its_queue(tmp_path: Path) -> None:
    """Jobs of sqrt(k) come every hour. The rounds of the journal have the price that the plan of
    these arrivals gives, and are decided again from their snapshots alone."""
    clock = SimulatedClock(1e6)
    sizes = (1, 2, 4, 8, 16)
    made = Problem.build(
        jobs=[Job("first", "m", 3600.0, 16, submitted_s=clock.now())],
        pools=[Pool("p", "A", 64, gpus_per_node=16, market="on_demand", price_per_gpu_hour=1.0)],
        rates=[Rate("m", "A", k, k**0.5) for k in sizes],
        now_s=clock.now(),
    )
    queue = Queue.create(tmp_path / "q.db", made.snapshot, clock=clock.now)
    with queue.store.write() as connection:
        cluster_tables.set_config(connection, {"rental": {"average_per_hour": 3.0, "hours": 48.0}})
    truth = MachineBehaviour(rate=lambda order: order.gpus**0.5)
    executor = SimulatedExecutor(SimulatedMachines({"p": 64}, clock, truth))
    options = ControllerOptions(every_s=600.0, poll_s=600.0, policy="rental")
    controller = Controller(queue.store, executor, clock, options)  # type: ignore[arg-type]
    for n in range(8):
        clock.sleep(3600.0)
        queue.submit(job_id=f"j{n}", model="m", total_work=3600.0, max_gpus=16)
        controller.step()
    assert replay(queue.store, 8).same
    with queue.store.read() as connection:
        content = round_journal.read(connection, 8).snapshot
    assert content is not None
    config = snapshots.unpack_snapshot(content).config
    # 9 jobs of an hour each in 9 hours, load 1: sqrt(8) = 2.83 and sqrt(16) = 4 dollars per hour
    time, cost = np.array([8, 16]) ** -0.5, np.array([8, 16]) ** 0.5
    assert config["dollar_price"] == pytest.approx(-np.diff(time)[0] / np.diff(cost)[0], rel=1e-6)
    assert 0 < config["rental"]["wider_share"] < 1
    queue.close()
