"""zones: spot pools in five zones of two regions, with reserved and on-demand machines.

All GPUs are V100s at list prices. A policy decides where jobs run and what replaces lost spot
machines. Availability and prices of the zones come from availability.py. Every job has a deadline:
its submission plus 1.5 to 4 times its run time at the requested size. It writes checkpoints, so
that losing a machine costs minutes.
"""

from __future__ import annotations

import numpy as np

from allocator.bench.workloads.parts import availability as spot_zones, draw
from allocator.bench.workloads.parts.measured import (
    CHECKPOINT_EVERY_S,
    CHECKPOINT_S,
    ON_DEMAND,
    STARTUP_S,
)
from allocator.bench.workloads.parts.speeds import draw_training
from allocator.bench.workloads.parts.spot_tables import changes
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload

GPUS = 64  # half of them spot machines when all are available
MACHINE = 4  # GPUs that come and go together, at least
REGIONS = {"west": 3, "east": 2}  # zones of each
RESERVED, ON_DEMAND_SHARE = 0.25, 0.25  # of the GPUs
RESERVED_PRICE = 1.95
SIZES = {1: 0.5, 2: 0.2, 4: 0.2, 8: 0.1}
MEDIAN_S = 3_600.0
SIGMA = 1.2
LONGEST_S = 43_200.0
SLACK = (1.5, 4.0)  # deadline / run time at the request
# mean run of a zone: what policies believe a machine lives
LIFE_H = 6.2


def zones(*, seed: int, load: float, jobs: int, gpus: int | None = None) -> GeneratedWorkload:
    """Return a workload of the generator `zones`.

    `load` is the GPU-hours demanded at the requested sizes / the GPU-hours available, including
    on-demand ones.
    """
    rng = np.random.default_rng(seed)
    total = gpus or GPUS
    reserved = MACHINE * max(1, round(total * RESERVED / MACHINE))
    rented = MACHINE * max(1, round(total * ON_DEMAND_SHARE / MACHINE))
    names = [f"{region}-{'abc'[i]}" for region, count in REGIONS.items() for i in range(count)]
    machines = max(1, round((total - reserved - rented) / MACHINE / len(names)))
    requested = np.minimum(draw.draw_in_strata(rng, SIZES, np.ones(jobs)), reserved)
    run_s = np.minimum(draw.lognormal_in_strata(rng, MEDIAN_S, SIGMA, jobs), LONGEST_S)
    training = draw_training(rng, requested, run_s)
    demand = float(training.gpu_s.sum())
    horizon = 3.0 * demand / ((reserved + rented) * load) + 4 * 86_400.0
    there = spot_zones.zones(rng, tuple(REGIONS.values()), machines, horizon)
    at = np.unique(np.concatenate([z.at_s for z in there]))
    gpus_there = reserved + rented + MACHINE * np.sum([z.at(at) for z in there], axis=0)
    given = np.concatenate([[0.0], np.cumsum(np.diff(at, append=horizon) * gpus_there)])
    window = float(np.interp(demand / load, given, np.append(at, horizon)))
    until = min(horizon, 3.0 * window + 2 * 86_400.0)
    submitted = np.floor(draw.arrivals(rng, np.ones(1), window, jobs))
    slack = rng.uniform(*SLACK, jobs)
    workload: Columns = {
        "job_id": draw.names(jobs),
        "submitted_s": submitted,
        "model": training.model,
        "total_work": training.work,
        "requested_gpus": requested,
        "min_gpus": np.ones(jobs, np.int64),
        "max_gpus": draw.elastic_max(rng, requested, 16),
        "deadline_s": np.ceil(submitted + slack * run_s),
        "checkpoint_s": [CHECKPOINT_S] * jobs,
        "checkpoint_every_s": [CHECKPOINT_EVERY_S] * jobs,
    }
    walks = [spot_zones.prices(rng, ON_DEMAND["V100"], until) for _ in names]
    pools: Columns = {
        "pool": ["reserved", "on-demand", *names],
        "gpu_type": ["V100"] * (2 + len(names)),
        "gpus": [reserved, rented, *(int(z.value[0]) * MACHINE for z in there)],
        "gpus_per_node": [MACHINE] * (2 + len(names)),
        "market": ["reserved", "on_demand", *["spot"] * len(names)],
        "price_per_gpu_hour": [RESERVED_PRICE, ON_DEMAND["V100"], *(float(p[0]) for _, p in walks)],
        "region": ["", "", *names],
        "startup_s": [0, STARTUP_S, *[STARTUP_S] * len(names)],
        "revocations_per_gpu_hour": [0, 0, *[round(1 / LIFE_H / MACHINE, 4)] * len(names)],
    }
    return GeneratedWorkload(
        "zones",
        {"interval_s": 300, "restart_s": 45},
        {
            "workload.csv": workload,
            "pools.csv": pools,
            "models.csv": training.curves,
            **changes(names, there, MACHINE, walks, until),
        },
        window_s=window,
        load=load,
    )
