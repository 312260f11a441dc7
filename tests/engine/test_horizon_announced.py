"""Announced machines and prices, plans of the round before, faults of the look ahead: what the
policy makes of them.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from builders import problem
from waiting import in_time
from worlds import workload

import allocator.policies.horizon as policy
from allocator.controller import guarded_decision
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide, decide_next_round
from allocator.errors import UsageError
from allocator.io.problem_tables import snapshot_folder
from allocator.options.announced_capacity import gpus_ahead, prices_ahead
from allocator.options.instance_building import compile_round
from allocator.policies.memory import LookAheadPlans
from allocator.simulator import SimulationOptions, simulate
from allocator.solvers.base import SolveLimits
from allocator.solvers.isolation.isolated import Isolated
from formulations.model.choices import choices

HERE = str(Path(__file__).resolve().parents[1] / "support" / "processes")
COMPLETION = {"objective": "completion", "now_s": 0, "interval_s": 300}


def test_gpus_and_prices_of_the_coming_intervals() -> None:
    """Rows at 300 s (4 GPUs go, at the end of the first interval), 450 s (4 come, counted from 600
    s on; the price is known from 750 s on: a mean of 2 in that interval). What is reserved costs
    nothing more."""
    p = problem(
        [{}],
        [{"gpus": 8}, {"gpus": 0, "market": "on_demand", "price_per_gpu_hour": 1}],
        config=COMPLETION,
        prices=[
            {"at_s": 300, "pool": "p0", "gpus": 4, "price_per_gpu_hour": 9},
            {"at_s": 450, "pool": "p1", "gpus": 4},
            {"at_s": 750, "pool": "p1", "price_per_gpu_hour": 3},
        ],
    )
    assert gpus_ahead(p, 4).tolist() == [[4, 0], [4, 0], [4, 4], [4, 4]]
    assert prices_ahead(p, 4).tolist() == [[0, 1], [0, 1], [0, 2], [0, 3]]
    assert p.pools.gpus.tolist() == [8, 0] and len(p.announced) == 3
    np.testing.assert_equal(vars(validate(snapshot_folder(p)).announced), vars(p.announced))


def test_rules_of_now_win_over_what_goes() -> None:
    """A job that may not be stopped, and a guarantee that asks for all GPUs, are kept until the
    GPUs are gone.
    """
    gone = [{"at_s": 200, "pool": "p0", "gpus": 0}]
    fixed = problem(
        [
            {
                "state": "running",
                "pool": "p0",
                "gpus": 4,
                "preemptible": False,
                "remaining_work": 1e5,
            }
        ],
        [{"gpus": 4}],
        prices=gone,
        config=COMPLETION,
    )
    assert decide(fixed, policy="horizon").jobs["gpus"] == [4]
    promised = problem(
        [{"tenant": "a", "sizes": [4]}],
        [{"gpus": 4}],
        tenants=[{"tenant": "a", "guaranteed_gpus": 4}],
        prices=gone,
        config=COMPLETION,
    )
    for horizon in (1, 4):
        assert decide(promised, policy="horizon", horizon=horizon).jobs["gpus"] == [4]


def test_waiting_for_machines_that_come() -> None:
    """The job runs on 1 GPU, and every start costs 200 s of 300: it moves to 2, but not if 8
    GPUs come in a moment.
    """

    def gpus(prices: list[dict[str, object]]) -> object:
        p = problem(
            [{"state": "running", "pool": "p0", "gpus": 1, "restart_s": 0, "remaining_work": 6000}],
            [{"gpus": 2, "startup_s": 200}, {"gpus": 0, "startup_s": 200}],
            prices=prices,
            config=COMPLETION,
        )
        return decide(p, policy="horizon", horizon=6).jobs["gpus"]

    assert gpus([]) == [2]
    assert gpus([{"at_s": 300, "pool": "p1", "gpus": 8}]) == [1]


def several(now_s: float = 0.0, jobs: int = 12) -> Problem:
    """Jobs of falling length on 8 GPUs; those with an even number run on one."""
    runs = {"state": "running", "pool": "p0", "gpus": 1}
    rows = [
        {"remaining_work": 400.0 * (j + 2), "restart_s": 60, **(runs if j % 2 == 0 else {})}
        for j in range(jobs)
    ]
    config = {**COMPLETION, "now_s": now_s}
    return problem(rows, [{"gpus": 8}], {1: 1.0, 2: 1.8, 4: 3.0}, config=config)


def test_plans_are_remembered_in_names_and_moved_on() -> None:
    """A round later the plan begins with its second interval and goes on with its last; a job that
    is new has none, one that is gone is forgotten. JSON keeps it all, so the journal's memory gives
    the same bytes."""
    p = several()
    result, memory = decide_next_round(None, p, policy="horizon")
    assert result.fallback is None and memory.plans is not None
    round_ = compile_round(p, prunes=False)
    rows = choices(round_.model).rows
    now, prices = memory.plans.restart_from(round_, rows, 6)
    later = several(300.0, 13)
    after = compile_round(later, prunes=False)
    moved, cheaper = memory.plans.restart_from(after, choices(after.model).rows, 6)
    i, k = round_.instance, after.instance
    held, then = np.where(now >= 0, i.gpus[now], 0), np.where(moved >= 0, k.gpus[moved], 0)
    assert (then == np.vstack([held[:, [1, 2, 3, 4, 5, 5]], np.zeros(6)])).all()
    assert (cheaper[:5] == prices[1:]).all()
    again = guarded_decision.memory_from_json(
        json.loads(json.dumps(guarded_decision.memory_to_json(memory)))
    )
    assert again is not None and isinstance(again.plans, LookAheadPlans)
    one, two = (decide_next_round(m, later, policy="horizon")[0] for m in (memory, again))
    assert guarded_decision.format_plan(one) == guarded_decision.format_plan(two)


def test_a_look_ahead_that_fails_or_drags_costs_nothing_but_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever it raises, and if every step takes a third of the time: the single round's plan,
    or its own, in time.
    """
    p = several()

    def breaks(*_: object) -> object:
        raise MemoryError("too large")

    with monkeypatch.context() as m:
        m.setattr(policy, "look_ahead", breaks)
        r = decide(p, policy="horizon")
    single = decide(p)
    assert r.fallback == "mip" and r.jobs["gpus"] == single.jobs["gpus"]
    assert any("look ahead failed: MemoryError: too large" in w for w in r.warnings)

    from formulations.horizon.pricing import Pricing

    price = Pricing.price

    def drags(self: Pricing, *args: object, **kwargs: object) -> object:
        time.sleep(0.5)
        return price(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Pricing, "price", drags)
    with in_time(1.7 + 1.0):
        assert decide(p, policy="horizon", limits=SolveLimits(time_s=1.7)).jobs["gpus"] is not None


@pytest.mark.parametrize("fault", ["hangs", "lies"])
def test_a_broken_solver_costs_the_look_ahead_nothing(fault: str) -> None:
    """Rounding has a plan, and the deadline of a solver that hangs is that of the round."""
    with in_time(3.0):
        r = decide(
            several(),
            policy="horizon",
            limits=SolveLimits(2.0, 0.0),
            solver=Isolated(fault, f"faulty_backends.{fault}", (HERE,)),
        )
    assert sum(r.jobs["gpus"]) > 0  # type: ignore[arg-type]


def test_a_simulation_announces_what_will_change() -> None:
    """One job of 3000 s on 8 GPUs, half of which go for good after 1000 s: whoever is told moves to
    4 in time and loses nothing; else all work so far is lost. Nothing is told unless asked for."""
    w = workload(
        [{"total_work": 24000, "max_gpus": 8, "sizes": [4, 8]}], gpus=8, changes=[(1000.0, 4, None)]
    )
    done, seen = [], []
    for ahead_s in (0.0, 900.0):
        run = simulate(
            w,
            policy="horizon",
            options=SimulationOptions(objective="completion", announce_s=ahead_s, prove_every=0),
            on_round=lambda _, turn: seen.append(len(turn.problem.announced)),
        )
        done.append(float(run.jobs["finished_s"].iloc[0]))
    assert max(seen) == 1 and seen[0] == 0
    # on 8 GPUs to 900 s, then 30 s of pause and 16800 units on 4; or from 1200 s on all of it on 4
    assert done == [pytest.approx(1200 + 6000), pytest.approx(930 + 16800 / 4)]
    with pytest.raises(UsageError, match="announce_s"):
        SimulationOptions(announce_s=-1.0)
