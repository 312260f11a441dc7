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

    The default type is V100, or the only one.
    """
    if "models.csv" not in tables.tables:
        return _measured_s(tables, gpu_type)
    jobs, curves = tables.tables["workload.csv"], tables.tables["models.csv"]
    types = list(dict.fromkeys(curves["gpu_type"]))
    gpu_type = gpu_type or ("V100" if "V100" in types else types[0])
    known = {
        m: (kind, q)
        for m, t, kind, q in zip(
            *(curves[c] for c in ("model", "gpu_type", "kind", "parameters")), strict=True
        )
        if t == gpu_type
    }
    speed = np.empty(len(jobs["model"]))
    requested = _ints(jobs["requested_gpus"])
    model = np.array(jobs["model"])
    order = np.argsort(model, kind="stable")
    starts = np.flatnonzero(np.concatenate([[True], model[order][1:] != model[order][:-1]]))
    for part in np.split(order, starts[1:]):
        kind, q = known[str(model[part[0]])]
        speed[part] = rate(kind, q, requested[part])
    return np.asarray(jobs["total_work"], float) / speed


def _measured_s(tables: GeneratedWorkload, gpu_type: str | None) -> Floats:
    """Return the same by the fastest row of rates.csv at the request; default: the first type."""
    jobs, rows = tables.tables["workload.csv"], tables.tables["rates.csv"]
    gpu_type = gpu_type or str(rows["gpu_type"][0])
    best: dict[tuple[str, int], float] = {}
    for m, t, k, r in zip(
        *(rows[c] for c in ("model", "gpu_type", "gpus", "work_per_s")), strict=True
    ):
        if t == gpu_type:
            best[m, int(k)] = max(best.get((m, int(k)), 0.0), float(r))
    speed = [
        best[m, k]
        for m, k in zip(jobs["model"], _ints(jobs["requested_gpus"]).tolist(), strict=True)
    ]
    return np.asarray(np.asarray(jobs["total_work"], float) / np.array(speed))


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
    demand = base * _ints(jobs["requested_gpus"])
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
    place = np.searchsorted(np.array(sizes), gpus, side="right") - 1
    time = np.bincount(place, gpus * seconds, len(sizes))
    count = np.bincount(place, minlength=len(sizes))
    return {
        k: (float(count[i] / count.sum()), float(time[i] / time.sum())) for i, k in enumerate(sizes)
    }


def weights(gpu_hours: Floats, ends: Sequence[float]) -> list[tuple[float, float]]:
    """Return shares of the jobs and of the GPU time by classes of GPU-hours that end at `ends`.

    The last class has no end.
    """
    place = np.searchsorted(np.array(ends), gpu_hours, side="right")
    count, time = (
        np.bincount(place, minlength=len(ends) + 1),
        np.bincount(place, gpu_hours, len(ends) + 1),
    )
    return [
        (float(n), float(t)) for n, t in zip(count / count.sum(), time / time.sum(), strict=True)
    ]


def by_hour(submitted_s: Floats) -> Floats:
    """Return mean submissions per hour by hour of the day, shape (24,), over all whole days."""
    hour = (np.asarray(submitted_s) // 3_600).astype(np.int64)
    days = max(1, int(hour.max() + 1) // 24)
    return np.asarray(np.bincount(hour[hour < 24 * days] % 24, minlength=24) / days)


def by_weekday(submitted_s: Floats) -> Floats:
    """Return the share of submissions by day of the week from Monday, shape (7,).

    It is computed over all whole weeks.
    """
    day = (np.asarray(submitted_s) // 86_400).astype(np.int64)
    weeks = max(1, int(day.max() + 1) // 7)
    count = np.bincount(day[day < 7 * weeks] % 7, minlength=7)
    return np.asarray(count / count.sum())


def _ints(values: Any) -> Ints:
    return np.asarray(values, np.int64)
