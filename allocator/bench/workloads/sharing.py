"""sharing: jobs of fixed sizes that could be colocated, with memory, slowdowns and speeds.

Speeds, batches and memory of the eight models were measured by Luo et al. ("Wise resource sharing",
IWQoS 2024, artefact; speeds from the trace of Muri, SIGCOMM 2022). Their measured slowdowns are not
public. Here the slowdown of each model in a colocation with each other model is drawn from 1.1 to
2.5, the same at every size. It is assumed that a tenth of the time of a pass does not depend on its
batch, and neither do two fifths of the memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload
from formulations import gradient_accumulation

GPUS = 32
NODE = 8
KIND = "A6000"
GPU_GB = 47.99  # 49,140 MB
MEMORY_MB: Mapping[str, int] = {
    "resnet18": 6432,
    "shufflenet": 5252,
    "vgg16": 4224,
    "vgg19": 4304,
    "dqn": 2230,
    "a2c": 2094,
    "bert": 8058,
    "gpt2": 10532,
}
BATCH: Mapping[str, int] = {
    "resnet18": 128,
    "shufflenet": 128,
    "vgg16": 16,
    "vgg19": 16,
    "dqn": 128,
    "a2c": 64,
    "bert": 4,
    "gpt2": 4,
}
"""Samples of a step on one GPU, by model."""
STEP_MS: Mapping[str, Mapping[int, int]] = {
    "resnet18": {1: 779, 2: 881, 4: 921, 8: 1010},
    "shufflenet": {1: 798, 2: 850, 4: 886},
    "vgg16": {1: 107, 2: 191, 4: 201, 8: 214},
    "vgg19": {2: 205, 4: 212, 8: 226, 16: 302},
    "dqn": {1: 490, 2: 495, 4: 505, 8: 509, 16: 525},
    "a2c": {1: 517, 2: 525, 8: 555},
    "bert": {1: 178, 2: 195, 4: 190, 8: 192},
    "gpt2": {1: 426, 4: 433, 8: 437},
}
"""Milliseconds of a step, by model and number of GPUs."""
# share of the jobs that have each size, in a published trace of 61 jobs; its two jobs on 32 GPUs
# are left out
SIZES = {1: 0.44, 2: 0.17, 4: 0.22, 8: 0.13, 16: 0.04}
STEPS, SIGMA, MOST_STEPS = 2_000.0, 0.8, 7_000.0  # jobs of that trace have 111 to 6,690 steps
PASSES = (1, 2, 4)  # passes into which gradient accumulation divides a step
# shares that do not depend on the batch: of the time of a pass, and of the memory
CONSTANT = 0.1
FIXED = 0.4
SLOWDOWN = (1.1, 2.5)


def sharing(
    *,
    seed: int,
    load: float,
    jobs: int,
    gpus: int | None = None,
    memory_gb: float = GPU_GB,
    slowdown: tuple[float, float] = SLOWDOWN,
) -> GeneratedWorkload:
    """Return a workload of the generator `sharing`.

    Parameters
    ----------
    seed : int
        Seed of all random draws.
    load : float
        GPU-hours that the jobs need if each runs alone, divided by the GPU-hours of the cluster.
    jobs : int
        Number of jobs.
    gpus : int, optional
        GPUs of the cluster.
    memory_gb : float
        Memory of a GPU. Below 20 GB, two jobs fit on a GPU only with gradient accumulation.
    slowdown : tuple of (float, float)
        Range from which slowdowns are drawn. If both ends are equal, all slowdowns are.
    """
    rng = np.random.default_rng(seed)
    total = gpus or GPUS
    size = draw.draw_in_strata(
        rng, {k: share for k, share in SIZES.items() if k <= total}, np.ones(jobs)
    )
    able = {k: [m for m, known in STEP_MS.items() if k in known] for k in SIZES}
    pick = rng.random(jobs)
    model = [
        able[k][int(u * len(able[k]))] for k, u in zip(size.tolist(), pick.tolist(), strict=True)
    ]
    steps = np.clip(
        np.round(draw.lognormal_in_strata(rng, STEPS, SIGMA, jobs)),
        100.0,
        MOST_STEPS,
    )
    run_s = steps * [STEP_MS[m][k] / 1e3 for m, k in zip(model, size.tolist(), strict=True)]
    window = draw.window_s(float((run_s * size).sum()), total, load)
    workload: Columns = {
        "job_id": draw.names(jobs),
        "submitted_s": np.floor(draw.arrivals(rng, np.ones(1), window, jobs)),
        "model": model,
        "total_work": steps.astype(np.int64) * size * [BATCH[m] for m in model],
        "requested_gpus": size,
        "min_gpus": size,
        "max_gpus": size,
        "memory_gb": [round(MEMORY_MB[m] / 1024, 2) for m in model],
    }
    pools: Columns = {
        "pool": ["gpus"],
        "gpu_type": [KIND],
        "gpus": [total],
        "gpus_per_node": [NODE],
        "memory_gb": [memory_gb],
        "sharing": ["any"],
    }
    return GeneratedWorkload(
        "sharing",
        {"interval_s": 150, "restart_s": 30},
        {
            "workload.csv": workload,
            "pools.csv": pools,
            "rates.csv": rates(),
            "sharing.csv": _slowdowns(rng, slowdown),
        },
        window_s=window,
        load=load,
    )


def rates() -> Columns:
    """Return rates.csv: samples per second by model, GPUs and passes, with memory."""
    rows = [
        (m, k, p) for m, known in STEP_MS.items() for k in known for p in PASSES if p <= BATCH[m]
    ]
    # computing time of a step in one pass
    alone = np.array([min(STEP_MS[m].values()) for m, _, _ in rows]) / 1e3
    whole = np.array([STEP_MS[m][k] for m, k, _ in rows]) / 1e3
    batch, passes = (
        np.array(x, np.float64) for x in ([BATCH[m] for m, _, _ in rows], [p for _, _, p in rows])
    )
    step = gradient_accumulation.step_s(
        CONSTANT * alone,
        (1 - CONSTANT) * alone / batch,
        whole - alone,
        np.ones(len(rows)),
        batch,
        passes,
    )
    most = np.array([MEMORY_MB[m] for m, _, _ in rows]) / 1024
    memory_per_gpu = gradient_accumulation.memory_per_gpu(
        FIXED * most, (1 - FIXED) * most / batch, batch, passes
    )
    size = np.array([k for _, k, _ in rows])
    return {
        "model": [m for m, _, _ in rows],
        "gpu_type": [KIND] * len(rows),
        "gpus": size,
        "work_per_s": draw.round_digits(batch * size / step, 6),
        "batch_size": (batch * size).astype(np.int64),
        "accumulation": passes.astype(np.int64),
        "memory_gb": np.round(memory_per_gpu, 2),
    }


def _slowdowns(rng: np.random.Generator, between: tuple[float, float]) -> Columns:
    """Return sharing.csv: one row for every two models, on one GPU, which holds for every size."""
    pairs = list(itertools.combinations_with_replacement(MEMORY_MB, 2))
    a, b = np.round(rng.uniform(*between, (2, len(pairs))), 3)
    b = np.where([x == y for x, y in pairs], a, b)
    return {
        "model_a": [x for x, _ in pairs],
        "model_b": [y for _, y in pairs],
        "gpu_type": [KIND] * len(pairs),
        "gpus": [1] * len(pairs),
        "slowdown_a": a,
        "slowdown_b": b,
    }
