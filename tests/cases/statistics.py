"""Statistics of a workload, to compare with measured ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from allocator.bench.workloads.parts.tables import GeneratedWorkload
from allocator.domain.problem import Floats, Ints
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
    model, asked = np.array(jobs["model"]), np.asarray(jobs["requested_gpus"], np.int64)
    speed = np.zeros(len(model))
    for row in (dict(zip(rows, r, strict=True)) for r in zip(*rows.values(), strict=True)):
        if row["gpu_type"] == (gpu_type or default):
            mine = (model == row["model"]) & (bool(curves) | (asked == row.get("gpus")))
            found = rate(row["kind"], row["parameters"], asked) if curves else row["work_per_s"]
            speed = np.where(mine, found if curves else np.maximum(speed, found), speed)
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


def arrivals(submitted_s: Floats) -> Mapping[str, float]:
    """Return hourly counts (mean, median, p95, p99, variance / mean) and gaps.

    Gaps have median_s, cv, and the share within 2 s.
    """
    counts = np.bincount((np.asarray(submitted_s) // 3_600).astype(np.int64))
    gaps = np.diff(np.sort(np.asarray(submitted_s, float)))
    return {
        "mean": float(counts.mean()),
        "median": float(np.median(counts)),
        "p95": float(np.quantile(counts, 0.95)),
        "p99": float(np.quantile(counts, 0.99)),
        "variance / mean": float(counts.var() / counts.mean()),
        "median_s": float(np.median(gaps)),
        "cv": float(gaps.std() / gaps.mean()),
        "within_2_s": float((gaps <= 2).mean()),
    }


def shares(gpus: Ints, seconds: Floats, sizes: Sequence[int]) -> Mapping[int, tuple[float, float]]:
    """Return shares of the jobs and of the GPU time by number of GPUs.

    Sizes that are not listed count for the largest listed size below.
    """
    return dict(zip(sizes, _classes(gpus, gpus * seconds, sizes)[1:], strict=True))


def weights(gpu_hours: Floats, ends: Sequence[float]) -> list[tuple[float, float]]:
    """Return shares of the jobs and of the GPU time by classes of GPU-hours that end at `ends`.

    The last class has no end.
    """
    return _classes(gpu_hours, gpu_hours, ends)


def _classes(value: Any, time: Floats, ends: Sequence[float]) -> list[tuple[float, float]]:
    """Return shares of the jobs and of the time by classes of a value that end before `ends`."""
    place = np.searchsorted(np.array(ends), value, side="right")
    count, sums = np.bincount(place), np.bincount(place, time)
    count, sums = (np.append(x, np.zeros(len(ends) + 1 - len(x))) for x in (count, sums))
    return list(zip((count / count.sum()).tolist(), (sums / sums.sum()).tolist(), strict=True))


def by_hour(submitted_s: Floats) -> Floats:
    """Return mean submissions per hour by hour of the day, shape (24,), over all whole days."""
    counts = _whole_cycles(submitted_s, 3_600, 24)
    return np.asarray(counts.mean(axis=0))


def by_weekday(submitted_s: Floats) -> Floats:
    """Return the share of submissions by day of the week from Monday, shape (7,), over all whole
    weeks."""
    count = _whole_cycles(submitted_s, 86_400, 7).sum(axis=0)
    return np.asarray(count / count.sum())


def _whole_cycles(submitted_s: Floats, unit_s: int, length: int) -> Ints:
    """Return submissions by cycle and unit of it, without the last cycle if it is not whole."""
    count = np.bincount((np.asarray(submitted_s) // unit_s).astype(np.int64))
    cycles = max(1, len(count) // length)
    return np.resize(np.append(count, np.zeros(length, np.int64)), (cycles, length))
