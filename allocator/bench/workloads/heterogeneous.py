"""heterogeneous: three GPU types and five applications, as in the evaluation of Sia.

The cluster has 24 T4, 24 RTX 2080 Ti and 16 A100; rounds last 60 s. Applications, their shares,
requests, restart delays, run times and speed-ups by type are those of the published workloads and
profiles (figures in `measured.py`, Jayaram Subramanya et al., SOSP 2023, section 4). The run time
of a job varies by a log-normal factor. Submissions are Poisson at a rate that varies from hour to
hour. Sia has 160 jobs at 20 an hour; heavy load here is 40 an hour. A job may hold any size from 1
to 24 GPUs that the nodes of its pool allow.
"""

from __future__ import annotations

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.measured import SIA_APPLICATIONS, SIA_POOLS, Application
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload
from allocator.domain.problem import Floats

# sd of ln(hourly rate), correlation of consecutive hours: gaps vary by 1.2
WANDER = 0.5
MEMORY = 0.6
# sd of ln(work) within an application; assumed, 0 in the published workloads
SPREAD = 0.3
LARGEST = 24


def heterogeneous(
    *, seed: int, load: float, jobs: int, gpus: int | None = None
) -> GeneratedWorkload:
    """Return a workload of the generator `heterogeneous`; `load` is jobs per hour.

    Work is counted in hours on one A100.
    """
    rng = np.random.default_rng(seed)
    scale = 1.0 if gpus is None else gpus / sum(p.gpus for p in SIA_POOLS)
    kind = draw.draw_in_strata(
        rng, {i: a.share for i, a in enumerate(SIA_APPLICATIONS)}, np.ones(jobs)
    )
    apps: list[Application] = [SIA_APPLICATIONS[i] for i in kind.tolist()]
    work = np.array([a.hours["A100"] for a in apps]) * np.exp(
        SPREAD * rng.normal(size=jobs) - 0.5 * SPREAD**2
    )
    requested = [int(rng.choice(list(a.requests), p=list(a.requests.values()))) for a in apps]
    pools: Columns = {
        "pool": [p.gpu_type.lower() for p in SIA_POOLS],
        "gpu_type": [p.gpu_type for p in SIA_POOLS],
        "gpus": [p.node * max(1, round(scale * p.gpus / p.node)) for p in SIA_POOLS],
        "gpus_per_node": [p.node for p in SIA_POOLS],
    }
    most = max(pools["gpus"])
    window = jobs / load * 3_600.0
    rates = _hours(rng, window)
    workload: Columns = {
        "job_id": draw.names(jobs),
        "submitted_s": np.floor(draw.arrivals(rng, rates, window / len(rates), jobs)),
        "model": [a.name for a in apps],
        "total_work": draw.round_digits(work, 5),
        "requested_gpus": np.minimum(requested, most),
        "min_gpus": np.ones(jobs, np.int64),
        "max_gpus": np.full(jobs, min(LARGEST, most)),
        "restart_s": [a.restart_s for a in apps],
    }
    used = [a for i, a in enumerate(SIA_APPLICATIONS) if i in set(kind.tolist())]
    each = [(a, p.gpu_type) for a in used for p in SIA_POOLS]
    curves: Columns = {
        "model": [a.name for a, _ in each],
        "gpu_type": [t for _, t in each],
        "kind": ["overhead"] * len(each),
        "parameters": [
            {"c": a.overhead[t], "rate_1": float(f"{a.hours['A100'] / a.hours[t] / 3_600.0:.5g}")}
            for a, t in each
        ],
    }
    return GeneratedWorkload(
        "heterogeneous",
        {"interval_s": 60, "restart_s": 30},
        {"workload.csv": workload, "pools.csv": pools, "models.csv": curves},
        window_s=window,
        load=load,
    )


def _hours(rng: np.random.Generator, window: float) -> Floats:
    """Return the relative rate of submissions in each hour of the window.

    Slots are about an hour long. The logarithm of the rate is an autoregression.
    """
    hours = max(1, round(window / 3_600.0))
    log = rng.normal(size=hours)
    for h in range(1, hours):
        log[h] = MEMORY * log[h - 1] + np.sqrt(1.0 - MEMORY**2) * log[h]
    return np.asarray(np.exp(WANDER * log), dtype=np.float64)
