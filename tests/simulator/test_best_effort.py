"""Best-effort jobs next to guaranteed ones: who may share, and what isolation keeps."""

from __future__ import annotations

import numpy as np
import pytest
from builders import problem, snapshot
from examples import series
from text_tables import columns
from worlds import workload

from allocator.audit import audit
from allocator.controller.options import Stability
from allocator.controller.steadiness import find_resting_jobs
from allocator.domain.problem import Problem
from allocator.domain.rules.snapshot_rules import validate
from allocator.engine.decision import decide, decide_round
from allocator.errors import InvalidInput
from allocator.simulator import SimulationOptions, simulate

POOL = {"gpus": 1, "memory_gb": 40.0, "sharing": "best_effort"}
RATES = columns("model gpu_type gpus work_per_s: g A 1 1; b A 1 1")
JOB = {"max_gpus": 1, "memory_gb": 4.0}
THROUGHPUT = {"objective": "throughput"}


def slow(a: float, b: float) -> list[dict[str, str]]:
    """How much the models "g" and "b" slow each other down on one GPU."""
    return columns(f"model_a model_b gpu_type gpus slowdown_a slowdown_b: g b A 1 {a} {b}")


def two(best_effort: bool) -> Problem:
    """Two jobs for one GPU."""
    jobs = [{**JOB, "model": "g"}, {**JOB, "model": "b", "best_effort": best_effort}]
    return problem(jobs, [POOL], RATES, config=THROUGHPUT, sharing=slow(1.1, 1.1))


def test_a_guaranteed_job_is_never_the_second_one() -> None:
    """With sharing "best_effort" the plan names the guaranteed job as primary job. Two guaranteed
    jobs do not share, and the audit refuses that plan for them."""
    found, both = decide_round(two(True)), two(False)
    assert found.allocation.primary.tolist() == [-1, 0]
    assert decide(both).jobs["shared_with"] == [None, None]
    told = audit(both, found.allocation, found.round.repairs, found.round.offer).faults
    assert any('where sharing is "best_effort"' in text for text in told)


@pytest.mark.parametrize("most", series([1.05, 1.2], 1))
def test_guaranteed_jobs_are_slowed_by_isolation_at_most_in_the_simulator(most: float) -> None:
    """Guaranteed jobs of 1,000 s arrive every 400 s, and best-effort jobs all the time, on four
    GPUs: all end, no guaranteed job runs for longer than isolation says, and best-effort jobs
    shared GPUs."""
    job = JOB | {"restart_s": 0}
    made = [
        {**job, "model": "g", "total_work": 1000.0, "submitted_s": 400.0 * i, "preemptible": False}
        for i in range(8)
    ]
    made += [
        {**job, "model": "b", "total_work": 700.0, "submitted_s": 100.0 * i, "best_effort": True}
        | {"weight": 0.5}
        for i in range(20)
    ]
    w = workload(
        made,
        pools=[{**POOL, "gpus": 4, "isolation": most}],
        rates=RATES,
        sharing=slow(1.4, 1.3),
        config=THROUGHPUT,
    )
    s = simulate(w, policy="mip", options=SimulationOptions(prove_every=0, interval_s=100.0))
    ran = np.asarray(s.jobs["finished_s"] - s.jobs["started_s"], dtype=np.float64)
    assert np.isfinite(ran).all()
    assert (ran[:8] <= 1000 * most + 1e-6).all()
    assert ran[:8].max() > 1000 + 1e-6


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
