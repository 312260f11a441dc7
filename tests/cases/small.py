"""The workloads of data/workloads: generated ones, the demo, and one whose capacity changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload
from allocator.bench.workloads.registry import generate
from allocator.domain.problem import Floats, Ints

SIZES = {
    "reproduction": (1, 0.36, 120),
    "bursty": (2, 1.0, 150),
    "diurnal": (1, 0.8, 120),
    "mixed": (3, 1.3, 100),
}
"""Generator -> seed, load, jobs."""
DEMO_SEED = 28

# samples per second on one V100 (order of magnitude), and c of t1 n / (1 + c (n - 1)) from
# published 8-GPU values
MODELS = {
    "resnet50": (800.0, 0.011),
    "bert": (54.0, 0.085),
    "gnmt": (620.0, 0.103),
    "yolov3": (60.0, 0.10),
}

DEMO = """\
# demo

Twenty-four jobs in not quite two hours on 16 equal GPUs, at 2 dollars per GPU-hour: short jobs
arrive while long and wide ones run. Every job may use up to four times the GPUs it asks for, at
most 16. Rounds of 300 s; a running job that changes size loses 30 s.

`allocator demo` simulates it. Greedy serves jobs in the order of submission, at the size they ask
for, and only then widens those that gain most; MIP shrinks or pauses a long job for a round or two
when that finishes several short ones. The mean completion time is about a third shorter; the last
job ends a little later.

Made by `tests/cases/small.py`. The seed is one of 30 and was chosen because it shows
the difference well; over all 30 the median difference is about a seventh. Comparisons belong on
many seeds and loads.
"""
COME_AND_GO = """ A third of the GPUs stay; the spot machines come and go by capacity.csv and their
price by prices.csv. Jobs take checkpoints, so that a lost machine costs them minutes.
"""


def shipped_folders() -> list[GeneratedWorkload]:
    """Return all shipped workloads in order of names."""
    made = [
        generate(name, seed=seed, load=load, jobs=jobs)
        for name, (seed, load, jobs) in SIZES.items()
    ]
    return sorted([*made, demo(), machines_come_and_go()], key=lambda t: t.name)


def machines_come_and_go() -> GeneratedWorkload:
    """Twenty-four jobs on eight reserved GPUs and up to sixteen on the spot market."""
    made = generate("spot", seed=5, load=1.2, jobs=24, gpus=24)
    name = "machines-come-and-go"
    return replace(
        made, name=name, about=made.about.replace(f"# {made.name}", f"# {name}", 1) + COME_AND_GO
    )


def demo(seed: int = DEMO_SEED) -> GeneratedWorkload:
    """Twenty-four jobs on 16 V100."""
    rng = np.random.default_rng(seed)
    count, gpus, last_s = 24, 16, 6_600.0
    asked = draw.draw_keys(rng, {1: 0.4, 2: 0.25, 4: 0.2, 8: 0.15}, count)
    run_s = np.minimum(900.0 * np.exp(rng.normal(0.0, 1.0, count)), 7_200.0)
    submitted = np.round(np.sort(rng.uniform(0.0, last_s, count)), -1)
    workload, curves = _jobs(rng, asked, run_s, submitted - submitted[0])
    pools: Columns = {
        "pool": ["v100"],
        "gpu_type": ["V100"],
        "gpus": [gpus],
        "price_per_gpu_hour": [2.0],
    }
    return GeneratedWorkload(
        "demo",
        {"interval_s": 300, "restart_s": 30},
        {"workload.csv": workload, "pools.csv": pools, "models.csv": curves},
        DEMO,
        float(submitted[-1] - submitted[0]),
    )


def _jobs(
    rng: np.random.Generator, asked: Ints, run_s: Floats, submitted: Floats
) -> tuple[Columns, Columns]:
    """Return workload.csv and models.csv of jobs.

    They take run_s seconds on a V100 at the size that they ask for.
    """
    names = list(MODELS)
    which = rng.integers(0, len(names), len(asked))
    rate_1, c = np.array([MODELS[n] for n in names])[which].T
    work = draw.round_digits(run_s * draw.overhead_rate(rate_1, c, asked), 3)
    model = [names[i] for i in which.tolist()]
    workload: Columns = {
        "job_id": [f"{m}-{i:02d}" for i, m in enumerate(model, start=1)],
        "submitted_s": submitted,
        "model": model,
        "total_work": work,
        "requested_gpus": asked,
        "min_gpus": np.ones(len(asked), np.int64),
        "max_gpus": np.minimum(4 * asked, 16),
    }
    curves: Columns = {
        "model": names,
        "gpu_type": ["V100"] * len(names),
        "kind": ["overhead"] * len(names),
        "parameters": [{"c": MODELS[m][1], "rate_1": MODELS[m][0]} for m in names],
    }
    return workload, curves
