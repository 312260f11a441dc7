"""Simulate the clusters of revocable servers on which ResNet-32 was trained.

The source is Li et al., ICAC 2019. `PUBLISHED` has the measured results. The inputs are speeds of
single servers, prices, start-up times and hazards (data/spot/resnet32.csv).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allocator.bench.workloads.parts.tables import GeneratedWorkload
from allocator.domain.problem import Floats
from allocator.domain.workload import Workload
from allocator.market.clusters import TransientCluster
from allocator.market.spot import RunForecast, forecast_run
from allocator.performance.fit.transient import HazardFit
from allocator.simulator import SimulationOptions, simulate
from formulations.transient.revocations import Hazard

WORK = 64_000.0
PUBLISHED = {  # mean seconds, mean dollars, runs
    name: (float(seconds), float(dollars), int(runs))
    for line in """
1 K80 on demand 14081 2.828 10
2 K80 on demand 7172 3.17 10
4 K80 on demand 3581 3.02 10
8 K80 on demand 1830 3.01 10
2 K80 spot 7765 1.411 31
4 K80 spot 3765 1.157 31
8 K80 spot 1841 1.115 32
1 P100 spot 5417 0.829 33
1 V100 spot 4436 1.061 24
4 P100 spot 1694 1.104 10
4 V100 spot 1560 1.554 10
2 V100 + P100 + K80 spot 1760 1.327 10
V100 + 2 P100 + K80 spot 1789 1.173 10
V100 + P100 + 2 K80 spot 2001 1.148 10
""".strip().splitlines()
    for name, seconds, dollars, runs in [line.rsplit(maxsplit=3)]
}
# seconds from a loss until the replacement works: mean, sd
REPLACED = {"K80": (70.3, 8.1), "P100": (67.3, 5.6), "V100": (70.9, 8.6)}
# K80: revoked by age
EDGES_H, REVOKED, SERVERS = (0, 1, 3, 6, 12, 16, 24), (10, 8, 2, 6, 12, 6), 128


@dataclass(frozen=True)
class SimulatedRuns:
    """Results of simulated runs.

    They have mean seconds and its standard error, dollars and revocations per run, and the share of
    runs that lost a server.
    """

    seconds: float
    error: float
    dollars: float
    revocations: float
    touched: float


def workload(seen: RunForecast, runs: int, work: float = WORK) -> Workload:
    """Return `runs` copies of one job, each on its own servers, at the speed of the forecast.

    All servers of a cluster must be of one kind.
    """
    c = seen.cluster
    k, hazard = int(c.workers[0]), c.hazards[0]
    life, every = (
        "" if math.isinf(s) else repr(s) for s in (hazard.lifetime_h * 3600, seen.every_s)
    )
    job = {"submitted_s": 0.0, "model": "resnet32", "total_work": work, "sizes": str(k)}
    job |= dict.fromkeys(("requested_gpus", "min_gpus", "max_gpus"), k)
    job |= {"synchronous": str(c.synchronous).lower(), "checkpoint_s": c.checkpoint_s}
    pool = {"pool": "servers", "gpu_type": c.gpu_types[0], "gpus": runs * k, "gpus_per_node": k}
    pool |= {"market": "spot" if c.spot[0] else "on_demand", "lifetime_s": life}
    pool |= {"price_per_gpu_hour": c.dollars_per_hour / k, "startup_s": float(c.startup_s[0])}
    pool |= {"revocations_per_gpu_hour": float(hazard.per_hour[-1])}
    speed = {"model": "resnet32", "gpu_type": c.gpu_types[0], "gpus": k, "work_per_s": seen.speed}
    jobs = {name: [value] * runs for name, value in (job | {"checkpoint_every_s": every}).items()}
    return GeneratedWorkload(
        "transient",
        {"interval_s": 1e7, "restart_s": 0},
        {
            "workload.csv": {"job_id": [f"run-{i}" for i in range(runs)], **jobs},
            "pools.csv": {name: [value] for name, value in pool.items()},
            "rates.csv": {name: [value] for name, value in speed.items()},
        },
    ).workload()


def simulate_runs(
    seen: RunForecast, runs: int, seed: int = 0, burst: float = 1.0, work: float = WORK
) -> SimulatedRuns:
    """Simulate the runs of a forecast and return their results.

    `burst` is the hazard of the first hour over the later one, which is that of the last piece of
    the forecast.
    """
    options = SimulationOptions(seed=seed, spot_burst=burst, prove_every=0, react_s=1e-6)
    jobs = simulate(workload(seen, runs, work), policy="static", options=options).jobs
    seconds = jobs["jct_s"].to_numpy(dtype=np.float64)
    return SimulatedRuns(
        float(seconds.mean()),
        float(seconds.std(ddof=1) / math.sqrt(runs)),
        float(jobs["dollars"].mean()),
        float(jobs["revocations"].mean()),
        float((jobs["revocations"] > 0).mean()),
    )


def revoked_within(
    hours: float, hazard_per_hour: float, burst: float, runs: int, seed: int = 0
) -> float:
    """Return the share of simulated servers that are revoked within so many hours.

    Each run has one server and this length.
    """
    hazard = Hazard.constant(hazard_per_hour)
    return simulate_runs(_one_server(hazard, 0.0, hours), runs, seed, burst, hours * 3600).touched


def fit_hazard_counts(edges_h: Sequence[float], revoked: Sequence[int], servers: int) -> HazardFit:
    """Fit a hazard to the number of servers that were revoked in each interval of age.

    It is the maximum-likelihood estimate for grouped data, which reproduces the observed shares
    exactly. The server-hours of the result are computed from the midpoints of the pieces.
    """
    edges, seen = np.asarray(edges_h, dtype=np.float64), np.asarray(revoked, dtype=np.float64)
    alive = servers - np.concatenate([[0.0], np.cumsum(seen)])
    width, q = np.diff(edges), seen / alive[:-1]
    return HazardFit(
        Hazard(-np.log1p(-q) / width, edges[:-1]),
        seen,
        width * (alive[1:] + seen / 2),
        np.sqrt(q / alive[:-1] / (1.0 - q)) / width,
    )


def starts(mean_s: float, sd_s: float, count: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Return simulated seconds of starts and of replacements, (count,) each.

    A start lasts from the order of a server until it works, and a replacement from a loss until the
    new server works. Every server lives an hour. It works on a job of half an hour and, with the
    same random draws, on one of 90 minutes.
    """
    spread = math.sqrt(math.log1p((sd_s / mean_s) ** 2))
    options = SimulationOptions(seed=seed, prove_every=0, startup_spread=spread)
    hazard = Hazard.constant(0.0, lifetime_h=1.0)
    short, long = (
        simulate(
            workload(_one_server(hazard, mean_s, hours), count, hours * 3600),
            policy="static",
            options=options,
        )
        .jobs["jct_s"]
        .to_numpy(np.float64)
        for hours in (0.5, 1.5)
    )
    return short - 1800.0, long - short - 3600.0


def _one_server(hazard: Hazard, startup_s: float, hours: float) -> RunForecast:
    """Return the forecast of so many hours of work on one asynchronous spot server."""
    server = TransientCluster(
        name="one",
        gpu_types=("K80",),
        spot=np.ones(1, dtype=np.bool_),
        workers=np.ones(1, dtype=np.int64),
        work_per_s=np.ones(1),
        price=np.zeros(1),
        hazards=(hazard,),
        startup_s=np.full(1, startup_s),
        replace_s=np.full(1, startup_s),
        servers_price=0.0,
        cap=math.inf,
        sharpness=math.inf,
        measured=math.nan,
        checkpoint_s=0.0,
        every_s=math.nan,
        synchronous=False,
        quality=math.nan,
    )
    return forecast_run(server, hours * 3600)
