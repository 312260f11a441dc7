"""bursty: heavy-tailed durations and sweeps of similar jobs, calibrated on Philly.

Two of six tenants submit 70 % of the jobs, mostly sweeps of one-GPU jobs. The duration is drawn
given the number of GPUs, so that few large jobs carry most of the work. Submissions are batches of
near-identical jobs that are seconds apart. Batches come at an hourly rate that varies by orders of
magnitude (log-normal, correlated from hour to hour). Sizes and durations are drawn in strata, so
that a small workload has its share of large jobs too.
"""

from __future__ import annotations

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.measured import (
    PHILLY_JOBS_PER_H,
    PHILLY_OTHERS,
    PHILLY_SWEEPERS,
    PHILLY_SWEEPING,
    PHILLY_TENANTS,
)
from allocator.bench.workloads.parts.speeds import draw_training
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload
from allocator.domain.problem import Floats, Ints

LARGEST = 64  # the most GPUs an elastic range allows
DAYS, NODE, FEWEST = 1, 8, 32  # window at least; GPUs in whole nodes, at least
# share of single jobs among the batches of sweeping tenants and of others
ALONE = {True: 0.60, False: 0.90}
TAIL = {True: 1.10, False: 2.0}  # Pareto exponent of the sizes of the other batches, from 2 on
LARGEST_BATCH = 400  # and at most an eighth of all jobs
SPACING_S = 6.5  # mean time between the jobs of a batch
WANDER, MEMORY = 1.2, 0.7  # sd of ln(hourly rate), correlation of consecutive hours
ALIKE = 0.97  # correlation of the normal scores of durations within a batch


def bursty(
    *, seed: int, load: float, jobs: int, gpus: int | None = None, longest_h: float | None = None
) -> GeneratedWorkload:
    """Return a workload of the generator `bursty`.

    Without `gpus` the cluster is sized for the window. The window is whole days, at least one, and
    long enough that submissions are not more frequent than on Philly.

    Parameters
    ----------
    seed : of every draw.
    load : GPU-hours demanded at the requested sizes / GPU-hours of the cluster while jobs are
    submitted.
    jobs : number of jobs.
    gpus : GPUs of the cluster.
    longest_h : longest run at the requested size, hours. The default is half the window, at most a
    week. Philly's own runs of up to 53 days would decide every comparison alone.
    """
    rng = np.random.default_rng(seed)
    names = list(PHILLY_TENANTS)
    batch, tenant, size = _batches(rng, jobs, names)
    shared = _scores(rng, size, np.bincount(batch))[batch]
    score = np.sqrt(ALIKE) * shared + np.sqrt(1.0 - ALIKE) * rng.normal(size=jobs)
    if gpus is not None:
        size = np.minimum(size, gpus)
    days = max(DAYS, round(jobs / PHILLY_JOBS_PER_H / 24.0))
    run_s = draw.duration_s(size[batch], score, draw.longest_s(days, longest_h))
    if gpus is None:
        gpus = draw.cluster_gpus(
            float((size[batch] * run_s).sum()), days * 86_400.0, load, NODE, FEWEST
        )
        size = np.minimum(size, gpus)
    requested = size[batch]
    training = draw_training(rng, requested, run_s, group=batch)
    window = draw.window_s(float(training.gpu_s.sum()), gpus, load)
    submitted = submissions(rng, batch, window)
    order = np.argsort(submitted, kind="stable")
    wide = draw.elastic_max(rng, size, min(LARGEST, gpus))[batch]
    workload: Columns = {
        "job_id": draw.names(jobs),
        "submitted_s": submitted[order],
        "model": [training.model[i] for i in order.tolist()],
        "total_work": training.work[order],
        "requested_gpus": requested[order],
        "min_gpus": np.ones(jobs, np.int64),
        "max_gpus": wide[order],
        "tenant": [names[t] for t in tenant[batch][order].tolist()],
    }
    pools: Columns = {
        "pool": ["v100"],
        "gpu_type": ["V100"],
        "gpus": [gpus],
        "price_per_gpu_hour": [1.95],
    }
    return GeneratedWorkload(
        "bursty",
        {"interval_s": 300, "restart_s": 45},
        {
            "workload.csv": workload,
            "pools.csv": pools,
            "models.csv": training.curves,
            "tenants.csv": {"tenant": names},
        },
        window_s=window,
        load=load,
    )


def _batches(rng: np.random.Generator, jobs: int, names: list[str]) -> tuple[Ints, Ints, Ints]:
    """Return the batch of each job (J,), and tenant and GPUs per job of each batch (batches,)."""
    share = {n: PHILLY_TENANTS[n] for n in names}
    sweeping = round(jobs * sum(share[n] for n in PHILLY_SWEEPING))
    batch = []
    tenant = []
    size = []
    first = 0
    for sweeps, count in ((True, sweeping), (False, jobs - sweeping)):
        own = _numbers(
            rng, count, min(LARGEST_BATCH, max(2, jobs // 8)), ALONE[sweeps], TAIL[sweeps]
        )
        batch.append(own + first)
        jobs_of = np.bincount(own)
        first += len(jobs_of)
        ours = {i: share[n] for i, n in enumerate(names) if (n in PHILLY_SWEEPING) == sweeps}
        tenant.append(draw.draw_in_strata(rng, ours, jobs_of))
        size.append(draw.draw_in_strata(rng, PHILLY_SWEEPERS if sweeps else PHILLY_OTHERS, jobs_of))
    return np.concatenate(batch), np.concatenate(tenant), np.concatenate(size)


def _numbers(rng: np.random.Generator, jobs: int, most: int, alone: float, tail: float) -> Ints:
    """Return the number of the batch of each job, from 0 upwards, shape (jobs,)."""
    size = np.where(
        rng.random(jobs) < alone, 1.0, np.floor(2.0 * rng.random(jobs) ** (-1.0 / tail))
    )
    ends = np.cumsum(np.minimum(size, most)).astype(np.int64)
    return np.searchsorted(ends, np.arange(jobs), side="right")


def _scores(rng: np.random.Generator, size: Ints, jobs_of: Ints) -> Floats:
    """Return a standard normal score per batch, shape (batches,).

    Scores are spread evenly over the jobs of each size.
    """
    out = np.empty(len(size))
    for k in np.unique(size):
        out[size == k] = draw.scores_in_strata(rng, jobs_of[size == k])
    return out


def submissions(rng: np.random.Generator, batch: Ints, window: float) -> Floats:
    """Return submission times in whole seconds, shape (J,).

    Each batch comes at a random time of the varying rate, and its jobs follow closely.
    """
    hours = max(1, int(np.ceil(window / 3_600.0)))
    # becomes a first-order autoregression with variance 1
    log = rng.normal(size=hours)
    for h in range(1, hours):
        log[h] = MEMORY * log[h - 1] + np.sqrt(1.0 - MEMORY**2) * log[h]
    start = rng.permutation(
        draw.arrivals(rng, np.exp(WANDER * log), window / hours, int(batch[-1]) + 1)
    )
    first = np.concatenate([[True], batch[1:] != batch[:-1]])
    passed = np.cumsum(rng.exponential(SPACING_S, len(batch)))
    at: Floats = np.floor(np.minimum(start[batch] + passed - passed[first][batch], window))
    return at
