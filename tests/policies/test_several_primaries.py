"""A job on the GPUs of several jobs, and idle ones: against trying every plan, and by hand."""

from __future__ import annotations

from typing import Any

import pytest
from builders import problem, snapshot as snapshot_of_rows
from group_rounds import group_round

import allocator
import allocator.options.instance_building as rounds
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide
from allocator.errors import InvalidInput
from allocator.io.problem_tables import snapshot_folder
from allocator.solvers.base import SolveLimits

EXACT = SolveLimits(gap=0.0)


@pytest.mark.parametrize("seed", range(12))
def test_mip_is_the_best_of_all_plans(seed: int) -> None:
    """Four jobs, every set of primary jobs with idle GPUs, sub-batches, groups that run."""
    round_ = group_round(seed)
    best = round_.best()
    plan = decide(validate(round_.snapshot()), limits=EXACT)
    assert plan.objective_value == pytest.approx(best, rel=1e-6)
    assert plan.bound >= best - 1e-9


@pytest.mark.parametrize("seed", [*range(6), 101])
def test_no_plan_is_above_the_bound_of_kinds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rounds, whose pairs are priced by kinds, while jobs with several primary jobs are
    listed: the plan is within the gap of the best one, and the bound is not below that."""
    monkeypatch.setattr(rounds, "LISTED", 0)
    round_ = group_round(seed)
    best = round_.best()
    for gap in (0.0, 0.02):
        plan = decide(validate(round_.snapshot()), limits=SolveLimits(gap=gap))
        assert best * (1 - gap) - 1e-6 <= plan.objective_value <= best + 1e-6 <= plan.bound + 2e-6


@pytest.mark.soak
def test_mip_is_the_best_of_all_plans_many_times() -> None:
    """The same on 200 rounds more."""
    for seed in range(100, 300):
        test_mip_is_the_best_of_all_plans(seed)


@pytest.mark.soak
def test_no_plan_is_above_the_bound_of_kinds_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on 100 rounds more."""
    for seed in range(102, 200):
        test_no_plan_is_above_the_bound_of_kinds(seed, monkeypatch)


@pytest.mark.parametrize("seed", range(4))
def test_every_policy_keeps_the_rules(seed: int) -> None:
    """The audit, which every decision has to pass, finds no fault in rounds where groups run."""
    p = validate(group_round(seed, jobs=5).snapshot())
    for policy in ("bsbf", "ffs", "sjf", "las", "srtf", "equal", "greedy", "marginal"):
        assert decide(p, policy=policy).gap >= 0


JOB = {"memory_gb": 4.0, "remaining_work": 1000}
POOL = {"gpus": 4, "memory_gb": 10.0, "sharing": "any"}


def rows(*slow: tuple[str, str, float, float]) -> list[dict[str, Any]]:
    return [
        {"model_a": a, "model_b": b, "gpu_type": "A", "gpus": 1, "slowdown_a": x, "slowdown_b": y}
        for a, b, x, y in slow
    ]


def four_gpus(most: int = 3, **more: Any) -> dict[str, Any]:
    """Two jobs run on one GPU each, two GPUs are idle, and a short job wants four."""
    run = {"state": "running", "pool": "p0", "gpus": 1, "min_gpus": 1, "max_gpus": 1}
    jobs = [
        JOB | run | {"model": "m", "remaining_work": 4000},
        JOB | run | {"model": "k", "remaining_work": 2000},
        JOB | {"model": "n", "min_gpus": 4, "max_gpus": 4, "remaining_work": 100} | more,
    ]
    rates = [
        {"model": model, "gpu_type": "A", "gpus": gpus, "work_per_s": 1.0}
        for model in "mkn"
        for gpus in (1, 4)
    ]
    slow = rows(("m", "n", 1.2, 1.1), ("k", "n", 1.3, 1.4))
    return {
        "jobs": jobs,
        "pools": [POOL],
        "rates": rates,
        "sharing": slow,
        "config": {"now_s": 100, "max_primaries": most},
    }


@pytest.mark.parametrize("policy", ["bsbf", "ffs", "mip"])
def test_a_job_joins_two_jobs_and_idle_gpus(policy: str) -> None:
    """It takes two idle GPUs and those of both jobs: at 1/1.4, the slowest of its GPUs. They run
    at 1/1.2 and 1/1.3. All four GPUs are given once."""
    tables = four_gpus()
    plan = decide(problem(**tables), policy=policy, limits=EXACT)
    assert plan.jobs["shared_with"] == ["j2", "j2", "j0|j1"]
    assert plan.jobs["work_per_s"] == pytest.approx([1 / 1.2, 1 / 1.3, 1 / 1.4])
    assert plan.pools[0].used == 4
    assert allocator.audit(allocator.Problem(snapshot_of_rows(**tables)), plan).faults == ()


@pytest.mark.parametrize(
    ("most", "more"), [(1, {}), (3, {"preemptible": False}), (3, {"memory_gb": 7.0})]
)
def test_where_it_may_not_it_waits(most: int, more: dict[str, Any]) -> None:
    """max_primaries is 1, the job may not be moved, or memory is short."""
    p = problem(**four_gpus(most, **more))
    assert decide(p, policy="bsbf").jobs["gpus"] == [1, 1, 0]


def test_bsbf_passes_over_jobs_that_lose() -> None:
    """Next to a job that both slow each other down 2.5 times the short job gains nothing; with
    ffs it shares."""
    tables = four_gpus(remaining_work=3000)
    tables["sharing"] = rows(("m", "n", 1.2, 1.1), ("k", "n", 2.5, 2.5))
    assert decide(problem(**tables), policy="bsbf").jobs["gpus"] == [1, 1, 0]
    assert decide(problem(**tables), policy="ffs").jobs["gpus"] == [1, 1, 4]


def test_explain_names_all_of_them() -> None:
    """explain lists the option with both primary jobs."""
    p = allocator.Problem(snapshot_of_rows(**four_gpus()))
    options = allocator.explain(p, "j2").options
    assert "j0|j1" in [option["beside"] for option in options]


RUNNING = {"state": "running", "pool": "p0", "min_gpus": 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config": {"max_primaries": 1}}, "names 2 jobs, max_primaries is 1"),
        ({"first": {"gpus": 4}}, "holds 5 GPUs, this job 4 GPUs"),
        ({"first": {"preemptible": False}}, 'preemptible is false for "j0"'),
        ({"first": {"shared_with": "j1"}}, "a GPU has two jobs at most"),
        ({"first": {"pool": "p1"}}, "holds 1 GPUs of pool"),
        ({"third": {"shared_with": "j0|j9"}}, "is not in jobs.csv"),
        ({"third": {"shared_with": "j0|j2"}}, "names the job itself"),
        ({"pool": {"market": "spot"}}, 'pool "p0" is a spot pool'),
    ],
)
def test_what_a_snapshot_may_not_say(change: dict[str, dict[str, Any]], words: str) -> None:
    """Each fault of shared_with with several names."""
    jobs = [
        RUNNING | {"gpus": 1} | change.get("first", {}),
        RUNNING | {"gpus": 1},
        RUNNING | {"gpus": 4, "shared_with": "j0|j1"} | change.get("third", {}),
    ]
    pools = [POOL | change.get("pool", {}), {"gpus": 4}]
    config = {"max_primaries": 2} | change.get("config", {})
    with pytest.raises(InvalidInput) as fault:
        problem(jobs, pools, sharing=rows(("m", "m", 1.1, 1.1)), config=config)
    assert words in str(fault.value)


def test_a_snapshot_keeps_the_names() -> None:
    """A round that is written and read again has the same groups."""
    p = validate(group_round(3).snapshot())
    again = validate(snapshot_folder(p))
    assert again.jobs.secondary.tolist() == p.jobs.secondary.tolist()
    assert again.jobs.held.tolist() == p.jobs.held.tolist()
    assert p.max_primaries == again.max_primaries == 3
