"""Best-effort jobs next to guaranteed ones: who may share, and what isolation keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import problem, snapshot
from text_tables import columns
from worlds import workload

from allocator.audit import audit
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide, decide_round
from allocator.errors import InvalidInput
from allocator.loop.stability import Stability, find_resting_jobs
from allocator.simulator import SimulationOptions, simulate

Row = dict[str, Any]


def slow(a: float, b: float) -> list[dict[str, str]]:
    """How much the models "g" and "b" slow each other down on one GPU."""
    return columns(f"model_a model_b gpu_type gpus slowdown_a slowdown_b: g b A 1 {a} {b}")


def speeds(a: float, b: float, most: float | None) -> tuple[float, float] | None:
    """Speeds of a guaranteed and a best-effort job: what both do together stays, and the first
    keeps 1 / most of its own. None where nothing is left."""
    first = 1 / a if most is None else max(1 / a, 1 / most)
    second = 1 / a + 1 / b - first
    return (first, second) if second > 0 else None


def pair(weight: float = 1.0, isolation: float | None = None, **rest: Any) -> dict[str, Any]:
    """Two jobs for one GPU."""
    job = {"max_gpus": 1, "memory_gb": 4.0, "remaining_work": 1e4}
    free = {"model": "b", "best_effort": True, "weight": weight}
    pool = {"gpus": 1, "memory_gb": 40.0, "sharing": "best_effort", "isolation": isolation}
    return {
        "jobs": [{**job, "job_id": "g", "model": "g"}, {**job, "job_id": "b", **free}],
        "pools": [pool],
        "rates": columns("model gpu_type gpus work_per_s: g A 1 1; b A 1 1"),
        "config": {"objective": "throughput"},
        **rest,
    }


@pytest.mark.parametrize("isolation", [None, 1.0, 1.1, 1.5])
@pytest.mark.parametrize("weight", [0.05, 0.5, 2.9])
@pytest.mark.parametrize(("a", "b"), [(1.3, 1.4), (2.0, 1.2), (1.9, 2.2)])
def test_the_best_of_all_plans(a: float, b: float, weight: float, isolation: float | None) -> None:
    """One GPU: either job alone, or both at their speeds. The plan has the most value, and the
    audit agrees."""
    p = problem(**pair(weight, isolation, sharing=slow(a, b)))
    decision, both = decide_round(p), speeds(a, b, isolation)
    ways = {"g": (1.0, 0.0), "b": (0.0, 1.0)} | ({"gb": both} if both else {})
    value = {name: g + weight * f for name, (g, f) in ways.items()}
    best = max(value, key=lambda name: value[name])
    rates = decision.witness.rate
    assert rates[0] + weight * rates[1] == pytest.approx(value[best])
    assert tuple(rates) == pytest.approx(ways[best])
    assert audit(p, decision.allocation, decision.round.repairs).faults == ()
    if best == "gb":
        assert decision.allocation.primary.tolist() == [-1, 0]


def test_a_guaranteed_job_is_never_the_second_one() -> None:
    """With sharing "best_effort" the plan names the guaranteed job as primary job, and two
    guaranteed jobs do not share."""
    made = pair(2.0, sharing=slow(1.1, 1.1))
    assert decide(problem(**made)).jobs["shared_with"] == ["b", "g"]
    made["jobs"][1]["best_effort"] = False
    assert decide(problem(**made)).jobs["shared_with"] == [None, None]


def test_the_audit_knows_isolation_and_the_role() -> None:
    p = problem(**pair(0.5, 1.1, sharing=slow(1.5, 1.5)))
    found = decide_round(p)
    rule = {"isolation": 1.0}
    stricter = problem(**pair(0.5, sharing=slow(1.5, 1.5)) | {"pools": [{**_pool(), **rule}]})
    seen = audit(stricter, found.allocation, found.round.repairs)
    assert seen.rate[0] == pytest.approx(1.0) and found.witness.rate[0] == pytest.approx(1 / 1.1)
    both = problem(**pair(0.5, sharing=slow(1.5, 1.5)) | {"jobs": _guaranteed()})
    told = audit(both, found.allocation, found.round.repairs).faults
    assert any('where sharing is "best_effort"' in text for text in told)


def _pool() -> Row:
    pool: Row = pair()["pools"][0]
    return pool


def _guaranteed() -> list[Row]:
    return [{**job, "best_effort": False} for job in pair(0.5)["jobs"]]


def test_guaranteed_jobs_are_slowed_by_isolation_at_most_in_the_simulator() -> None:
    """Guaranteed jobs of 1,000 s arrive every 400 s, and best-effort jobs all the time, on four
    GPUs: all end, no guaranteed job runs for longer than isolation says, and best-effort jobs
    shared GPUs."""
    job = {"max_gpus": 1, "memory_gb": 4.0, "restart_s": 0}
    made = [
        {**job, "model": "g", "total_work": 1000.0, "submitted_s": 400.0 * i, "preemptible": False}
        for i in range(24)
    ]
    made += [
        {**job, "model": "b", "total_work": 700.0, "submitted_s": 100.0 * i, "best_effort": True}
        | {"weight": 0.5}
        for i in range(60)
    ]
    for most in (1.05, 1.2):
        w = workload(
            made,
            pools=[{**_pool(), "gpus": 4, "isolation": most}],
            rates=pair()["rates"],
            sharing=slow(1.4, 1.3),
            config={"objective": "throughput"},
        )
        s = simulate(w, policy="mip", options=SimulationOptions(prove_every=0, interval_s=100.0))
        ran = np.asarray(s.jobs["finished_s"] - s.jobs["started_s"], dtype=np.float64)
        assert np.isfinite(ran).all()
        assert (ran[:24] <= 1000 * most + 1e-6).all()
        assert ran[:24].max() > 1000 + 1e-6


def test_stability_does_not_protect_best_effort_jobs() -> None:
    now = {"state": "running", "pool": "p", "gpus": 1}
    jobs = [{"job_id": "a", **now}, {"job_id": "b", **now, "best_effort": True}]
    p = problem(jobs, [{"pool": "p", "gpus": 2}], config={"now_s": 100})
    since, changed = np.full(2, 90.0), np.ones(2, dtype=bool)
    rules = Stability(cooldown_s=60, min_run_s=60)
    assert find_resting_jobs(p, since, changed, rules).tolist() == [True, False]


def test_best_effort_is_preemptible() -> None:
    with pytest.raises(InvalidInput, match="best_effort jobs may be paused at any time"):
        validate(snapshot([{"best_effort": True, "preemptible": False}]))
