"""Plans on nodes: every rule about nodes, what placement costs, moves, drains and reasons."""

from __future__ import annotations

from functools import partial

import pytest
from best_on_nodes import best_value, decide_best
from builders import problem as problem_of
from examples import count, series
from node_rounds import node_round, nodes_of, one_pool, sized_job

import allocator
from allocator import Rate
from allocator.engine.decision import decide, decide_round, override_settings
from formulations.objectives import BUILT_IN as OBJECTIVES

RATES = [Rate("m", "A", k, float(k) ** 0.9) for k in (1, 2, 3, 4, 5, 6, 8, 16)]


problem = partial(one_pool, rates=RATES)


def test_jobs_that_may_not_move_leave_the_hole_closed() -> None:
    """Then the job of 4 waits, and its reason has the numbers."""
    jobs = [*(sized_job(name, 2, "p", preemptible=False) for name in "xy"), sized_job("big", 4)]
    plan = allocator.solve(problem(jobs, [4, 4], {"x": {"n0": 2}, "y": {"n1": 2}}))
    big = plan.job("big")
    assert (big.action, big.reason) == ("wait", "fragmented")
    assert big.detail == (
        "4 x p fits no nodes: 4 GPUs are free, the largest hole has 2; no move of jobs that was"
        " tried opens one for 4"
    )
    assert plan.status == "optimal" and plan.bound_by == "placement"
    assert plan.placement is not None and plan.placement.reduced == 1
    assert plan.placement.lost == pytest.approx(4**0.9 * 300 / 10_000)


def test_a_firm_job_of_unknown_place_is_not_paused() -> None:
    """It is where others stay, and else where preemptible ones leave."""
    firm = sized_job("firm", 6, "p", preemptible=False)
    soft = [sized_job(f"s{i}", 2, "p") for i in range(2)]
    placed = {"s0": {"n0": 2}, "s1": {"n1": 2}}
    plan = allocator.solve(problem([firm, *soft], [4, 4], placed))
    assert plan.job("firm").action == "keep"
    assert sum(nodes_of(plan)["firm"].values()) == 6
    assert sorted(plan.job(f"s{i}").action for i in range(2)) == ["keep", "pause"]


@pytest.mark.parametrize("objective", series(list(OBJECTIVES), 5))
def test_tiny_rounds_against_every_plan(objective: str) -> None:
    """All options of all jobs on all nodes: with gap 0 the plan is the best, and proven to be."""
    rounds, tried = 0, count(3, 12)
    for seed in range(tried):
        problem_ = node_round(seed, jobs=5, nodes=3, pools=2, leaving=seed % 2 == 1)
        problem_ = override_settings(problem_, objective, None)
        rounds += decide_best(problem_, seed) is not None
    assert rounds >= tried - 2


def test_large_rounds_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the bound is that of the counts: it says by how much the plan may be short."""
    monkeypatch.setattr("allocator.engine.placement.search.SMALL_AT_0", 0)
    short = 0
    for seed in range(6):
        problem_ = node_round(seed, jobs=5, nodes=3, pools=2)
        try:
            decision = decide_round(problem_, limits=allocator.SolveLimits(gap=0.0))
        except allocator.Infeasible:
            continue
        bound, by, gap = decision.proof
        assert by != "placement" and best_value(problem_) <= bound + 1e-9
        short += gap > 1e-6
    assert short > 0


def test_a_packed_job_joins_no_job_that_is_torn() -> None:
    """A job of 2 GPUs runs on two nodes. One that would share its GPUs has to be on one node, so it
    waits, and the rest of the plan stands."""
    sizes = dict.fromkeys(("min_gpus", "max_gpus", "requested_gpus"), 2)
    on = sizes | {
        "state": "running",
        "pool": "p0",
        "gpus": 2,
        "remaining_work": 1e6,
        "memory_gb": 4.0,
    }
    fast = {"gpu_type": "A", "gpus": 2, "work_per_s": 2.0}
    both = {"model_a": "m", "model_b": "n", "gpu_type": "A", "gpus": 2}
    plan = decide(
        problem_of(
            [
                on | {"model": "m"},
                on | {"model": "z", "preemptible": False},
                sizes | {"model": "n", "remaining_work": 1000, "memory_gb": 4.0},
            ],
            pools=[{"gpus": 4, "memory_gb": 10.0, "sharing": "any"}],
            rates=[fast | {"model": model} for model in "mnz"],
            sharing=[both | {"slowdown_a": 1.1, "slowdown_b": 1.1}],
            nodes=[{"node": n, "pool": "p0", "gpus": 2} for n in ("n0", "n1")],
            placements=[
                {"job_id": job, "node": n, "gpus": 1} for job in ("j0", "j1") for n in ("n0", "n1")
            ],
        )
    )
    assert plan.jobs["gpus"] == [2, 2, 0]
