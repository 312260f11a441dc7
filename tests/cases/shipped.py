"""The snapshots of data/snapshots by name; scripts/generators/generate_snapshots.py writes them."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from cases.clusters import ClusterSpec, PoolSpec, generate
from cases.demo import demo
from cases.folders import Folder

MEDIUM = ClusterSpec(
    "medium",
    500,
    (
        PoolSpec("H100", 64),
        PoolSpec("A100", 128, "on_demand"),
        PoolSpec("V100", 192),
        PoolSpec("T4", 128, "spot"),
    ),
    running=0.4,
    budget=0.7,
    max_changes=200,
)
FULL = ClusterSpec(
    "full",
    30,
    (PoolSpec("A100", 16), PoolSpec("V100", 16, "on_demand"), PoolSpec("T4", 8, "spot")),
    tenants=4,
    models=8,
    running=0.4,
    fixed=0.15,
    held=0.05,
    budget=0.75,
    max_changes=12,
)
MEDIUM_SEED, FULL_SEED = 1, 6
MEMORY_GB = {"A100": 80, "V100": 16, "T4": 15}


def shipped_folders() -> list[Folder]:
    """Return all folders that are generated."""
    return [demo(), generate(MEDIUM, MEDIUM_SEED), full()]


def full() -> Folder:
    """Return about 30 jobs that use every column of every table and every key of config.toml.

    The plan is the same for a simple reader that ignores the rarer columns: prices in force repeat
    pools.csv, `up` nodes add up to the pools, slower alternatives stay slower, and fitted curves
    and predecessors concern no job that could run.
    """
    made = generate(FULL, FULL_SEED)
    tables: dict[str, list[dict[str, Any]]] = {
        file: [dict(r) for r in rows] for file, rows in made.tables.items()
    }
    jobs, pools, rates = tables["jobs.csv"], tables["pools.csv"], tables["rates.csv"]
    now = int(made.config["now_s"])
    for i, p in enumerate(pools):
        p |= {"region": ("here", "us-east", "us-west")[i], "memory_gb": MEMORY_GB[p["gpu_type"]]}
    for i, j in enumerate(jobs):
        j["memory_gb"] = round(4 + 7.3 * i % 11, 1)
        if i % 5 == 1:
            j |= {"deadline_s": now + 3_600 * (i + 1), "restart_s": 15 + i}
        if i % 4 == 2:
            j |= {"checkpoint_s": 12.5, "checkpoint_every_s": 1_800}
        if i % 6 == 3:
            j["sizes"] = sorted({j["min_gpus"], j["max_gpus"]})
    finished = next(j for j in jobs if j["state"] == "queued")
    finished["after"] = "job-of-last-week"  # not in the snapshot, so the job may start
    next(j for j in jobs if j["state"] == "held")["after"] = [jobs[0]["job_id"], "job-of-last-week"]
    tables["received.csv"] = _history(jobs, pools, now)
    _rates(rates)
    model = jobs[-1]["model"]
    tables["models.csv"] = _curves(tables, model)
    tables["prices.csv"] = _prices(pools, now)
    tables["nodes.csv"] = _nodes(pools)
    tables["placements.csv"] = _placements(jobs, tables["nodes.csv"])
    models = list(dict.fromkeys(j["model"] for j in jobs))
    tables["sharing.csv"] = [
        {
            "model_a": a,
            "model_b": b,
            "gpu_type": "V100",
            "gpus": k,
            "slowdown_a": 1.2 + 0.1 * k,
            "slowdown_b": 1.45,
        }
        for a, b in itertools.pairwise(models[:4])
        for k in (1, 2)
    ]
    config = dict(made.config) | {"objective": "progress", "horizon": {"rounds": 12}}
    return dataclasses.replace(made, config=config, tables=tables)


def _history(
    jobs: list[dict[str, Any]], pools: list[dict[str, Any]], now: int
) -> list[dict[str, Any]]:
    """Return received.csv, and the columns of what each running job has received.

    Each job held its GPUs for half of its time so far.
    """
    kind = {p["pool"]: p["gpu_type"] for p in pools}
    rows = []
    for i, j in enumerate(j for j in jobs if j["state"] == "running"):
        seconds = (now - j["submitted_s"]) // 2
        j |= {
            "attained_gpu_s": seconds * j["gpus"],
            "restarts": i % 3,
            "largest_gpus": j["gpus"] * (1 + i % 2),
        }
        rows.append({"job_id": j["job_id"], "gpu_type": kind[j["pool"]], "seconds": seconds})
    return rows


def _rates(rates: list[dict[str, Any]]) -> None:
    """Add to each rate how it was measured, and add slower alternatives for the first model."""
    for r in rates:
        r |= {
            "batch_size": 32 * r["gpus"],
            "accumulation": 1,
            "memory_gb": 9.5,
            "spread": -(-r["gpus"] // 8),
            "efficiency": 1,
        }
    slower = [dict(r) for r in rates if r["model"] == rates[0]["model"] and r["gpus"] in (2, 4)]
    for r in slower:
        r |= {
            "work_per_s": float(f"{0.9 * r['work_per_s']:.4g}"),
            "batch_size": 64 * r["gpus"],
            "accumulation": 2,
            "variant": "compressed",
            "efficiency": 0.95,
        }
    rates += slower


def _curves(tables: dict[str, list[dict[str, Any]]], model: str) -> list[dict[str, Any]]:
    """Return fitted curves in place of the T4 rates of one model, whose jobs do not use T4.

    Elsewhere rates take precedence.
    """
    tables["rates.csv"] = [
        r for r in tables["rates.csv"] if (r["model"], r["gpu_type"]) != (model, "T4")
    ]
    for j in tables["jobs.csv"]:
        if j["model"] == model and j.get("pool") != "t4-spot":
            j["gpu_types"] = ["A100", "V100"]
    return [
        {
            "model": model,
            "gpu_type": "T4",
            "kind": "amdahl",
            "parameters": {"rate_1": 12.5, "parallel": 0.95},
        },
        {
            "model": model,
            "gpu_type": "V100",
            "kind": "power",
            "parameters": {"rate_1": 30.0, "exponent": 0.85},
        },
        {
            "model": model,
            "gpu_type": "A100",
            "kind": "overhead",
            "parameters": {"rate_1": 60.0, "c": 0.05},
        },
    ]


def _prices(pools: list[dict[str, Any]], now: int) -> list[dict[str, Any]]:
    """Return three prices: of yesterday, the one in force (as in pools.csv), and a later one."""
    rows = []
    for p in pools:
        price, gpus = p["price_per_gpu_hour"], p["gpus"]
        rows += [
            {
                "at_s": now - 86_400,
                "pool": p["pool"],
                "price_per_gpu_hour": round(0.9 * price, 3),
                "gpus": gpus,
            },
            {"at_s": now - 600, "pool": p["pool"], "price_per_gpu_hour": price},
            {
                "at_s": now + 3_600,
                "pool": p["pool"],
                "price_per_gpu_hour": round(1.1 * price, 3),
                "gpus": gpus - 4,
            },
        ]
    return sorted(rows, key=lambda r: (r["at_s"], r["pool"]))


def _nodes(pools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return nodes of every pool.

    Those that are up add up to its GPUs. One more drains, and one more is down.
    """
    rows = []
    for p in pools:
        per = p["gpus_per_node"]
        up = p["gpus"] // per
        states = ["up"] * up + (["drain", "down"] if p["gpu_type"] == "V100" else [])
        rows += [
            {
                "node": f"{p['gpu_type'].lower()}-{i}",
                "pool": p["pool"],
                "gpus": per,
                "state": s,
                "rack": f"rack-{i % 2}",
            }
            for i, s in enumerate(states)
        ]
    return rows


def _placements(jobs: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Place large jobs first.

    Each goes to the `up` node of its pool with the least free capacity among those that take most
    of it.
    """
    free = {n["node"]: n["gpus"] for n in nodes if n["state"] == "up"}
    pool_of = {n["node"]: n["pool"] for n in nodes}
    rows = []
    for j in sorted((j for j in jobs if j["state"] == "running"), key=lambda j: -j["gpus"]):
        left = j["gpus"]
        while left:
            able = [n for n in free if pool_of[n] == j["pool"] and free[n]]
            node = min(able, key=lambda n: (-min(free[n], left), free[n], n))
            k = min(free[node], left)
            free[node] -= k
            left -= k
            rows.append({"job_id": j["job_id"], "node": node, "gpus": k})
    return rows
