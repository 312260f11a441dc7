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
from text_tables import given
from waiting import in_time

import allocator.policies.horizon as policy
from allocator.controller import guarded_decision
from allocator.domain.problem import Problem
from allocator.engine.decision import decide, decide_next_round
from allocator.options.announced_capacity import gpus_ahead, prices_ahead
from allocator.options.instance_building import compile_round
from allocator.policies.base import LookAheadPlans
from allocator.solvers.base import SolveLimits
from allocator.solvers.isolation.isolated import Isolated
from formulations.model.choices import choices

HERE = str(Path(__file__).resolve().parents[1] / "support" / "processes")
COMPLETION = {"objective": "completion", "now_s": 0, "interval_s": 300}


def test_gpus_and_prices_of_the_coming_intervals() -> None:
    """Rows at 300 s (4 GPUs go, at the end of the first interval), 450 s (4 come, counted from 600
    s on; the price is known from 750 s on: a mean of 2 in that interval). What is reserved costs
    nothing more."""
    round_ = """jobs: weight=1 / pools: gpus=8; gpus=0 market=on_demand price_per_gpu_hour=1 /
        prices: at_s=300 pool=p0 gpus=4 price_per_gpu_hour=9; at_s=450 pool=p1 gpus=4;
        at_s=750 pool=p1 price_per_gpu_hour=3"""
    p = problem(**given(round_), config=COMPLETION)
    assert gpus_ahead(p, 4).tolist() == [[4, 0], [4, 0], [4, 4], [4, 4]]
    assert prices_ahead(p, 4).tolist() == [[0, 1], [0, 1], [0, 2], [0, 3]]
    # two of six GPUs are away from 400 to 1,000
    two = "nodes: node=a pool=p0 gpus=2 leaves_s=400 returns_s=1000; node=b pool=p0 gpus=4"
    p = problem(**given(f"jobs: weight=1 / pools: gpus=6 / {two}"), config=COMPLETION)
    assert gpus_ahead(p, 5).tolist() == [[6], [4], [4], [4], [6]]


def test_rules_of_now_win_over_what_goes() -> None:
    """A job that may not be stopped, and a guarantee that asks for all GPUs, are kept until the
    GPUs are gone.
    """
    gone = "pools: gpus=4 / prices: at_s=200 pool=p0 gpus=0"
    fixed, promised = (
        problem(**given(f"{gone} / {jobs}"), config=COMPLETION)
        for jobs in (
            "jobs: state=running pool=p0 gpus=4 preemptible=false remaining_work=1e5",
            "jobs: tenant=a sizes=4 / tenants: tenant=a guaranteed_gpus=4",
        )
    )
    assert decide(fixed, policy="horizon").jobs["gpus"] == [4]
    for horizon in (1, 4):
        assert decide(promised, policy="horizon", horizon=horizon).jobs["gpus"] == [4]


def several(now_s: float = 0.0, jobs: int = 12) -> Problem:
    """Jobs of falling length on 8 GPUs; those with an even number run on one."""
    runs = {"state": "running", "pool": "p0", "gpus": 1}
    rows = [
        {"remaining_work": 400.0 * (j + 2), "restart_s": 60, **(runs if j % 2 == 0 else {})}
        for j in range(jobs)
    ]
    config = {**COMPLETION, "now_s": now_s}
    return problem(rows, [{"gpus": 8}], {1: 1.0, 2: 1.8, 4: 3.0}, config=config)


def test_plans_are_remembered_in_the_journal_and_moved_on() -> None:
    """A round later the plan begins with its second interval and goes on with its last. JSON keeps
    it: the journal's memory gives the same bytes as the memory itself."""
    result, memory = decide_next_round(None, several(), policy="horizon")
    assert result.fallback is None and memory.plans is not None
    held = []
    for now_s in (0.0, 300.0):
        r = compile_round(several(now_s), prunes=False)
        plan, _ = memory.plans.restart_from(r, choices(r.model).rows, 6)
        held.append(np.where(plan >= 0, r.instance.gpus[plan], 0))
    assert (held[1] == held[0][:, [1, 2, 3, 4, 5, 5]]).all()
    again = guarded_decision.memory_from_json(
        json.loads(json.dumps(guarded_decision.memory_to_json(memory)))
    )
    assert again is not None and isinstance(again.plans, LookAheadPlans)
    later = several(300.0, 13)
    one, two = (decide_next_round(m, later, policy="horizon")[0] for m in (memory, again))
    assert one.to_dict() | {"seconds": 0} == two.to_dict() | {"seconds": 0}


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


def test_a_broken_solver_costs_the_look_ahead_nothing() -> None:
    """Rounding has a plan, and the deadline of a solver that hangs is that of the round."""
    with in_time(3.0):
        r = decide(
            several(),
            policy="horizon",
            limits=SolveLimits(2.0, 0.0),
            solver=Isolated("hangs", "faulty_backends.hangs", (HERE,)),
        )
    assert sum(r.jobs["gpus"]) > 0  # type: ignore[arg-type]
