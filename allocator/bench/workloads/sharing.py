"""sharing: jobs of fixed sizes that could be colocated, with memory, slowdowns and speeds.

Speeds, batches and memory of the eight models were measured by Luo et al. ("Wise resource sharing",
IWQoS 2024, artefact; speeds from the trace of Muri, SIGCOMM 2022). Their measured slowdowns are not
public. Here the slowdown of each model in a colocation with each other model is drawn from 1.1 to
2.5, the same at every size. It is assumed that a tenth of the time of a pass does not depend on its
batch, and neither do two fifths of the memory.
"""

import itertools

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.draw import Asked
from allocator.bench.workloads.parts.figures import FIGURES, by_size
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload
from formulations import training_step

KIND = "A6000"
GPU_GB = 47.99  # 49,140 MB
MODELS = FIGURES["sharing"]["models"]
STEP_MS = {name: by_size(m["step_ms"]) for name, m in MODELS.items()}
SIZES = by_size(FIGURES["sharing"]["sizes"])
STEPS, SIGMA, MOST_STEPS = 2_000.0, 0.8, 7_000.0  # jobs of that trace have 111 to 6,690 steps
PASSES = (1, 2, 4)  # passes into which gradient accumulation divides a step
# shares that do not depend on the batch: of the time of a pass, and of the memory
CONSTANT = 0.1
FIXED = 0.4
SLOWDOWN = (1.1, 2.5)


def sharing(
    asked: Asked, memory_gb: float = GPU_GB, slowdown: tuple[float, float] = SLOWDOWN
) -> GeneratedWorkload:
    """Return a workload of the generator `sharing`.

    `load` is the GPU-hours that the jobs need if each runs alone, divided by the GPU-hours of the
    cluster.

    Parameters
    ----------
    asked : Asked
        The jobs and the cluster.
    memory_gb : float
        Memory of a GPU. Below 20 GB, two jobs fit on a GPU only with gradient accumulation.
    slowdown : tuple of (float, float)
        Range from which slowdowns are drawn. If both ends are equal, all slowdowns are.
    """
    rng, total, jobs = asked.rng, asked.total, asked.jobs
    fitting = {k: share for k, share in SIZES.items() if k <= total}
    size = draw.draw_in_strata(rng, fitting, np.ones(jobs))
    able = {k: [m for m, known in STEP_MS.items() if k in known] for k in SIZES}
    each = list(zip(size.tolist(), rng.random(jobs).tolist(), strict=True))
    model = [able[k][int(u * len(able[k]))] for k, u in each]
    steps = np.round(draw.lognormal_in_strata(rng, STEPS, SIGMA, jobs))
    steps = np.clip(steps, 100.0, MOST_STEPS)
    run_s = steps * [STEP_MS[m][k] / 1e3 for m, (k, _) in zip(model, each, strict=True)]
    window = float((run_s * size).sum()) / (total * asked.load)
    work = steps.astype(np.int64) * size * [MODELS[m]["batch"] for m in model]
    submitted = asked.draw_submissions(window)
    workload: Columns = {
        **draw.job_columns(submitted, model, work, size, size),
        "min_gpus": size,
        "memory_gb": [round(MODELS[m]["memory_mb"] / 1024, 2) for m in model],
    }
    pools: Columns = {
        "pool": ["gpus"],
        "gpu_type": [KIND],
        "gpus": [total],
        "gpus_per_node": [8],
        "memory_gb": [memory_gb],
        "sharing": ["any"],
    }
    # one row for every two models, on one GPU, which holds for every size
    first, second = zip(*itertools.combinations_with_replacement(MODELS, 2), strict=True)
    a, b = np.round(rng.uniform(*slowdown, (2, len(first))), 3)
    slowdowns: Columns = {
        "model_a": first,
        "model_b": second,
        "gpu_type": [KIND] * len(first),
        "gpus": [1] * len(first),
        "slowdown_a": a,
        "slowdown_b": np.where(np.equal(first, second), a, b),
    }
    return GeneratedWorkload.of(
        asked, window, workload=workload, pools=pools, rates=rates(), sharing=slowdowns
    )


def rates() -> Columns:
    """Return rates.csv: samples per second by model, GPUs and passes, with memory."""
    rows = [
        (name, k, p, STEP_MS[name][k], min(STEP_MS[name].values()), m["batch"], m["memory_mb"])
        for name, m in MODELS.items()
        for k in STEP_MS[name]
        for p in PASSES
        if p <= m["batch"]
    ]
    names = [row[0] for row in rows]
    # `alone` is the computing time of a step in one pass
    size, passes, step_ms, alone_ms, batch, memory_mb = np.array([row[1:] for row in rows], float).T
    alone, most = alone_ms / 1e3, memory_mb / 1024
    step = training_step.step_s(
        CONSTANT * alone,
        (1 - CONSTANT) * alone / batch,
        step_ms / 1e3 - alone,
        np.ones(len(rows)),
        batch,
        passes,
    )
    memory_per_gpu = training_step.memory_per_gpu(
        FIXED * most, (1 - FIXED) * most / batch, batch, passes
    )
    return {
        "model": names,
        "gpu_type": [KIND] * len(rows),
        "gpus": size.astype(np.int64),
        "work_per_s": draw.round_digits(batch * size / step, 6),
        "batch_size": (batch * size).astype(np.int64),
        "accumulation": passes.astype(np.int64),
        "memory_gb": np.round(memory_per_gpu, 2),
    }
