"""spot: reserved V100s and A100s on the spot market, whose number and price change.

Groups of spot machines are available and gone in turn. The lengths are mixtures of a short and a
long exponential, since measured ones are heavy-tailed. (One V100 in us-west-2 was available 88 % of
the time, with runs of 6 hours in the mean and one in the median, and gaps of one hour and of 23
minutes.) A removal takes one machine or several, because groups have several sizes. The spot price
varies slowly above a floor of 0.30 of the price on demand, as on AWS in 2020.
"""

from __future__ import annotations

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.availability import draw_stretches, prices
from allocator.bench.workloads.parts.measured import (
    CHECKPOINT_EVERY_S,
    CHECKPOINT_S,
    ON_DEMAND,
    SPOT_REVOCATIONS,
    STARTUP_S,
)
from allocator.bench.workloads.parts.speeds import draw_training
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload
from allocator.domain.problem import Floats, Ints

GPUS = 48
MACHINE = 4  # GPUs that come and go together, at least
RESERVED = 1 / 3  # share of the GPUs
GROUPS = (1, 2, 1, 4)  # machines of one group, in turn
# share and mean of the two kinds of runs: mean 6.2, median about 1
THERE_H = ((0.55, 0.6), (0.45, 13.0))
GONE_H = ((0.70, 0.4), (0.30, 2.5))  # mean 1.0, median about 0.45
SIZES = {1: 0.5, 2: 0.2, 4: 0.2, 8: 0.1}
MEDIAN_S = 2_400.0
SIGMA = 1.3
LONGEST_S = 43_200.0


def spot(*, seed: int, load: float, jobs: int, gpus: int | None = None) -> GeneratedWorkload:
    """Return a workload of the generator `spot`.

    `load` is the V100-hours demanded at the requested sizes / the V100-hours available while jobs
    are submitted.
    """
    rng = np.random.default_rng(seed)
    reserved, machines = _machines(gpus or GPUS)
    requested = np.minimum(draw.draw_in_strata(rng, SIZES, np.ones(jobs)), reserved)
    run_s = np.minimum(draw.lognormal_in_strata(rng, MEDIAN_S, SIGMA, jobs), LONGEST_S)
    training = draw_training(rng, requested, run_s, ("V100", "A100"))
    faster = training.mean_speed_up(requested, "A100")
    horizon = 3.0 * float(training.gpu_s.sum()) / (reserved * load) + 86_400.0
    at, there = availability(rng, machines, horizon)
    passed = np.diff(at, append=horizon)
    given = np.concatenate([[0.0], np.cumsum(passed * (reserved + there * MACHINE * faster))])
    window = float(np.interp(training.gpu_s.sum() / load, given, np.append(at, horizon)))
    prices_at, price = prices(rng, ON_DEMAND["A100"], 3.0 * window + 86_400.0)
    workload: Columns = {
        "job_id": draw.names(jobs),
        "submitted_s": np.floor(draw.arrivals(rng, np.ones(1), window, jobs)),
        "model": training.model,
        "total_work": training.work,
        "requested_gpus": requested,
        "min_gpus": np.ones(jobs, np.int64),
        "max_gpus": draw.elastic_max(rng, requested, 16),
        "checkpoint_s": [CHECKPOINT_S] * jobs,
        "checkpoint_every_s": [CHECKPOINT_EVERY_S] * jobs,
    }
    pools: Columns = {
        "pool": ["v100", "a100-spot"],
        "gpu_type": ["V100", "A100"],
        "gpus": [reserved, int(there[0]) * MACHINE],
        "gpus_per_node": [8, MACHINE],
        "market": ["reserved", "spot"],
        "price_per_gpu_hour": [1.95, float(price[0])],
        "startup_s": [0, STARTUP_S],
        "revocations_per_gpu_hour": [0, SPOT_REVOCATIONS],
    }
    until = 3.0 * window + 86_400.0
    kept = np.flatnonzero(at <= until)[1:]
    capacity: Columns = {
        "at_s": np.round(at[kept]),
        "pool": ["a100-spot"] * len(kept),
        "gpus": there[kept] * MACHINE,
    }
    walk: Columns = {
        "at_s": prices_at[1:],
        "pool": ["a100-spot"] * (len(price) - 1),
        "price_per_gpu_hour": price[1:],
    }
    return GeneratedWorkload(
        "spot",
        {"interval_s": 300, "restart_s": 45},
        {
            "workload.csv": workload,
            "pools.csv": pools,
            "models.csv": training.curves,
            "capacity.csv": capacity,
            "prices.csv": walk,
        },
        window_s=window,
        load=load,
    )


def _machines(gpus: int) -> tuple[int, int]:
    """Return the number of reserved GPUs and of spot machines, at least one of each."""
    reserved = MACHINE * max(1, round(gpus * RESERVED / MACHINE))
    return reserved, max(1, round((gpus - reserved) / MACHINE))


def availability(rng: np.random.Generator, machines: int, until_s: float) -> tuple[Floats, Ints]:
    """Draw the times, from 0 on, at which the number of machines changes, and the numbers."""
    times = [np.zeros(1)]
    steps = [np.zeros(1, np.int64)]
    left = machines
    turn = 0
    while left:
        size = min(left, GROUPS[turn % len(GROUPS)])
        left = left - size
        turn = turn + 1
        runs = 2 + int(2 * until_s / 3_600.0)
        lengths = np.empty(2 * runs)
        lengths[::2] = draw_stretches(rng, THERE_H, runs)
        lengths[1::2] = draw_stretches(rng, GONE_H, runs)
        ends = np.ceil(np.cumsum(lengths))
        ends = ends[ends < until_s]
        times += [np.zeros(1), ends]
        steps += [np.array([size]), np.where(np.arange(len(ends)) % 2, size, -size)]
    at, place = np.unique(np.concatenate(times), return_inverse=True)
    return at, np.cumsum(np.bincount(place, np.concatenate(steps))).astype(np.int64)
