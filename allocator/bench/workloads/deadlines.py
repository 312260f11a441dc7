"""deadlines: jobs with deadlines, on-demand machines without limit, and cheap spot zones.

Spot machines cost a third of on-demand ones. All GPUs are V100s at list prices, in zones like those
of zones.py. A policy decides only which machine to take and when to wait for a cheap one. Every job
has a deadline: its submission plus 600 s plus 1.5 to 3 times its run time at the requested size. It
writes checkpoints, so that losing a machine costs minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.bench.workloads.parts import availability, draw
from allocator.bench.workloads.parts.availability import StepFunction
from allocator.bench.workloads.parts.measured import (
    CHECKPOINT_EVERY_S,
    CHECKPOINT_S,
    ON_DEMAND,
    STARTUP_S,
)
from allocator.bench.workloads.parts.speeds import draw_training
from allocator.bench.workloads.parts.spot_tables import Walk, changes
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload
from allocator.bench.workloads.zones import LIFE_H, MACHINE, REGIONS
from allocator.domain.problem import Floats

GPUS = 40  # spot GPUs when all are available
PLENTY = 16  # on-demand GPUs for each spot GPU: always enough
SIZES = {1: 0.40, 2: 0.25, 4: 0.20, 8: 0.15}
MEDIAN_S = 9_000.0
SIGMA = 1.0
SHORTEST_S = 1_200.0
LONGEST_S = 86_400.0
# deadline - submission = GRACE_S + SLACK x run time at the request
SLACK = (1.5, 3.0)
GRACE_S = 600.0


def deadlines(*, seed: int, load: float, jobs: int, gpus: int | None = None) -> GeneratedWorkload:
    """Return a workload of the generator `deadlines`.

    Parameters
    ----------
    seed : of every draw.
    load : GPU-hours demanded at the requested sizes / GPU-hours available on spot.
    jobs : number of jobs.
    gpus : spot GPUs when all are available.
    """
    rng = np.random.default_rng(seed)
    names = [f"{region}-{'abc'[i]}" for region, count in REGIONS.items() for i in range(count)]
    machines = max(1, round((gpus or GPUS) / MACHINE / len(names)))

    most = machines * MACHINE * len(names)
    wanted = demand(rng, jobs, most)
    until_s = 6.0 * float(wanted.gpu_s.sum()) / (most * load) + 8 * 86_400.0
    there = availability.zones(rng, tuple(REGIONS.values()), machines, until_s)
    walks = [availability.prices(rng, ON_DEMAND["V100"], until_s) for _ in names]
    return submit_on_market("deadlines", rng, wanted, SpotZones(names, there, MACHINE, walks), load)


@dataclass(frozen=True)
class Demand:
    """Jobs without submission times, models.csv, and GPU-seconds at the requested sizes (J,).

    deadline_s counts from the submission.
    """

    jobs: Columns
    curves: Columns
    gpu_s: Floats


@dataclass(frozen=True)
class SpotZones:
    """Spot pools over time: available machines, each of `machine` GPUs, and prices."""

    names: Sequence[str]
    there: Sequence[StepFunction]
    machine: int
    walks: Sequence[Walk]


def demand(rng: np.random.Generator, jobs: int, most: int) -> Demand:
    """Draw the jobs of this family of workloads; no request is above `most` GPUs."""
    requested = np.minimum(draw.draw_in_strata(rng, SIZES, np.ones(jobs)), most)
    run_s = np.clip(draw.lognormal_in_strata(rng, MEDIAN_S, SIGMA, jobs), SHORTEST_S, LONGEST_S)
    training = draw_training(rng, requested, run_s)
    return Demand(
        {
            "job_id": draw.names(jobs),
            "model": training.model,
            "total_work": training.work,
            "requested_gpus": requested,
            "min_gpus": np.ones(jobs, np.int64),
            "max_gpus": draw.elastic_max(rng, requested, 16),
            "deadline_s": GRACE_S + rng.uniform(*SLACK, jobs) * run_s,
            "checkpoint_s": [CHECKPOINT_S] * jobs,
            "checkpoint_every_s": [CHECKPOINT_EVERY_S] * jobs,
        },
        training.curves,
        training.gpu_s,
    )


def submit_on_market(
    name: str, rng: np.random.Generator, wanted: Demand, zones: SpotZones, load: float
) -> GeneratedWorkload:
    """Return a workload of the jobs and the zones.

    The window of submissions is the time in which the spot zones have the GPU-hours of the jobs
    divided by the load.
    """
    names = zones.names
    machine = zones.machine
    at = np.unique(np.concatenate([z.at_s for z in zones.there]))
    gpus = machine * np.sum([z.at(at) for z in zones.there], axis=0)
    total = float(wanted.gpu_s.sum()) / load
    given = np.concatenate([[0.0], np.cumsum(np.diff(at) * gpus[:-1])])
    window = float(np.interp(total, given, at)) if total < given[-1] else float(at[-1])
    window = max(window, 1.0)
    jobs = len(wanted.gpu_s)
    until = min(3.0 * window + 2 * 86_400.0, float(at[-1]))
    submitted = np.floor(draw.arrivals(rng, np.ones(1), window, jobs))
    pools: Columns = {
        "pool": ["on-demand", *names],
        "gpu_type": ["V100"] * (1 + len(names)),
        "gpus": [
            PLENTY * machine * int(max(z.value.max() for z in zones.there)) * len(names),
            *(int(z.value[0]) * machine for z in zones.there),
        ],
        "gpus_per_node": [MACHINE] * (1 + len(names)),
        "market": ["on_demand", *["spot"] * len(names)],
        "price_per_gpu_hour": [ON_DEMAND["V100"], *(float(p[0]) for _, p in zones.walks)],
        "region": ["", *names],
        "startup_s": [STARTUP_S] * (1 + len(names)),
        "revocations_per_gpu_hour": [0, *[round(1 / LIFE_H / MACHINE, 4)] * len(names)],
    }
    return GeneratedWorkload(
        name,
        {"interval_s": 300, "restart_s": 45, "objective": "cost"},
        {
            "workload.csv": {
                **wanted.jobs,
                "submitted_s": submitted,
                "deadline_s": np.ceil(submitted + np.asarray(wanted.jobs["deadline_s"])),
            },
            "pools.csv": pools,
            "models.csv": wanted.curves,
            **changes(names, zones.there, machine, zones.walks, until),
        },
        window_s=window,
        load=load,
    )
