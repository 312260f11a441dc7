"""interactive: sessions on one GPU each, and batch jobs that fill the cluster, to study headroom.

Three of five jobs are sessions. They come at random times, stay for exponentially distributed
seconds, and may not be moved. The others are elastic batch jobs with log-normal run times. Half of
these give GPUs back at short notice. The other half may not be moved, so that a session waits until
one of them ends, unless GPUs are kept for sessions. interactive.csv says how many sessions come and
how long they stay.
"""

from __future__ import annotations

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.speeds import draw_training
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload

GPUS = 64
NODE = 8
LARGEST = 16
SESSIONS = 0.6
SESSION_S = 900.0
SHORTEST_S = 30.0
SIZES = {1: 0.3, 2: 0.3, 4: 0.25, 8: 0.15}
MEDIAN_S = 5_400.0
SIGMA = 1.0
LONGEST_S = 43_200.0
WEIGHT = 4.0  # of a session, for which a person waits


def interactive(*, seed: int, load: float, jobs: int, gpus: int | None = None) -> GeneratedWorkload:
    """Return a workload of the generator `interactive`.

    `load` is the GPU-hours demanded at the requested sizes / the GPU-hours of the cluster while
    jobs are submitted.
    """
    rng = np.random.default_rng(seed)
    size = NODE * max(1, round((gpus or GPUS) / NODE))
    session = np.arange(jobs) < round(SESSIONS * jobs)
    session = session[rng.permutation(jobs)]
    requested = np.where(session, 1, draw.draw_in_strata(rng, SIZES, np.ones(jobs)))
    batch_s = draw.lognormal_in_strata(rng, MEDIAN_S, SIGMA, jobs)
    run_s = np.where(
        session,
        np.maximum(SHORTEST_S, rng.exponential(SESSION_S, jobs)),
        np.minimum(batch_s, LONGEST_S),
    )
    training = draw_training(rng, requested, run_s)
    window = draw.window_s(float(training.gpu_s.sum()), size, load)
    gives = ~session & (rng.random(jobs) < 0.5)
    most = np.where(session, 1, draw.elastic_max(rng, requested, LARGEST))
    workload: Columns = {
        "job_id": draw.names(jobs),
        "submitted_s": np.floor(draw.arrivals(rng, np.ones(1), window, jobs)),
        "model": training.model,
        "total_work": training.work,
        "requested_gpus": requested,
        "min_gpus": np.ones(jobs, np.int64),
        "max_gpus": np.minimum(most, size),
        "weight": np.where(session, WEIGHT, 1.0),
        "preemptible": ["true" if g else "false" for g in gives.tolist()],
        "interactive": ["true" if s else "false" for s in session.tolist()],
        "shrinkable": ["true" if g else "false" for g in gives.tolist()],
    }
    mean_s = float(training.gpu_s[session].mean()) if session.any() else SESSION_S
    pools: Columns = {
        "pool": ["v100"],
        "gpu_type": ["V100"],
        "gpus": [size],
        "gpus_per_node": [NODE],
    }
    kept: Columns = {
        "pool": ["v100"],
        "sessions_per_hour": [float(session.sum()) / window * 3_600.0],
        "session_s": [mean_s],
    }
    return GeneratedWorkload(
        "interactive",
        {"interval_s": 300, "restart_s": 45},
        {
            "workload.csv": workload,
            "pools.csv": pools,
            "models.csv": training.curves,
            "interactive.csv": kept,
        },
        window_s=window,
        load=load,
    )
