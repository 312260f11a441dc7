"""Training on transient cloud servers as measured by CM-DARE, simulated from single-worker figures.

Sources: Li, Walls, Guo, "Characterizing and Modeling Distributed Training with Transient Cloud GPU
Servers", ICDCS 2020, and their ICAC 2019 study: ResNet-32 on CIFAR-10, 64,000 steps, asynchronous,
one parameter server. The inputs are steps per second of one worker, the bottleneck of the parameter
server, prices, start-up and checkpoint times, and one hazard. A cluster of n workers has the speed
min(n v1, cap).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from allocator.bench.workloads.parts.tables import GeneratedWorkload
from allocator.domain.problem import Floats
from allocator.domain.workload import Workload
from allocator.simulator import Simulation, SimulationOptions, simulate

STEPS = 64_000
CAP = 44.0  # steps per second that one parameter server sustains
# revocations per K80-hour, censored maximum likelihood over 128 servers
HAZARD = 0.0182
CHECKPOINT_S = 4.0
SERVER = 0.143  # dollars per hour of the parameter server
# Hazard of the first hour and after it through two points of the 128 lifetimes: .078 within 1 h,
# .344 within 24 h.
LATER, BURST = 0.0148, 5.49
SPREAD = 0.04  # of log start-up: 81 to 86 s with a standard deviation of 2 to 4
# seconds from a loss: mean, sd
REPLACED = {"K80": (70.3, 8.1), "P100": (67.3, 5.6), "V100": (70.9, 8.6)}
REVOKED = {1: 0.078, 3: 0.141, 6: 0.156, 12: 0.203, 16: 0.297, 24: 0.344}
SERVERS = 128


@dataclass(frozen=True)
class PublishedCluster:
    """n workers of a type.

    It has the steps per second, dollars per hour and start-up of one worker, and the measured
    seconds and dollars.
    """

    name: str
    n: int
    v1: float
    price: float
    startup_s: float
    measured_s: float
    measured_usd: float
    spot: bool = True


K80, P100, V100 = (4.51, 0.256, 83.0), (11.8, 0.551, 91.0), (15.1, 0.861, 91.0)
CLUSTERS = (
    PublishedCluster("1 K80 on demand", 1, 4.51, 0.723, 72.0, 14081, 2.828, spot=False),
    PublishedCluster("2 K80", 2, *K80, 7765, 1.411),
    PublishedCluster("4 K80", 4, *K80, 3765, 1.157),
    PublishedCluster("8 K80", 8, *K80, 1841, 1.115),
    PublishedCluster("1 P100", 1, *P100, 5417, 0.829),
    PublishedCluster("4 P100", 4, *P100, 1694, 1.104),
    PublishedCluster("1 V100", 1, *V100, 4436, 1.061),
    PublishedCluster("4 V100", 4, *V100, 1560, 1.554),
)


def run(cluster: PublishedCluster, runs: int, seed: int = 0, spread: float = 0.0) -> Simulation:
    """Simulate independent runs of a cluster at the same time.

    A single worker needs no parameter server. `spread` is that of the logarithm of start-up times.
    """
    n = cluster.n
    price = cluster.price + (SERVER / n if n > 1 else 0.0)
    workload = GeneratedWorkload(
        "transient",
        {"interval_s": 86_400.0, "restart_s": 0},
        {
            "workload.csv": {
                "job_id": [f"run-{i}" for i in range(runs)],
                "submitted_s": np.zeros(runs),
                "model": ["resnet-32"] * runs,
                "total_work": [STEPS] * runs,
                "requested_gpus": [n] * runs,
                "min_gpus": [n] * runs,
                "max_gpus": [n] * runs,
                "sizes": [(n,)] * runs,
                "synchronous": ["false"] * runs,
                "checkpoint_s": [CHECKPOINT_S] * runs,
            },
            "pools.csv": {
                "pool": ["workers"],
                "gpu_type": ["GPU"],
                "gpus": [n * runs],
                "gpus_per_node": [1],
                "market": ["spot" if cluster.spot else "on_demand"],
                "price_per_gpu_hour": [price],
                "startup_s": [cluster.startup_s],
                "lifetime_s": [86_400 if cluster.spot else None],
                "revocations_per_gpu_hour": [HAZARD if cluster.spot else 0],
            },
            "rates.csv": {
                "model": ["resnet-32"],
                "gpu_type": ["GPU"],
                "gpus": [n],
                "work_per_s": [min(n * cluster.v1, CAP)],
            },
        },
    ).workload()
    return simulate(
        workload,
        policy="static",
        options=SimulationOptions(
            seed=seed, checkpoints="young-daly", prove_every=0, startup_spread=spread
        ),
    )


def starts(mean_s: float, sd_s: float, count: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Return simulated seconds of starts and of replacements, (count,) each.

    A start lasts from the order of a server until it works, and a replacement from a loss until the
    new server works. Every server lives an hour. It works on a job of half an hour and, with the
    same random draws, on one of 90 minutes.
    """
    short, long = (_served(mean_s, sd_s, work_s, count, seed) for work_s in (1800.0, 5400.0))
    return short - 1800.0, long - short - 3600.0


def _served(mean_s: float, sd_s: float, work_s: float, count: int, seed: int) -> Floats:
    """Return the seconds that jobs of this work take on one server each, shape (count,)."""
    options = SimulationOptions(
        seed=seed, prove_every=0, startup_spread=float(np.sqrt(np.log1p((sd_s / mean_s) ** 2)))
    )
    workload = _single("starts", count, work_s, startup_s=mean_s, lifetime_s=3600.0)
    return simulate(workload, policy="static", options=options).jobs["jct_s"].to_numpy(np.float64)


def revoked_within(servers: int, hours: float, hazard: float, burst: float, seed: int = 0) -> float:
    """Return the share of servers that the simulator has revoked within so many hours."""
    seconds = hours * 3600.0
    workload = _single(
        "lifetimes", servers, seconds, startup_s=86_400.0, revocations_per_gpu_hour=hazard
    )
    done = simulate(
        workload,
        policy="static",
        options=SimulationOptions(seed=seed, spot_burst=burst, prove_every=0),
    )
    return float((done.jobs["revocations"] > 0).mean())


def _single(name: str, servers: int, work_s: float, **pool: float) -> Workload:
    """Return asynchronous jobs of `work_s` seconds on one spot server each.

    `pool` has further columns of the pools.
    """
    return GeneratedWorkload(
        name,
        {"interval_s": 86_400.0},
        {
            "workload.csv": {
                "job_id": [f"server-{i}" for i in range(servers)],
                "submitted_s": np.zeros(servers),
                "model": ["m"] * servers,
                "total_work": [work_s] * servers,
                "synchronous": ["false"] * servers,
                "requested_gpus": np.ones(servers, np.int64),
                "max_gpus": np.ones(servers, np.int64),
            },
            "pools.csv": {
                "pool": ["workers"],
                "gpu_type": ["GPU"],
                "gpus": [servers],
                "gpus_per_node": [1],
                "market": ["spot"],
                **{column: [value] for column, value in pool.items()},
            },
            "rates.csv": {"model": ["m"], "gpu_type": ["GPU"], "gpus": [1], "work_per_s": [1.0]},
        },
    ).workload()
