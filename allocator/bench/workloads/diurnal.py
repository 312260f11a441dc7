"""The workload generator `diurnal`: submissions by hour of the day and day of the week.

Its figures are those of the Helios trace (Hu et al., SC 2021), and of Venus, one of its clusters.
Submissions are a Poisson process from Monday midnight on, whose rate follows the hours and days of
Venus. Durations are log-normal with the median and mean of all of Helios. The mean number of GPUs
that a job requests is that of Venus; how many jobs request each number is assumed.
"""

from __future__ import annotations

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.measured import (
    HELIOS_DURATION_S,
    VENUS_HOURS,
    VENUS_JOBS_PER_H,
    VENUS_WEEKDAYS,
)
from allocator.bench.workloads.parts.speeds import draw_training
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload
from allocator.domain.problem import Floats

SIZES = {
    1: 0.38,
    2: 0.09,
    4: 0.11,
    8: 0.30,
    16: 0.07,
    32: 0.035,
    64: 0.015,
}
"""Share of the jobs by requested GPUs; the mean is 6.6, and 6.73 was measured on Venus."""
LARGEST = 64  # most GPUs of a job
SHORTEST_S = 10.0  # shortest duration
DAYS = 2  # least length; a workload with more jobs than Venus has in that time takes more days
NODE = 8  # GPUs of a node
FEWEST = 32  # fewest GPUs of a cluster
TEAMS = ("vision", "language", "speech", "platform", "students")
TEAM_SHARE = (0.35, 0.25, 0.20, 0.12, 0.08)


def diurnal(
    *, seed: int, load: float, jobs: int, gpus: int | None = None, longest_h: float | None = None
) -> GeneratedWorkload:
    """Return a workload of the generator `diurnal`.

    Without `gpus` the cluster is sized for the window. The window is whole days, at least two, and
    long enough that submissions are not more frequent than on Venus.

    Parameters
    ----------
    seed : int
        Seed of every draw.
    load : float
        GPU-hours demanded at the requested sizes, divided by the GPU-hours of the cluster while
        jobs are submitted.
    jobs : int
        Number of jobs.
    gpus : int, optional
        GPUs of the cluster.
    longest_h : float, optional
        Longest run at the requested size, in hours. The default is half the window, at most a week.
    """
    rng = np.random.default_rng(seed)
    sigma = float(np.sqrt(2.0 * np.log(HELIOS_DURATION_S["mean"] / HELIOS_DURATION_S["median"])))
    run_s = draw.lognormal_in_strata(rng, HELIOS_DURATION_S["median"], sigma, jobs)
    days = max(DAYS, round(jobs / VENUS_JOBS_PER_H / 24.0))
    run_s = np.clip(run_s, SHORTEST_S, draw.longest_s(days, longest_h))
    requested = draw.draw_in_strata(rng, SIZES, np.ones(jobs))
    demand = float((requested * run_s).sum())
    if gpus is None:
        gpus = draw.cluster_gpus(demand, days * 86_400.0, load, NODE, FEWEST)
    requested = np.minimum(requested, gpus)
    training = draw_training(rng, requested, run_s)
    window = draw.window_s(float(training.gpu_s.sum()), gpus, load)
    team = rng.choice(len(TEAMS), jobs, p=TEAM_SHARE)
    workload: Columns = {
        "job_id": draw.names(jobs),
        "submitted_s": np.floor(draw.arrivals(rng, *intensity(window), jobs)),
        "model": training.model,
        "total_work": training.work,
        "requested_gpus": requested,
        "min_gpus": np.ones(jobs, np.int64),
        "max_gpus": draw.elastic_max(rng, requested, min(LARGEST, gpus)),
        "tenant": [TEAMS[t] for t in team.tolist()],
    }
    pools: Columns = {
        "pool": ["v100"],
        "gpu_type": ["V100"],
        "gpus": [gpus],
        "price_per_gpu_hour": [1.95],
    }
    return GeneratedWorkload(
        "diurnal",
        {"interval_s": 300, "restart_s": 45},
        {
            "workload.csv": workload,
            "pools.csv": pools,
            "models.csv": training.curves,
            "tenants.csv": {"tenant": list(TEAMS)},
        },
        window_s=window,
        load=load,
    )


def intensity(window: float) -> tuple[Floats, float]:
    """Return the relative rate of consecutive slots, and the length of a slot in seconds.

    Slots start at Monday midnight, are at most five minutes long, and fill the window exactly.
    """
    slots = int(np.ceil(window / 300.0))
    middle = (np.arange(slots) + 0.5) * (window / slots)
    hour = (middle // 3_600).astype(np.int64) % 24
    day = (middle // 86_400).astype(np.int64) % 7
    return np.array(VENUS_HOURS, float)[hour] * np.array(VENUS_WEEKDAYS)[day], window / slots
