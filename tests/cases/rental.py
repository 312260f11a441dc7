"""The two-class example of renting GPUs on a budget, as workloads, with its theory.

Source: Li, Berg, Mukhopadhyay, Harchol-Balter, EPEW 2024. Two classes arrive at .4 an hour each,
with mean size 1 GPU-hour. One speeds up by Amdahl's law with parallel part .8, the other by
sqrt(k). With a long-run budget of b GPUs the least mean response time is min sum_i rho_i / s_i(k_i)
over widths with sum_i rho_i k_i / s_i(k_i) <= b, whatever the distribution of sizes. At b = 2 the
widths are 6 and 9, mu = 1/9, E[T] = 1/3 h, and sd K = 3.95 with Poisson arrivals (M/G/infinity).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from allocator.bench.workloads.parts.tables import GeneratedWorkload
from allocator.domain.problem import Floats, Ints
from allocator.domain.workload import Workload

RATE = 0.4  # arrivals per hour of each class
MOST = 16  # GPUs of one job
LAWS = ("exponential", "deterministic", "heavy-tailed")
TAIL = 2.2  # of the Pareto law: finite variance, infinite third moment
HOUR = 3600.0
K = np.arange(1, MOST + 1)


def amdahl(k: Floats | Ints) -> Floats:
    """Speed-up with a parallel part of .8."""
    return np.asarray(1.0 / (0.2 + 0.8 / k), dtype=np.float64)


def sizes(rng: np.random.Generator, law: str, count: int) -> Floats:
    """Draw sizes with mean 1, shape (count,)."""
    if law == "exponential":
        return rng.exponential(1.0, count)
    if law == "deterministic":
        return np.ones(count)
    return (TAIL - 1) / TAIL * (1.0 + rng.pareto(TAIL, count))


def workload(
    arrivals: int,
    *,
    law: str = "exponential",
    seed: int = 0,
    mu: float = 1 / 9,
    gpus: int = 400,
    requested: tuple[int, int] = (1, 1),
    market: str = "on_demand",
    interval_s: float = 1e9,
) -> Workload:
    """Return Poisson arrivals of both classes.

    Parameters
    ----------
    arrivals : number of jobs.
    mu : dollar_price.
    gpus : of the only pool, at a dollar per GPU-hour.
    requested : GPUs that the two classes ask for; rigid policies use them.
    interval_s : seconds between ticks, in addition to events; policies with an objective look this
    far ahead.
    """
    rng = np.random.default_rng(seed)
    at = np.cumsum(rng.exponential(1.0 / (2 * RATE), arrivals)) * HOUR
    kind = rng.integers(0, 2, arrivals)
    jobs = {
        "submitted_s": at,
        "model": [("amdahl", "sqrt")[i] for i in kind.tolist()],
        "total_work": sizes(rng, law, arrivals),
        "requested_gpus": np.array(requested)[kind],
    }
    settings = {"interval_s": interval_s, "dollar_price": mu}
    return _rented(settings, jobs, ("amdahl", "sqrt"), gpus, market)


def phased_workload(
    arrivals: int, *, law: str = "deterministic", seed: int = 0, **settings: object
) -> Workload:
    """Return Poisson arrivals of jobs with two equal phases, each with the speeds of a class.

    At 0.4 jobs an hour of two GPU-hours each, the phases are the two classes of the example.
    """
    rng = np.random.default_rng(seed)
    jobs = {
        "submitted_s": np.cumsum(rng.exponential(1.0 / RATE, arrivals)) * HOUR,
        "model": ["net"] * arrivals,
        "total_work": 2 * sizes(rng, law, arrivals),
    }
    return _rented({"interval_s": 1e9, **settings}, jobs, ("net", "net@0.5"))


def _rented(
    settings: dict[str, Any],
    jobs: dict[str, Any],
    models: tuple[str, str],
    gpus: int = 400,
    market: str = "on_demand",
) -> Workload:
    """Return jobs of models with the speeds of the two classes, on one pool."""
    count = len(jobs["submitted_s"])
    pool = {"pool": "rented", "gpu_type": "GPU", "gpus": gpus, "gpus_per_node": 1}
    pool |= {"market": market, "price_per_gpu_hour": 1.0}
    return GeneratedWorkload(
        "rental",
        {"restart_s": 0, **settings},
        {
            "workload.csv": {
                "job_id": [f"job-{i}" for i in range(count)],
                **jobs,
                "max_gpus": np.full(count, MOST),
            },
            "pools.csv": {name: [value] for name, value in pool.items()},
            "rates.csv": {
                "model": [model for model in models for _ in K],
                "gpu_type": ["GPU"] * 2 * MOST,
                "gpus": np.concatenate([K, K]),
                "work_per_s": np.concatenate([amdahl(K), np.sqrt(K)]) / HOUR,
            },
        },
    ).workload()


def sd_of_gpus(times: Floats, change: Floats, end: float) -> float:
    """Return the standard deviation over time, from 0 to `end`.

    The number changes by `change` at `times`.
    """
    order = np.argsort(times, kind="stable")
    level, passed = np.cumsum(change[order]), np.diff(times[order], append=end)
    mean = float(level @ passed / passed.sum())
    return float(np.sqrt((level - mean) ** 2 @ passed / passed.sum()))
