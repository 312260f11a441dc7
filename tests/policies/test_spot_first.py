"""Baselines on spot markets, by hand: who takes what while GPUs come and go."""

from __future__ import annotations

from typing import Any

import pytest
from builders import problem

from allocator.engine.decision import decide

POOLS = [
    {"pool": "firm", "market": "on_demand", "price_per_gpu_hour": 3},
    {"pool": "spot", "market": "spot", "price_per_gpu_hour": 1},
]


def plan(policy: str, jobs: list[dict[str, Any]], spot: int) -> list[str]:
    """Pool of every job, "" = waits; each wants 2 GPUs for an hour, rounds of 300 s, now 0."""
    jobs = [
        {"remaining_work": 7200, "requested_gpus": 2, "sizes": [2], "restart_s": 0, **job}
        for job in jobs
    ]
    p = problem(
        jobs=jobs,
        pools=[{**POOLS[0], "gpus": 8}, {**POOLS[1], "gpus": spot}],
        rates={2: 2.0},
        config={"now_s": 0},
    )
    return [name or "" for name in decide(p, policy=policy).jobs["pool"]]


@pytest.mark.parametrize("policy", ["spot-first", "spot-wait"])
def test_spot_goes_first_come_first_served_and_without_a_deadline_nobody_waits(policy: str) -> None:
    """Space for one on spot: the older one gets it, the other goes on demand at once."""
    assert plan(policy, [{"submitted_s": -5}, {"submitted_s": -9}], spot=2) == ["firm", "spot"]


@pytest.mark.parametrize("policy", ["spot-first", "spot-wait"])
def test_who_holds_spot_keeps_it_and_others_move_there_when_it_fits(policy: str) -> None:
    jobs = [
        {"submitted_s": -9, "state": "running", "pool": "firm", "gpus": 2},
        {"submitted_s": -5, "state": "running", "pool": "spot", "gpus": 2},
    ]
    assert plan(policy, jobs, spot=2) == ["firm", "spot"]
    assert plan(policy, jobs, spot=4) == ["spot", "spot"]


def test_waiting_ends_when_the_deadline_leaves_no_round_to_lose() -> None:
    """An hour of work: 3,900 s leave one round of 300 s to lose, 3,899 s do not."""
    assert plan("spot-wait", [{"deadline_s": 3900}, {"deadline_s": 3899}], spot=0) == ["", "firm"]
    assert plan("spot-first", [{"deadline_s": 3900}, {"deadline_s": 3899}], spot=0) == [
        "firm",
        "firm",
    ]


def test_who_must_be_sure_leaves_spot() -> None:
    jobs = [{"deadline_s": 3700, "state": "running", "pool": "spot", "gpus": 2}]
    assert plan("spot-wait", jobs, spot=8) == ["firm"]
    assert plan("spot-first", jobs, spot=8) == ["spot"]
