"""Models with speed curves, by how much work a job has, as Pollux and Sia draw them.

The speed on n GPUs of a type is t1 n / (1 + c (n - 1)). Each model variant has its own t1 and c.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from allocator.bench.workloads.parts import draw
from allocator.bench.workloads.parts.draw import Asked, Rng
from allocator.bench.workloads.parts.figures import FIGURES
from allocator.bench.workloads.parts.tables import Columns, GeneratedWorkload, columns_of
from allocator.domain.problem import Floats, Ints
from allocator.objects import Json, Record

VARIANTS = 4
Pools = Sequence[Record]
Texts = NDArray[np.str_]
ON_V100S: Pools = ({"gpu_type": "V100"},)


@dataclass(frozen=True)
class Training:
    """Model and work of each job, and the speeds of all models.

    Attributes
    ----------
    model : names, shape (J,).
    work : units of the model, five digits, shape (J,).
    requested : GPUs, shape (J,).
    gpu_s : GPU-seconds of that work on V100s at the requested sizes, shape (J,).
    speed_up : speed on each GPU type over that on a V100, averaged over the GPU-seconds.
    curves : columns of models.csv.
    """

    model: Texts
    work: Floats
    requested: Ints
    gpu_s: Floats
    speed_up: Mapping[str, float]
    curves: Columns

    @property
    def demand(self) -> float:
        """GPU-seconds of all jobs."""
        return float(self.gpu_s.sum())

    def count_v100s(self, pools: Pools) -> float:
        """Return the GPUs of the pools, each counted as many V100s as it is faster."""
        return float(sum(p["gpus"] * self.speed_up[p["gpu_type"]] for p in pools))

    def workload(
        self,
        asked: Asked,
        window_s: float,
        submitted_s: Floats,
        most: Ints,
        pools: Pools,
        columns: Columns,
        **tables: Columns,
    ) -> GeneratedWorkload:
        """Return the workload of a generator, with further columns of its jobs and other tables."""
        jobs = draw.job_columns(submitted_s, self.model, self.work, self.requested, most)
        return GeneratedWorkload.of(
            asked,
            window_s,
            workload={**jobs, **columns},
            pools=columns_of(pools),
            models=self.curves,
            **tables,
        )


def checkpoints(jobs: int) -> dict[str, list[int]]:
    """Return the columns of jobs that may be on spot GPUs."""
    return {"checkpoint_s": [10] * jobs, "checkpoint_every_s": [900] * jobs}


def pools_of(asked: Asked, gpus: int | None = None) -> list[Json]:
    """Return the pools of a generator with so many GPUs, in whole nodes where these are given."""

    total = gpus or asked.total

    def count(share: float, node: int | None) -> int:
        return node * max(1, round(share * total / node)) if node else total

    return [
        {**pool, "gpus": count(pool["gpus"], pool.get("gpus_per_node"))}
        for pool in asked.figures["pools"]
    ]


def draw_demand(
    asked: Asked, most: int = 10**9, pools: Pools = ON_V100S
) -> tuple[Floats, Training]:
    """Draw run times on V100s, and jobs that request `most` GPUs at most, by the figures."""
    f, rng = asked.figures, asked.rng
    requested = np.minimum(asked.draw_sizes(), most)
    run_s = draw.lognormal_in_strata(rng, f["median_s"], f["sigma"], asked.jobs)
    run_s = np.clip(run_s, f.get("shortest_s", 0.0), f["longest_s"])
    return run_s, draw_training(rng, requested, run_s, pools)


def draw_training(
    rng: Rng, requested: Ints, run_s: Floats, pools: Pools = ON_V100S, group: Ints | None = None
) -> Training:
    """Draw models for jobs that take `run_s` seconds on V100s at the requested sizes.

    Parameters
    ----------
    rng : source of every draw.
    requested, run_s : (J,).
    pools : pools whose GPU types models.csv has.
    group : number of the sweep of each job, shape (J,). Jobs of one sweep take the same variant
    of models for so much work. Without it, each job is alone.
    """
    f = FIGURES["speed"]
    group = np.arange(len(requested)) if group is None else group
    kind = np.searchsorted(f["up_to_h"], requested * run_s / 3_600.0, side="right")
    pick = rng.integers(0, 2, int(group.max()) + 1)[group]
    variant = rng.integers(0, VARIANTS, int(group.max()) + 1)[group]
    chosen = np.array(f["choices"])[kind, pick] * VARIANTS + variant
    names = [f"{family}-{v + 1}" for family in f["families"] for v in range(VARIANTS)]
    count = len(names)
    usual = np.repeat(f["samples_per_s"], VARIANTS)
    rate_1 = draw.round_digits(usual * np.exp(rng.normal(0.0, 0.4, count)), 4)
    c = draw.round_digits(np.exp(rng.uniform(np.log(f["c"][0]), np.log(f["c"][1]), count)), 4)
    rate = draw.overhead_rate(rate_1[chosen], c[chosen], requested)
    work = draw.round_digits(run_s * rate, 5)
    gpu_s = work / rate * requested
    rows, rates = list[Record](), dict[str, Floats]()
    for gpu_type in (pool["gpu_type"] for pool in pools):
        low, high = f["relative"][gpu_type]
        ratio = rng.uniform(low, high, count)
        bend = np.ones(count) if gpu_type == "V100" else rng.uniform(0.7, 1.4, count)
        fast, bent = (draw.round_digits(x, 4) for x in (rate_1 * ratio, c * bend))
        rates[gpu_type] = draw.overhead_rate(fast[chosen], bent[chosen], requested)
        rows += (
            {
                "model": names[i],
                "gpu_type": gpu_type,
                "kind": "overhead",
                "parameters": {"c": float(bent[i]), "rate_1": float(fast[i])},
            }
            for i in np.unique(chosen).tolist()
        )
    speed_up = {
        gpu_type: float(np.average(on_type / rates["V100"], weights=gpu_s))
        for gpu_type, on_type in rates.items()
    }
    return Training(np.array(names)[chosen], work, requested, gpu_s, speed_up, columns_of(rows))
