"""reproduction: the workload on which the published allocator is reproduced.

The source is "MIP for elastic training", ModelArts 2021.

- 64 GPUs in one pool, rounds of 300 s, Poisson arrivals.
- The request is 1, 2, 4 or 8 GPUs with probability .5, .2, .15, .15.
- The run time at the request is log-normal with median 40 minutes, sigma 1.2, at most 1,200
  minutes.
- The speed follows Amdahl's law. The parallel share of each job is uniform on (.9, .995).
- A job may hold any power of two up to four times its request, at most 32.
- A running job that changes size pauses for 30 s; starting and resuming cost nothing.
"""

from __future__ import annotations

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload

GPUS = 64
SIZES = {1: 0.5, 2: 0.2, 4: 0.15, 8: 0.15}
LARGEST = 32
WIDER = 4
MEDIAN_S = 2_400.0
SIGMA = 1.2
LONGEST_S = 72_000.0
ALLOWED = (1, 2, 4, 8, 16, 32)


def reproduction(
    *, seed: int, load: float, jobs: int, gpus: int | None = None
) -> GeneratedWorkload:
    """Return a workload of the generator `reproduction`; `load` is jobs per minute.

    Work is counted in seconds on one GPU, so that the rate of every model on one GPU is 1.
    """
    rng = np.random.default_rng(seed)
    submitted = np.round(np.cumsum(rng.exponential(60.0 / load, jobs)), 1)
    requested = draw.draw_keys(rng, SIZES, jobs)
    run_s = draw.truncated_lognormal(rng, MEDIAN_S, SIGMA, LONGEST_S, jobs)
    parallel = draw.round_digits(rng.uniform(0.9, 0.995, jobs), 4)
    largest = np.minimum(LARGEST, WIDER * requested)
    ids = draw.names(jobs)
    models = draw.names(jobs, "model")
    speed = 1.0 / ((1.0 - parallel) + parallel / requested)
    workload: Columns = {
        "job_id": ids,
        "submitted_s": submitted,
        "model": models,
        "total_work": draw.round_digits(run_s * speed, 6),
        "requested_gpus": requested,
        "min_gpus": np.ones(jobs, np.int64),
        "max_gpus": largest,
        "sizes": [tuple(k for k in ALLOWED if k <= most) for most in largest.tolist()],
    }
    curves: Columns = {
        "model": models,
        "gpu_type": ["GPU"] * jobs,
        "kind": ["amdahl"] * jobs,
        "parameters": [
            {"max_gpus": LARGEST, "parallel": p, "rate_1": 1} for p in parallel.tolist()
        ],
    }
    pools: Columns = {"pool": ["gpus"], "gpu_type": ["GPU"], "gpus": [gpus or GPUS]}
    return GeneratedWorkload(
        "reproduction",
        {"interval_s": 300, "restart_s": 30},
        {"workload.csv": workload, "pools.csv": pools, "models.csv": curves},
        window_s=float(submitted[-1]),
        load=load,
    )
