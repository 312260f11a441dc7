"""mixed: four GPU types, speeds that differ by model and type, prices and a budget.

The GPU-hours of a job on V100s are drawn first (classes of the Philly trace from 0.1 GPU-hours on).
Its model and its request follow from them, as in the workloads of Pollux and Sia. Each model
variant has its own speed-up of an A100 over a V100, and its own overhead of a further GPU. A
quarter of the jobs name the types that they accept. All jobs write checkpoints, so that losing GPUs
costs minutes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.measured import (
    CHECKPOINT_EVERY_S,
    CHECKPOINT_S,
    ON_DEMAND,
    SPOT,
    SPOT_REVOCATIONS,
    STARTUP_S,
)
from allocator.bench.workloads.parts.speeds import draw_training
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload

GPUS = 64
POOLS = (
    ("T4", 0.25, "spot", 4),
    ("V100", 0.375, "reserved", 8),
    ("A100", 0.25, "on_demand", 8),
    ("H100", 0.125, "on_demand", 8),
)  # type, share of the GPUs, market, GPUs per node
RESERVED = 0.66  # reserved price / on-demand price
# GPU-hours, log-uniform inside
CLASSES = ((0.1, 1.0), (1.0, 10.0), (10.0, 100.0), (100.0, 200.0))
CLASS_SHARE = (0.62, 0.26, 0.10, 0.02)
REQUESTS = ((1, 2), (1, 2, 4), (2, 4, 8), (8, 16))
LARGEST = 32
PICKY = 0.25  # share of the jobs that name types; measured: 29 %
ACCEPTED = (("A100", "H100"), ("A100", "V100"), ("T4", "V100"))
BUDGET = 0.8  # share of the price of everything
# name, share of jobs, weight
TENANTS = (("research", 0.45, 2.0), ("product", 0.35, 1.0), ("students", 0.20, 0.5))


def mixed(*, seed: int, load: float, jobs: int, gpus: int | None = None) -> GeneratedWorkload:
    """Return a workload of the generator `mixed`.

    `load` is the V100-hours demanded at the requested sizes / the V100-hours that the cluster has
    while jobs are submitted. A GPU of another type counts as many V100s as it is faster for this
    workload (mean over the work). The budget buys a fifth less than the whole cluster; the load
    does not account for that.
    """
    rng = np.random.default_rng(seed)
    kind = draw.draw_in_strata(rng, dict(enumerate(CLASS_SHARE)), np.ones(jobs))
    low, high = np.array(CLASSES)[kind].T
    gpu_s = 3_600.0 * np.exp(rng.uniform(np.log(low), np.log(high)))
    requested = np.array(
        [
            REQUESTS[q][i % len(REQUESTS[q])]
            for q, i in zip(kind.tolist(), rng.integers(0, 12, jobs).tolist(), strict=True)
        ],
        np.int64,
    )
    types = [p[0] for p in POOLS]
    pools = _pools(gpus or GPUS)
    requested = np.minimum(requested, min(pools["gpus"]))
    training = draw_training(rng, requested, gpu_s / requested, types)
    v100s = sum(
        n * training.mean_speed_up(requested, t) for t, n in zip(types, pools["gpus"], strict=True)
    )
    window = draw.window_s(float(training.gpu_s.sum()), v100s, load)
    tenant = rng.choice(len(TENANTS), jobs, p=[t[1] for t in TENANTS])
    picky = np.where(rng.random(jobs) < PICKY, rng.integers(0, len(ACCEPTED), jobs), -1)
    workload: Columns = {
        "job_id": draw.names(jobs),
        "submitted_s": np.floor(draw.arrivals(rng, np.ones(1), window, jobs)),
        "model": training.model,
        "total_work": training.work,
        "requested_gpus": requested,
        "min_gpus": np.ones(jobs, np.int64),
        "max_gpus": draw.elastic_max(rng, requested, LARGEST),
        "gpu_types": [None if p < 0 else ACCEPTED[p] for p in picky.tolist()],
        "tenant": [TENANTS[t][0] for t in tenant.tolist()],
        "checkpoint_s": [CHECKPOINT_S] * jobs,
        "checkpoint_every_s": [CHECKPOINT_EVERY_S] * jobs,
    }
    total = sum(pools["gpus"])
    tenants: Columns = {
        "tenant": [t[0] for t in TENANTS],
        "weight": [t[2] for t in TENANTS],
        "max_gpus": [None, None, total // 4],
        "guaranteed_gpus": [None, total // 8, None],
    }
    hourly_cost = sum(
        n * p for n, p in zip(pools["gpus"], pools["price_per_gpu_hour"], strict=True)
    )
    return GeneratedWorkload(
        "mixed",
        {"interval_s": 300, "restart_s": 45, "budget_per_hour": round(BUDGET * hourly_cost)},
        {
            "workload.csv": workload,
            "pools.csv": pools,
            "models.csv": training.curves,
            "tenants.csv": tenants,
        },
        window_s=window,
        load=load,
    )


def _pools(gpus: int) -> dict[str, list[Any]]:
    """Return about `gpus` GPUs in whole nodes, with at least one node of each type."""
    price = {
        "spot": SPOT,
        "on_demand": ON_DEMAND,
        "reserved": {t: round(RESERVED * p, 2) for t, p in ON_DEMAND.items()},
    }
    return {
        "pool": [t.lower() for t, *_ in POOLS],
        "gpu_type": [t for t, *_ in POOLS],
        "gpus": [node * max(1, round(share * gpus / node)) for _, share, _, node in POOLS],
        "gpus_per_node": [node for *_, node in POOLS],
        "market": [market for _, _, market, _ in POOLS],
        "price_per_gpu_hour": [price[market][t] for t, _, market, _ in POOLS],
        "startup_s": [0 if market == "reserved" else STARTUP_S for _, _, market, _ in POOLS],
        "revocations_per_gpu_hour": [
            SPOT_REVOCATIONS if market == "spot" else 0 for _, _, market, _ in POOLS
        ],
    }
