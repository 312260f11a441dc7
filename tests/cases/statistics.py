"""Statistics of a workload, to compare with measured ones."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from allocator.bench.workloads.parts.tables import GeneratedWorkload
from allocator.domain.problem import Floats
from allocator.performance.curves import rate

MARKETS = ("reserved", "on_demand", "spot")


def run_s(tables: GeneratedWorkload, gpu_type: str | None = None) -> Floats:
    """Return the seconds that each job runs at its request on one GPU type, shape (J,).

    The speed is that of models.csv, or else of the fastest row of rates.csv. The default type is
    V100 of models.csv, or the first one.
    """
    jobs, curves = tables.tables["workload.csv"], tables.tables.get("models.csv")
    rows = curves or tables.tables["rates.csv"]
    default = "V100" if curves and "V100" in rows["gpu_type"] else rows["gpu_type"][0]
    asked = np.asarray(jobs["requested_gpus"], np.int64)
    jobs_of, speed = pd.Series(asked).groupby(np.array(jobs["model"])).indices, np.zeros(len(asked))
    for row in (dict(zip(rows, r, strict=True)) for r in zip(*rows.values(), strict=True)):
        mine = jobs_of.get(row["model"], np.zeros(0, np.int64))
        if row["gpu_type"] != (gpu_type or default):
            continue
        if curves:
            speed[mine] = rate(row["kind"], row["parameters"], asked[mine])
        else:
            mine = mine[asked[mine] == row["gpus"]]
            speed[mine] = np.maximum(speed[mine], row["work_per_s"])
    return np.asarray(np.asarray(jobs["total_work"], float) / speed)


def offered_load(
    tables: GeneratedWorkload, window_s: float | None = None, markets: Collection[str] = MARKETS
) -> float:
    """Return GPU-hours demanded at the request / GPU-hours of these markets in the window.

    The default window is that of the generator. With several GPU types both sides are in
    V100-hours: a GPU counts as its speed-up over a V100 at the request, as the mean over the jobs
    weighted by their demand.
    """
    jobs, pools = tables.tables["workload.csv"], tables.tables["pools.csv"]
    base = run_s(tables)
    demand = base * np.asarray(jobs["requested_gpus"])
    window_s = window_s or tables.window_s
    there = sum(
        n * float(np.average(base / run_s(tables, t), weights=demand))
        for t, n, market in zip(
            pools["gpu_type"],
            mean_gpus(tables, window_s),
            pools.get("market", ["reserved"] * len(pools["pool"])),
            strict=True,
        )
        if market in markets
    )
    return float(demand.sum() / (there * window_s))


def mean_gpus(tables: GeneratedWorkload, window_s: float) -> list[float]:
    """Return the mean GPUs of each pool over the window, with the changes of capacity.csv."""
    pools, moves = tables.tables["pools.csv"], tables.tables.get("capacity.csv")
    out = [float(n) for n in pools["gpus"]]
    if moves is None:
        return out
    for i, pool in enumerate(pools["pool"]):
        mine = [(0.0, out[i])] + [
            (float(t), float(n))
            for t, p, n in zip(moves["at_s"], moves["pool"], moves["gpus"], strict=True)
            if p == pool and t < window_s
        ]
        at, gpus = np.array(mine).T
        out[i] = float(np.diff(at, append=window_s) @ gpus) / window_s
    return out
