"""Choosing between spot and on demand: by hand, against all plans, and in simulated worlds with
limits on exposure.
"""

from __future__ import annotations

from typing import Any

import pytest

from allocator.bench.workloads import generate
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload
from allocator.domain.workload import Workload
from allocator.simulator import SimulationOptions, simulate

HOUR = 3600


def world(moves: list[tuple[int, int]], jobs: list[dict[str, Any]], spot: int) -> Workload:
    """On demand $3, spot $1 with `spot` GPUs that become `moves`; a unit of work is a second on one
    GPU; rounds of 300 s, no pauses. Jobs of one GPU each."""
    rows: Columns = {
        "job_id": [f"j{i}" for i in range(len(jobs))],
        "submitted_s": [0] * len(jobs),
        "model": ["m"] * len(jobs),
        "total_work": [j["work"] for j in jobs],
        "max_gpus": [1] * len(jobs),
        "deadline_s": [j["due"] for j in jobs],
        "checkpoint_every_s": [300] * len(jobs),
    }
    return GeneratedWorkload(
        "hand",
        {"interval_s": 300, "restart_s": 0, "objective": "cost"},
        {
            "workload.csv": rows,
            "pools.csv": {
                "pool": ["firm", "spot"],
                "gpu_type": ["A", "A"],
                "gpus": [8, spot],
                "market": ["on_demand", "spot"],
                "price_per_gpu_hour": [3, 1],
            },
            "rates.csv": {"model": ["m"], "gpu_type": ["A"], "gpus": [1], "work_per_s": [1]},
            "capacity.csv": {
                "at_s": [t for t, _ in moves],
                "pool": ["spot"] * len(moves),
                "gpus": [k for _, k in moves],
            },
        },
    ).workload()


@pytest.mark.parametrize(
    ("moves", "jobs", "spot", "dollars"),
    [
        # a spot GPU that is always there is all that is bought
        ([], [(HOUR, 2 * HOUR)], 1, (1.0, 1.0)),
        # without a spot GPU the deadline is kept on demand
        ([], [(HOUR, 1.5 * HOUR)], 0, (3.0, 3.0)),
        # it vanishes for good: what is left, and at most 300 s of redone work, is bought on demand
        *(([(gone, 0)], [(HOUR, 1.5 * HOUR)], 1, (1.0, 3.0 + 300 / HOUR)) for gone in (600, 3000)),
        # one for two jobs: who cannot wait gets it; both at once on demand would be 6
        ([], [(HOUR, 4 * HOUR), (HOUR, 1.2 * HOUR)], 1, (2.0, 4.0)),
    ],
)
def test_deadlines_are_kept_for_little(
    moves: list[tuple[int, int]],
    jobs: list[tuple[int, float]],
    spot: int,
    dollars: tuple[float, float],
) -> None:
    """An hour of work each, on a spot GPU for $1 or on demand for $3."""
    s = simulate(world(moves, [{"work": work, "due": due} for work, due in jobs], spot))
    assert all(f <= due for f, (_, due) in zip(s.jobs["finished_s"], jobs, strict=True))
    assert dollars[0] - 1e-9 <= s.metrics["dollars"] <= dollars[1] + 1e-9


@pytest.mark.parametrize("policy", ["mip", "spot-first", "spot-wait"])
def test_nobody_is_more_exposed_than_allowed_at_any_moment(policy: str) -> None:
    """Simulated worlds with guarantees: spot GPUs of every job, and of every tenant in every
    zone, within limits.
    """
    made = generate("exposure", seed=4, jobs=10, gpus=20, load=0.7).workload()
    spans = simulate(made, policy=policy, options=SimulationOptions(prove_every=0)).spans
    p = made.problem
    limit = dict(zip(p.jobs.job_id, p.jobs.max_spot_gpus.tolist(), strict=True))
    tenant = dict(zip(p.jobs.job_id, p.jobs.tenant.tolist(), strict=True))
    on_spot = spans[spans["pool"] != "on-demand"].assign(tenant=lambda f: f["job_id"].map(tenant))
    assert (on_spot["gpus"] <= on_spot["job_id"].map(limit)).all()
    for _, held in on_spot.groupby(["tenant", "pool"]):
        for at in held["from_s"]:
            now = held[(held["from_s"] <= at) & (at < held["to_s"])]
            assert now["gpus"].sum() <= p.tenants.exposure[int(held["tenant"].iloc[0])]
