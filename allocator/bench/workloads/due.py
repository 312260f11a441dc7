"""due: jobs with deadlines on a fixed cluster of 48 V100s and 16 A100s, all reserved.

Jobs take ten minutes to six hours at the requested size, an hour in the median. Four of five have a
deadline: the submission plus 300 s plus 0.5 to 3 times the run time at the requested size. Some
deadlines can therefore be met only on more or faster GPUs than requested (the traces of ElasticFlow
have 0.5 to 1.5 times the run time). Weights 1, 2 and 4 are drawn independently.
"""

from __future__ import annotations

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.speeds import draw_training
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload

GPUS = 64
POOLS = (("V100", 0.75), ("A100", 0.25))
NODE = 8
SIZES = {1: 0.40, 2: 0.25, 4: 0.20, 8: 0.15}
MEDIAN_S = 3_600.0
SIGMA = 1.0
SHORTEST_S = 600.0
LONGEST_S = 21_600.0
# tight, usual, loose: time to the deadline over run time at the request
SLACK = ((0.5, 1.0), (1.0, 1.5), (1.5, 3.0))
GRACE_S = 300.0
DATED = 0.8
WEIGHTS = {1: 0.6, 2: 0.25, 4: 0.15}
LARGEST = 16


def due(*, seed: int, load: float, jobs: int, gpus: int | None = None) -> GeneratedWorkload:
    """Return a workload of the generator `due`.

    `load` is the V100-hours demanded at the requested sizes / the V100-hours that the cluster has
    while jobs are submitted. An A100 counts as many V100s as it is faster for this workload.
    """
    rng = np.random.default_rng(seed)
    types = [t for t, _ in POOLS]
    size = [NODE * max(1, round(share * (gpus or GPUS) / NODE)) for _, share in POOLS]
    requested = draw.draw_in_strata(rng, SIZES, np.ones(jobs))
    run_s = np.clip(draw.lognormal_in_strata(rng, MEDIAN_S, SIGMA, jobs), SHORTEST_S, LONGEST_S)
    training = draw_training(rng, requested, run_s, types)
    v100s = sum(n * training.mean_speed_up(requested, t) for t, n in zip(types, size, strict=True))
    window = draw.window_s(float(training.gpu_s.sum()), v100s, load)
    submitted = np.floor(draw.arrivals(rng, np.ones(1), window, jobs))
    low, high = np.array(SLACK)[rng.integers(0, len(SLACK), jobs)].T
    until = np.ceil(submitted + GRACE_S + rng.uniform(low, high) * run_s)
    dated = rng.random(jobs) < DATED
    workload: Columns = {
        "job_id": draw.names(jobs),
        "submitted_s": submitted,
        "model": training.model,
        "total_work": training.work,
        "requested_gpus": requested,
        "min_gpus": np.ones(jobs, np.int64),
        "max_gpus": draw.elastic_max(rng, requested, LARGEST),
        "weight": draw.draw_keys(rng, WEIGHTS, jobs),
        "deadline_s": [
            d if there else None for d, there in zip(until.tolist(), dated.tolist(), strict=True)
        ],
    }
    pools: Columns = {
        "pool": [t.lower() for t in types],
        "gpu_type": types,
        "gpus": size,
        "gpus_per_node": [NODE] * len(types),
    }
    return GeneratedWorkload(
        "due",
        {"interval_s": 300, "restart_s": 45, "objective": "tardiness"},
        {"workload.csv": workload, "pools.csv": pools, "models.csv": training.curves},
        window_s=window,
        load=load,
    )
