"""Small random snapshots that use every rule, for comparing solvers, policies
and oracles.

They use only what the second reading knows: no nodes, prices over time, fitted
curves, efficiency or predecessors. Most are feasible; some already break a quota, a budget or a
drained pool.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cases.folders import Folder
from numpy.random import Generator

MEASURED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
SPEED = {"A100": 2.2, "V100": 1.0, "T4": 0.4}
# facts.md section 5, dollars per GPU-hour
PRICES = (0.0, 0.35, 0.9, 1.1, 1.47, 2.0, 2.5, 3.06, 4.1, 6.88)
Row = dict[str, Any]
Rows = list[Row]
Curves = dict[tuple[str, str], dict[int, float]]
TENANTS = ("red", "green", "blue", "default")
# columns of jobs that limit no plan but by GPUs and sizes
PLAIN = ("job_id", "model", "submitted_s", "remaining_work", "min_gpus", "max_gpus")


def random_snapshot(
    rng: Generator, jobs: int, *, rules: bool = True, pools: int | None = None
) -> Folder:
    """A random round of `jobs` jobs in 1-4 pools (or exactly `pools`).

    rules=False leaves capacity and the one-option rule alone: no tenants, budgets, states, holdings
    or limits. The same generator state gives the same folder.
    """
    pool_rows = [
        {
            "pool": f"pool-{p}",
            "gpu_type": pick(rng, "A100", "V100", "T4"),
            "gpus": int(rng.integers(1, 5 + 2 * jobs)),
            "gpus_per_node": pick(rng, 4, 8, 6),
            "market": pick(rng, "reserved", "on_demand", "spot"),
            "price_per_gpu_hour": pick(rng, *PRICES),
            "startup_s": pick(rng, 0, 0, 20, 78),
        }
        for p in range(pools or int(rng.integers(1, 5)))
    ]
    models = [f"model-{m}" for m in range(int(rng.integers(1, min(jobs, 4) + 1)))]
    types = sorted({p["gpu_type"] for p in pool_rows})
    curves = _curves(rng, models, types)
    job_rows = [_job(rng, j, models, types, curves) for j in range(jobs)]
    config: Row = {
        "now_s": 10_000,
        "interval_s": pick(rng, 300, 600, 60),
        "restart_s": pick(rng, 0, 30, 45.5),
    }
    rates = [
        {"model": m, "gpu_type": t, "gpus": k, "work_per_s": r}
        for (m, t), curve in curves.items()
        for k, r in curve.items()
    ]
    tables: dict[str, Rows] = {"jobs.csv": job_rows, "pools.csv": pool_rows, "rates.csv": rates}
    if rules:
        _hold(rng, job_rows, pool_rows, curves)
        tables["tenants.csv"] = _limit(rng, config, job_rows, pool_rows)
    else:
        tables["jobs.csv"] = [{name: row[name] for name in PLAIN} for row in job_rows]
    return Folder("random", config, tables)


def pick(rng: Generator, *values: Any) -> Any:
    """One of the values."""
    return values[int(rng.integers(len(values)))]


def _curves(rng: Generator, models: list[str], types: list[str]) -> Curves:
    """Measured rates of every model on every type, at some sizes only; one pair in ten has none at
    all, but no model is without any."""
    curves: Curves = {}
    for model in models:
        c, t1 = np.exp(rng.uniform(np.log(0.005), np.log(0.15))), rng.uniform(0.5, 20)
        for gpu_type in types:
            if gpu_type != types[0] and rng.random() < 0.1:
                continue
            speed = t1 * SPEED[gpu_type] * rng.uniform(0.7, 1.4)
            sizes = [k for k in MEASURED if k in (1, 16) or rng.random() < 0.6]
            curves[model, gpu_type] = {
                k: round(float(speed * k / (1 + c * (k - 1)) * rng.uniform(0.9, 1.05)), 4)
                for k in sizes
            }
    return curves


def _job(rng: Generator, index: int, models: list[str], types: list[str], curves: Curves) -> Row:
    model = pick(rng, *models)
    low, high = sorted(pick(rng, 1, 1, 1, 2, 3, 4, 6, 8, 8, 16) for _ in range(2))
    if rng.random() < 0.7:
        low = 1
    fastest = max((curve[16] for (m, _), curve in curves.items() if m == model), default=1.0)
    row: Row = {
        "job_id": f"job-{index}",
        "model": model,
        "submitted_s": int(rng.integers(0, 10_000)),
        "remaining_work": round(float(fastest * 300 * np.exp(rng.uniform(-2, 3))), 3),
        "min_gpus": low,
        "max_gpus": high,
        "requested_gpus": int(rng.integers(low, high + 1)),
        "tenant": pick(rng, *TENANTS),
        "state": "queued",
        "weight": pick(rng, 1, 1, 1, 2, 0.5, 3.7),
        "preemptible": bool(rng.random() >= 0.2),
    }
    if rng.random() < 0.3:
        row["sizes"] = sorted({low, high, *rng.integers(low, high + 1, 2).tolist()})
    if rng.random() < 0.3:
        row["gpu_types"] = sorted({pick(rng, *types) for _ in range(2)})
    if rng.random() < 0.3:
        row["restart_s"] = pick(rng, 0, 15, 120, 1000)
    if rng.random() < 0.25:
        row["resizes_left"] = pick(rng, 0, 0, 1, 5)
    if rng.random() < 0.25:
        row["state"] = pick(rng, "paused", "paused", "held")
    return row


def _hold(rng: Generator, jobs: Rows, pools: Rows, curves: Curves) -> None:
    """Let about 40 % of the jobs run on free GPUs, some at sizes their list does not name;
    sometimes drain a pool.
    """
    free = {p["pool"]: p["gpus"] for p in pools}
    for job in jobs:
        if job["state"] != "queued" or rng.random() >= 0.5:
            continue
        pool = pick(rng, *pools)
        is_listed = "sizes" in job and rng.random() < 0.7
        sizes = job["sizes"] if is_listed else range(job["min_gpus"], job["max_gpus"] + 1)
        k, gpu_type = pick(rng, *sizes), pool["gpu_type"]
        fits = k <= free[pool["pool"]] and (job["model"], gpu_type) in curves
        if fits and gpu_type in job.get("gpu_types", (gpu_type,)):
            free[pool["pool"]] -= k
            job |= {"state": "running", "pool": pool["pool"], "gpus": k}
    if rng.random() < 0.15:
        pool = pick(rng, *pools)
        pool["gpus"] = int(rng.integers(0, pool["gpus"] + 1))
        # whether such a job is released depends on its neighbours: not every reading agrees
        for job in jobs:
            if job.get("pool") == pool["pool"] and job["gpus"] <= pool["gpus"]:
                job["preemptible"] = True


def _limit(rng: Generator, config: Row, jobs: Rows, pools: Rows) -> Rows:
    """Limit the round, and return tenants with limits and guarantees.

    Limits are above what runs, or only above what cannot be taken away. Where the snapshot already
    breaks a rule, every running job may change.
    """
    price = {p["pool"]: p["price_per_gpu_hour"] for p in pools}
    running, rows = [j for j in jobs if j["state"] == "running"], []
    total = sum(p["gpus"] for p in pools)

    def use(some: Rows) -> tuple[int, float]:
        """GPUs, and dollars per hour."""
        return sum(j["gpus"] for j in some), float(sum(j["gpus"] * price[j["pool"]] for j in some))

    def fixed(some: Rows, share: float) -> tuple[int, float]:
        ignores = rng.random() >= share
        return use([j for j in some if not (ignores and j["preemptible"])])

    broken = any(use([j for j in running if j["pool"] == p["pool"]])[0] > p["gpus"] for p in pools)
    for name in TENANTS[: int(rng.integers(1, 5))]:
        mine = [j for j in running if j["tenant"] == name]
        gpus, dollars = fixed(mine, 0.5)
        row: Row = {"tenant": name, "weight": 1}
        if rng.random() < 0.4:
            row["max_gpus"] = gpus + int(rng.integers(0, total + 1))
        if rng.random() < 0.4:
            promised = int(rng.integers(0, 2 + total // 3))
            row["guaranteed_gpus"] = min(promised, row.get("max_gpus", total), 12)
        if rng.random() < 0.3:
            row["budget_per_hour"] = round(dollars + float(rng.uniform(0, 20)), 2)
        limits = (row.get("max_gpus", np.inf), row.get("budget_per_hour", np.inf))
        broken |= any(a > b for a, b in zip(use(mine), limits, strict=True))
        rows.append(row)
    if rng.random() < 0.6:
        full = sum(p["gpus"] * p["price_per_gpu_hour"] for p in pools)
        dollars = fixed(running, 0.7)[1]
        config["budget_per_hour"] = round(dollars + float(rng.uniform(0, 0.8)) * full, 2)
    broken |= use(running)[1] > config.get("budget_per_hour", np.inf)
    if rng.random() < 0.5:
        most = len(running)
        config["max_changes"] = most if broken else int(rng.integers(0, most + 1))
    return rows
