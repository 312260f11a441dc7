"""Baselines on spot markets, by hand: who takes what while GPUs come and go."""

from __future__ import annotations

import pytest
from builders import problem
from text_tables import given

from allocator.engine.decision import decide


def plan(policy: str, jobs: str, spot: int) -> str:
    """Pool of every job, - = waits; each wants 2 GPUs for an hour, rounds of 300 s, now 0."""
    rows = given(
        f"""jobs: {jobs} / rates: gpu_type=A gpus=2 work_per_s=2 / config: now_s=0 /
        pools: pool=firm gpus=8 market=on_demand price_per_gpu_hour=3;
        pool=spot gpus={spot} market=spot price_per_gpu_hour=1"""
    )
    each = {"remaining_work": 7200, "requested_gpus": 2, "sizes": [2], "restart_s": 0}
    rows["jobs"] = [each | job for job in rows["jobs"]]
    return " ".join(name or "-" for name in decide(problem(**rows), policy=policy).jobs["pool"])


@pytest.mark.parametrize("policy", ["spot-first", "spot-wait"])
def test_spot_goes_first_come_first_served_and_without_a_deadline_nobody_waits(policy: str) -> None:
    """Space for one on spot: the older one gets it, the other goes on demand at once."""
    assert plan(policy, "submitted_s=-5; submitted_s=-9", spot=2) == "firm spot"


@pytest.mark.parametrize("policy", ["spot-first", "spot-wait"])
def test_who_holds_spot_keeps_it_and_others_move_there_when_it_fits(policy: str) -> None:
    jobs = """submitted_s=-9 state=running pool=firm gpus=2;
        submitted_s=-5 state=running pool=spot gpus=2"""
    assert plan(policy, jobs, spot=2) == "firm spot"
    assert plan(policy, jobs, spot=4) == "spot spot"


def test_waiting_ends_when_the_deadline_leaves_no_round_to_lose() -> None:
    """An hour of work: 3,900 s leave one round of 300 s to lose, 3,899 s do not."""
    jobs = "deadline_s=3900; deadline_s=3899"
    assert plan("spot-wait", jobs, spot=0) == "- firm"
    assert plan("spot-first", jobs, spot=0) == "firm firm"


def test_who_must_be_sure_leaves_spot() -> None:
    jobs = "deadline_s=3700 state=running pool=spot gpus=2"
    assert plan("spot-wait", jobs, spot=8) == "firm"
