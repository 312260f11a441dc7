"""Synthetic clusters with the statistics of measured ones.

Sources of the figures:

- GPU counts and durations by size: the Philly trace (2017, 82,247 jobs)
- speed curves: fits of t1 n / (1 + c (n - 1)) to published scaling tables, c log-uniform in
  0.005-0.15
- speed of GPU types relative to a V100
- list prices per GPU-hour of 2025

All data is generated; no line of a trace is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from cases.folders import Folder
from numpy.random import Generator

Row = dict[str, Any]
Rows = list[Row]
Speed = dict[tuple[str, str], dict[int, float]]

# Philly, the six virtual clusters that run multi-GPU jobs: share of jobs by number of GPUs
DEMAND = {1: 0.791, 2: 0.024, 4: 0.081, 8: 0.082, 16: 0.014, 32: 0.007, 64: 0.001}
# mean and standard deviation of ln(duration in s) by number of GPUs: long jobs are the large ones
DURATION = {
    1: (6.72, 1.97),
    2: (7.5, 2.4),
    4: (9.11, 2.2),
    8: (9.65, 2.2),
    16: (9.27, 2.3),
    32: (9.3, 2.2),
    64: (9.3, 2.2),
}
LONGEST_S = 14 * 86_400
RELATIVE_SPEED = {"T4": (0.3, 0.5), "V100": (0.9, 1.1), "A100": (1.7, 3.0), "H100": (2.2, 6.0)}
# dollars per GPU-hour: reserved (a third below on-demand), on-demand, spot
PRICE = {
    "T4": (0.35, 0.53, 0.18),
    "V100": (1.95, 2.95, 0.89),
    "A100": (2.45, 3.67, 1.47),
    "H100": (4.60, 6.88, 2.51),
}
MARKET = ("reserved", "on_demand", "spot")
# start of a GPU machine: median 78 s
STARTUP_S = {"reserved": 20, "on_demand": 78, "spot": 78}
# 0.61 per node-hour over nodes of 8
REVOCATIONS = {"reserved": 0.0, "on_demand": 0.0, "spot": 0.076}
MEASURED = (1, 2, 4, 8, 16, 32, 64)
FAMILIES = (
    "resnet50",
    "bert",
    "gnmt",
    "yolov3",
    "deepspeech2",
    "transformer-xl",
    "dlrm",
    "llama-lora",
)


@dataclass(frozen=True)
class PoolSpec:
    """One pool: `gpus` GPUs of a type, bought in a market."""

    gpu_type: str
    gpus: int
    market: str = "reserved"


@dataclass(frozen=True)
class ClusterSpec:
    """What to generate.

    Attributes
    ----------
    tenants : number of tenants; 0 is one tenant without limits.
    models : number of speed curves, each on all types.
    running : share of the jobs that hold GPUs.
    fixed : share of the running jobs that are not preemptible.
    held : share of the waiting jobs that are held, and of those that are paused.
    budget : share of the price of the whole cluster; None is no budget.
    max_changes : of the round; None is no limit.
    sizes : the list of sizes of every job; empty is the size rule.
    """

    name: str
    jobs: int
    pools: tuple[PoolSpec, ...]
    tenants: int = 8
    models: int = 24
    running: float = 0.4
    fixed: float = 0.1
    held: float = 0.02
    budget: float | None = 0.8
    max_changes: int | None = None
    interval_s: int = 300
    restart_s: int = 45
    now_s: int = 2_000_000
    sizes: tuple[int, ...] = ()


MEDIUM_SEED = 1
MEDIUM = ClusterSpec(
    "medium",
    500,
    (
        PoolSpec("H100", 64),
        PoolSpec("A100", 128, "on_demand"),
        PoolSpec("V100", 192),
        PoolSpec("T4", 128, "spot"),
    ),
    budget=0.7,
    max_changes=200,
)
"""data/snapshots/medium."""


def generate(spec: ClusterSpec, seed: int) -> Folder:
    """The snapshot of `spec`; the same seed gives the same bytes."""
    rng = np.random.default_rng(seed)
    pools = [_pool(p) for p in spec.pools]
    speed = _curves(rng, spec)
    jobs = _jobs(rng, spec, speed)
    config: Row = {
        "now_s": spec.now_s,
        "interval_s": spec.interval_s,
        "restart_s": spec.restart_s,
    }
    tables: dict[str, Rows] = {
        "jobs.csv": jobs,
        "pools.csv": pools,
        "rates.csv": [
            {"model": m, "gpu_type": t, "gpus": k, "work_per_s": r}
            for (m, t), by in speed.items()
            for k, r in by.items()
        ],
    }
    if spec.tenants:
        tables["tenants.csv"] = _tenants(rng, spec, pools)
    _start(rng, spec, jobs, pools, tables.get("tenants.csv", []))
    if spec.budget is not None:
        config["budget_per_hour"] = round(
            spec.budget * sum(p["gpus"] * p["price_per_gpu_hour"] for p in pools)
        )
    if spec.max_changes is not None:
        config["max_changes"] = spec.max_changes
    return Folder(spec.name, config, tables)


def _pool(p: PoolSpec) -> Row:
    return {
        "pool": f"{p.gpu_type.lower()}-{p.market.replace('_', '-')}",
        "gpu_type": p.gpu_type,
        "gpus": p.gpus,
        "gpus_per_node": 4 if p.gpu_type == "T4" else 8,
        "market": p.market,
        "price_per_gpu_hour": PRICE[p.gpu_type][MARKET.index(p.market)],
        "startup_s": STARTUP_S[p.market],
        "revocations_per_gpu_hour": REVOCATIONS[p.market],
    }


def _curves(rng: Generator, spec: ClusterSpec) -> Speed:
    """Return work per second of every model on every type at the measured sizes, four digits."""
    sizes = spec.sizes or MEASURED
    types = list(dict.fromkeys(p.gpu_type for p in spec.pools))
    speed: Speed = {}
    for m in range(spec.models):
        model = f"{FAMILIES[m % len(FAMILIES)]}-{m // len(FAMILIES) + 1}"
        t1, c = np.exp(rng.normal(4.0, 1.0)), np.exp(rng.uniform(np.log(0.005), np.log(0.15)))
        for t in types:
            one = t1 * rng.uniform(*RELATIVE_SPEED[t])
            speed[model, t] = {k: float(f"{one * k / (1 + c * (k - 1)):.4g}") for k in sizes}
    return speed


def _shares(count: int) -> Any:
    """Shares of tenants: a power law with exponent 0.7, shape (count,)."""
    share = np.arange(1, count + 1) ** -0.7
    return share / share.sum()


def _jobs(rng: Generator, spec: ClusterSpec, speed: Speed) -> Rows:
    """Return jobs in order of submission.

    Running jobs are drawn in proportion to their length, as a snapshot sees them.
    """
    sizes, share = np.array(list(DEMAND)), np.array(list(DEMAND.values()))
    many = 20 * spec.jobs
    size = rng.choice(sizes, many, p=share / share.sum())
    mu, sigma = (np.array([DURATION[int(k)][i] for k in size]) for i in (0, 1))
    length = np.clip(np.exp(rng.normal(mu, sigma)), 60, LONGEST_S)
    long = round(spec.running * spec.jobs)
    seen = rng.choice(many, long, replace=False, p=length / length.sum())
    fresh = rng.choice(np.setdiff1d(np.arange(many), seen), spec.jobs - long, replace=False)
    age = np.concatenate(
        [length[seen] * rng.uniform(0, 1, long), rng.exponential(3_000, spec.jobs - long)]
    )
    drawn = np.concatenate([seen, fresh])
    curves: dict[str, list[dict[int, float]]] = {}
    for (name, _), curve in speed.items():
        curves.setdefault(name, []).append(curve)
    models = list(curves)
    rows = []
    for rank, i in enumerate(np.argsort(-age, kind="stable")):
        k, total_s = min(int(size[drawn[i]]), max(spec.sizes or MEASURED)), float(length[drawn[i]])
        model = models[int(rng.integers(len(models)))]
        by_type = curves[model]
        reference = sorted(c[min(c, key=lambda n: abs(n - k))] for c in by_type)[len(by_type) // 2]
        total = float(f"{total_s * reference:.5g}")
        left = float(f"{total * (rng.uniform(0.02, 1) if i < long else 1):.5g}")
        rows.append(
            {
                "job_id": f"job-{rank:04d}",
                "model": model,
                "submitted_s": spec.now_s - int(age[i]),
                "remaining_work": left,
                "total_work": total,
                "requested_gpus": k,
                **_range(rng, spec, k),
                **_request_columns(rng, spec, bool(i < long)),
            }
        )
    return rows


def _range(rng: Generator, spec: ClusterSpec, k: int) -> Row:
    if spec.sizes:
        return {"min_gpus": min(spec.sizes), "max_gpus": max(spec.sizes), "sizes": spec.sizes}
    return {
        "min_gpus": max(1, k // 4) if rng.random() < 0.25 else 1,
        "max_gpus": min(64, k * int(rng.choice([1, 2, 4], p=[0.3, 0.3, 0.4]))),
    }


def _request_columns(rng: Generator, spec: ClusterSpec, runs: bool) -> Row:
    """Return tenant, weight and the rarer columns. Running jobs get their GPUs later (_start)."""
    types = list(dict.fromkeys(p.gpu_type for p in spec.pools))
    out: Row = {
        "weight": float(rng.choice([1, 2, 4], p=[0.7, 0.2, 0.1])),
        "state": "running" if runs else "queued",
    }
    if spec.tenants:
        out["tenant"] = f"team-{int(rng.choice(spec.tenants, p=_shares(spec.tenants))) + 1}"
    if len(types) > 1 and rng.random() < 0.3:
        out["gpu_types"] = sorted(rng.choice(types, 2, replace=False).tolist())
    if runs:
        out["preemptible"] = bool(rng.random() >= spec.fixed)
        if rng.random() < 0.1:
            out["resizes_left"] = int(rng.integers(0, 3))
    else:
        out["state"] = str(
            rng.choice(["held", "paused", "queued"], p=[spec.held, spec.held, 1 - 2 * spec.held])
        )
    return out


def _tenants(rng: Generator, spec: ClusterSpec, pools: Rows) -> Rows:
    """Return tenants: every second has a quota, every third a guarantee, every fourth a budget."""
    total = sum(p["gpus"] for p in pools)
    hourly_cost = sum(p["gpus"] * p["price_per_gpu_hour"] for p in pools)
    rows = []
    for q, share in enumerate(_shares(spec.tenants)):
        row: Row = {
            "tenant": f"team-{q + 1}",
            "weight": round(float(rng.uniform(0.5, 2)), 1),
        }
        if q % 2 == 0:
            row["max_gpus"] = int(8 * np.ceil(total * share * rng.uniform(0.8, 1.4) / 8))
        if q % 3 == 1:
            row["guaranteed_gpus"] = int(4 * rng.integers(2, 5))
        if q % 4 == 2:
            row["budget_per_hour"] = round(float(hourly_cost * share * rng.uniform(0.7, 1.1)))
        rows.append(row)
    return rows


def _start(
    rng: Generator,
    spec: ClusterSpec,
    jobs: Rows,
    pools: Rows,
    tenants: Rows,
) -> None:
    """Give running jobs their GPUs.

    Each job gets its smallest size, the oldest first. Then all double up to their request, within
    pools, budget and the limits of tenants. Jobs that do not fit are paused.
    """
    price = {p["pool"]: p["price_per_gpu_hour"] for p in pools}
    free = {p["pool"]: p["gpus"] for p in pools}
    money = (
        np.inf
        if spec.budget is None
        else spec.budget * sum(p["gpus"] * p["price_per_gpu_hour"] for p in pools)
    )
    quota = {t["tenant"]: t.get("max_gpus", np.inf) for t in tenants}
    purse = {t["tenant"]: t.get("budget_per_hour", np.inf) for t in tenants}

    def take(job: Row, pool: str, more: int) -> bool:
        nonlocal money
        who, cost = job.get("tenant", ""), more * price[pool]
        if more > min(free[pool], quota.get(who, np.inf)) or cost > min(
            money, purse.get(who, np.inf)
        ):
            return False
        free[pool] -= more
        money -= cost
        quota[who] = quota.get(who, np.inf) - more
        purse[who] = purse.get(who, np.inf) - cost
        job |= {"pool": pool, "gpus": job.get("gpus", 0) + more}
        return True

    growing = []
    for job in (j for j in jobs if j["state"] == "running"):
        allowed = [
            p["pool"] for p in pools if p["gpu_type"] in job.get("gpu_types", (p["gpu_type"],))
        ]
        if any(take(job, allowed[int(i)], job["min_gpus"]) for i in rng.permutation(len(allowed))):
            growing.append(job)
        else:
            job["state"] = "paused"
    while growing:
        growing = [
            j
            for j in growing
            if 2 * j["gpus"] <= j["requested_gpus"] and take(j, j["pool"], j["gpus"])
        ]
