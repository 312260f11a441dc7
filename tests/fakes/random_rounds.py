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

NODE_SIZES = (4, 8, 6)
MEASURED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# facts.md section 5, dollars per GPU-hour
PRICES = (0.0, 0.35, 0.9, 1.1, 1.47, 2.0, 2.5, 3.06, 4.1, 6.88)
Row = dict[str, Any]
Rows = list[Row]
Curves = dict[tuple[str, str], dict[int, float]]
TENANTS = ("red", "green", "blue", "default")


def random_snapshot(
    rng: Generator, jobs: int, *, rules: bool = True, pools: int | None = None
) -> Folder:
    """A random round of `jobs` jobs in 1-4 pools (or exactly `pools`).

    rules=False leaves capacity and the one-option rule alone: no tenants, budgets, states, holdings
    or limits. The same generator state gives the same folder.
    """
    count = pools or int(rng.integers(1, 5))
    pool_rows = [_pool(rng, p, jobs, rules) for p in range(count)]
    models = [f"model-{m}" for m in range(int(rng.integers(1, min(jobs, 4) + 1)))]
    curves = _curves(rng, models, sorted({p["gpu_type"] for p in pool_rows}))
    job_rows = [_job(rng, j, models, pool_rows, curves, rules) for j in range(jobs)]
    config: Row = {
        "now_s": 10_000,
        "interval_s": _pick(rng, (300, 600, 60)),
        "restart_s": _pick(rng, (0, 30, 45.5)),
    }
    rates = [
        {"model": m, "gpu_type": t, "gpus": k, "work_per_s": r}
        for (m, t), curve in curves.items()
        for k, r in curve.items()
    ]
    tables: dict[str, Rows] = {
        "jobs.csv": job_rows,
        "pools.csv": pool_rows,
        "rates.csv": rates,
    }
    if rules:
        _hold(rng, job_rows, pool_rows, curves)
        tables["tenants.csv"] = _tenants(rng, job_rows, pool_rows)
        _limits(rng, config, job_rows, pool_rows, tables["tenants.csv"])
    return Folder("random", config, tables)


def _pick(rng: Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _chance(rng: Generator, share: float) -> bool:
    return bool(rng.random() < share)


def _pool(rng: Generator, index: int, jobs: int, rules: bool) -> Row:
    row = {
        "pool": f"pool-{index}",
        "gpu_type": _pick(rng, ("A100", "V100", "T4")),
        "gpus": int(rng.integers(1, 5 + 2 * jobs)),
        "gpus_per_node": _pick(rng, NODE_SIZES),
    }
    if rules:
        row |= {
            "market": _pick(rng, ("reserved", "on_demand", "spot")),
            "price_per_gpu_hour": _pick(rng, PRICES),
            "startup_s": _pick(rng, (0, 0, 20, 78)),
        }
    return row


def _curves(rng: Generator, models: list[str], types: list[str]) -> Curves:
    """Measured rates of every model on every type, at some sizes only; one pair in ten has none at
    all, but no model is without any."""
    curves: Curves = {}
    for model in models:
        c, t1 = np.exp(rng.uniform(np.log(0.005), np.log(0.15))), rng.uniform(0.5, 20)
        for gpu_type in types:
            if gpu_type != types[0] and _chance(rng, 0.1):
                continue
            speed = t1 * {"A100": 2.2, "V100": 1.0, "T4": 0.4}[gpu_type] * rng.uniform(0.7, 1.4)
            sizes = [k for k in MEASURED if k in (1, 16) or _chance(rng, 0.6)]
            curves[model, gpu_type] = {
                k: round(float(speed * k / (1 + c * (k - 1)) * rng.uniform(0.9, 1.05)), 4)
                for k in sizes
            }
    return curves


def _job(
    rng: Generator,
    index: int,
    models: list[str],
    pools: Rows,
    curves: Curves,
    rules: bool,
) -> Row:
    model = _pick(rng, models)
    low, high = sorted(int(_pick(rng, (1, 1, 1, 2, 3, 4, 6, 8, 8, 16))) for _ in range(2))
    if _chance(rng, 0.7):
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
    }
    if not rules:
        return row
    row |= {
        "tenant": _pick(rng, TENANTS),
        "state": "queued",
        "weight": _pick(rng, (1, 1, 1, 2, 0.5, 3.7)),
        "preemptible": not _chance(rng, 0.2),
    }
    if _chance(rng, 0.3):
        row["sizes"] = sorted({low, high, *(int(k) for k in rng.integers(low, high + 1, 2))})
    if _chance(rng, 0.3):
        types = sorted({p["gpu_type"] for p in pools})
        row["gpu_types"] = sorted({_pick(rng, types) for _ in range(2)})
    if _chance(rng, 0.3):
        row["restart_s"] = _pick(rng, (0, 15, 120, 1000))
    if _chance(rng, 0.25):
        row["resizes_left"] = _pick(rng, (0, 0, 1, 5))
    if _chance(rng, 0.25):
        row["state"] = _pick(rng, ("paused", "paused", "held"))
    return row


def _hold(
    rng: Generator,
    jobs: Rows,
    pools: Rows,
    curves: Curves,
) -> None:
    """Let about 40 % of the jobs run on free GPUs, some at sizes their list does not name;
    sometimes drain a pool.
    """
    free = {p["pool"]: p["gpus"] for p in pools}
    for job in jobs:
        if job["state"] != "queued" or not _chance(rng, 0.5):
            continue
        pool = _pick(rng, pools)
        listed = "sizes" in job and _chance(rng, 0.7)
        k = (
            _pick(rng, job["sizes"])
            if listed
            else int(rng.integers(job["min_gpus"], job["max_gpus"] + 1))
        )
        typed = pool["gpu_type"] in job.get("gpu_types", (pool["gpu_type"],))
        known = (job["model"], pool["gpu_type"]) in curves
        if k <= free[pool["pool"]] and typed and known:
            free[pool["pool"]] -= k
            job |= {"state": "running", "pool": pool["pool"], "gpus": k}
    if _chance(rng, 0.15):
        pool = _pick(rng, pools)
        pool["gpus"] = int(rng.integers(0, pool["gpus"] + 1))
        # whether such a job is released depends on its neighbours: not every reading agrees
        for job in jobs:
            if job.get("pool") == pool["pool"] and job["gpus"] <= pool["gpus"]:
                job["preemptible"] = True


def _running(jobs: Rows) -> Rows:
    return [j for j in jobs if j["state"] == "running"]


def _spent(jobs: Rows, pools: Rows) -> float:
    price = {p["pool"]: p["price_per_gpu_hour"] for p in pools}
    return float(sum(j["gpus"] * price[j["pool"]] for j in jobs))


def _tenants(rng: Generator, jobs: Rows, pools: Rows) -> Rows:
    """Quotas, guarantees and budgets above what cannot be taken away; one in ten ignores what
    runs now.
    """
    rows = []
    total = sum(p["gpus"] for p in pools)
    for name in TENANTS[: int(rng.integers(1, 5))]:
        mine = [j for j in _running(jobs) if j["tenant"] == name]
        fixed = mine if _chance(rng, 0.5) else [j for j in mine if not j["preemptible"]]
        row: Row = {"tenant": name, "weight": 1}
        if _chance(rng, 0.4):
            row["max_gpus"] = sum(j["gpus"] for j in fixed) + int(rng.integers(0, total + 1))
        if _chance(rng, 0.4):
            row["guaranteed_gpus"] = min(
                int(rng.integers(0, 2 + total // 3)), row.get("max_gpus", total), 12
            )
        if _chance(rng, 0.3):
            row["budget_per_hour"] = round(_spent(fixed, pools) + float(rng.uniform(0, 20)), 2)
        rows.append(row)
    return rows


def _limits(
    rng: Generator,
    config: Row,
    jobs: Rows,
    pools: Rows,
    tenants: Rows,
) -> None:
    """Budget and max_changes; where the snapshot already breaks a rule, every running job may
    change.
    """
    running = _running(jobs)
    full = sum(p["gpus"] * p["price_per_gpu_hour"] for p in pools)
    if _chance(rng, 0.6):
        fixed = running if _chance(rng, 0.7) else [j for j in running if not j["preemptible"]]
        config["budget_per_hour"] = round(
            _spent(fixed, pools) + float(rng.uniform(0, 0.8)) * full, 2
        )
    if _chance(rng, 0.5):
        broken = _broken(config, running, pools, tenants)
        config["max_changes"] = len(running) if broken else int(rng.integers(0, len(running) + 1))


def _broken(
    config: Row,
    running: Rows,
    pools: Rows,
    tenants: Rows,
) -> bool:
    """Whether what runs now breaks a pool's size, the budget or a tenant's limits."""

    def held(column: str, name: str) -> Rows:
        return [j for j in running if j[column] == name]

    return (
        any(sum(j["gpus"] for j in held("pool", p["pool"])) > p["gpus"] for p in pools)
        or _spent(running, pools) > config.get("budget_per_hour", np.inf)
        or any(
            sum(j["gpus"] for j in held("tenant", t["tenant"])) > t.get("max_gpus", np.inf)
            or _spent(held("tenant", t["tenant"]), pools) > t.get("budget_per_hour", np.inf)
            for t in tenants
        )
    )
