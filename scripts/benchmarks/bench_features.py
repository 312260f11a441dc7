"""Measure one decision with every feature of a round in use, and the same round without them.

    python scripts/benchmarks/bench_features.py [--jobs 10000] [--seeds 3] [--only NAMES] > table.md

The round without features is the family "one" of bench_tail.py with 8 tenants: quotas, guarantees,
budgets, running and paused jobs, types. Each feature changes it, by the same seed:

- modes: a fifth of the jobs list ways to keep workers in step; workers on spot GPUs are uneven
- codecs: every speed on several GPUs has an exchange and two codecs; links have 2 and 25 GB/s
- sharing: any two jobs may share T4 GPUs; the slowdowns of 16 models are known
- best-effort: a fifth of the jobs may share V100 GPUs with guaranteed jobs; isolation is 1.1
- transient: spot GPUs are revoked and live a day; jobs write checkpoints, some are asynchronous
- notebooks: a tenth of the jobs are interactive, a fifth can shrink; GPUs are kept for sessions
- periodic: a tenth of the jobs come again; changes between prepared sizes have pauses of their own
- ahead: prices and capacity are announced, jobs have deadlines, and a dollar has a price
- memory: pools have a price of memory; jobs need some, and less of each GPU at larger sizes

CPU seconds are those of the process and its solver processes on one thread, from a snapshot in
memory to the plan.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import allocator
from scripts.benchmarks.bench_tail import ROOT, cpu_seconds
from scripts.cases.clusters import ClusterSpec, PoolSpec, generate
from scripts.cases.folders import Folder

Tables = dict[str, list[dict[str, Any]]]
Random = np.random.Generator
GAP = 1e-3
SHARED = 16  # models of known slowdowns


def modes(rng: Random, config: dict[str, Any], tables: Tables) -> None:
    for job in _some(rng, tables, 0.2):
        job |= {"modes": "bulk|backup:1|replicated:2|asynchronous:0.9", "checkpoint_s": 10}
    _pool(tables, "T4")["straggler_cv"] = 0.3


def codecs(rng: Random, config: dict[str, Any], tables: Tables) -> None:
    for name, link in (("A100", 25.0), ("H100", 2.0)):
        _pool(tables, name)["link_gb_s"] = link
    for row in [r for r in tables["rates.csv"] if r["gpus"] > 1]:
        row |= {"compute_s": 0.2, "volume_gb": 0.4}
        tables["rates.csv"] += [
            row | {"variant": "fp16", "codec_s": 0.01, "ratio": 2.0},
            row | {"variant": "topk", "codec_s": 0.05, "ratio": 20.0, "efficiency": 0.95},
        ]


def sharing(rng: Random, config: dict[str, Any], tables: Tables) -> None:
    _pool(tables, "T4")["sharing"] = "any"
    models = sorted({job["model"] for job in tables["jobs.csv"]})[:SHARED]
    for pool in tables["pools.csv"]:
        pool["memory_gb"] = 40
    for job in tables["jobs.csv"]:
        job["memory_gb"] = float(rng.choice([6, 12, 24]))
    tables["sharing.csv"] = [
        {
            "model_a": a,
            "model_b": b,
            "gpu_type": kind,
            "gpus": 1,
            "slowdown_a": round(float(rng.uniform(1.1, 2.2)), 3),
            "slowdown_b": round(float(rng.uniform(1.1, 2.2)), 3),
        }
        for i, a in enumerate(models)
        for b in models[i:]
        for kind in ("T4", "V100")
    ]


def best_effort(rng: Random, config: dict[str, Any], tables: Tables) -> None:
    if "sharing.csv" not in tables:
        sharing(rng, config, tables)
    _pool(tables, "V100").update(sharing="best_effort", isolation=1.1)
    for job in _some(rng, tables, 0.2):
        if job.get("preemptible", True):
            job |= {"best_effort": True, "weight": 0.2}


def transient(rng: Random, config: dict[str, Any], tables: Tables) -> None:
    _pool(tables, "T4").update(lifetime_s=86_400, revocations_per_gpu_hour=0.05)
    for job in tables["jobs.csv"]:
        job |= {"checkpoint_s": 10}
    for job in _some(rng, tables, 0.2):
        job |= {"synchronous": False}


def notebooks(rng: Random, config: dict[str, Any], tables: Tables) -> None:
    for job in _some(rng, tables, 0.1):
        job["interactive"] = True
    for job in _some(rng, tables, 0.2):
        job["shrinkable"] = True
    tables["interactive.csv"] = [
        {"pool": pool["pool"], "headroom_gpus": pool["gpus"] // 50, "shrinkable_share": 0.5}
        for pool in tables["pools.csv"]
    ]


def periodic(rng: Random, config: dict[str, Any], tables: Tables) -> None:
    for job in _some(rng, tables, 0.1):
        job |= {"every_s": 86_400, "times": 10}
    tables["pauses.csv"] = [
        {"model": model, "from_gpus": k, "to_gpus": 2 * k, "pause_s": 5}
        for model in sorted({job["model"] for job in tables["jobs.csv"]})
        for k in (1, 2, 4)
    ]


def ahead(rng: Random, config: dict[str, Any], tables: Tables) -> None:
    config["dollar_price"] = 1e-4
    tables["prices.csv"] = [
        {
            "at_s": config["now_s"] + hour * 3600,
            "pool": pool["pool"],
            "price_per_gpu_hour": round(pool["price_per_gpu_hour"] * (1 + 0.2 * hour), 3),
            "gpus": pool["gpus"] - 8 * hour,
        }
        for pool in tables["pools.csv"]
        for hour in (1, 2, 3)
    ]
    for job in _some(rng, tables, 0.3):
        job["deadline_s"] = config["now_s"] + int(rng.integers(3_600, 86_400))


def memory(rng: Random, config: dict[str, Any], tables: Tables) -> None:
    for pool in tables["pools.csv"]:
        pool |= {"price_per_gb_hour": 0.02, "memory_gb": 80}
    for row in tables["rates.csv"]:
        row["memory_gb"] = round(4 + 30 / row["gpus"], 2)
    for job in _some(rng, tables, 0.3):
        job["memory_gb"] = int(rng.integers(4, 40))


Feature = Callable[[Random, dict[str, Any], Tables], None]
FEATURES: dict[str, Feature] = {
    "modes": modes,
    "codecs": codecs,
    "sharing": sharing,
    "best-effort": best_effort,
    "transient": transient,
    "notebooks": notebooks,
    "periodic": periodic,
    "ahead": ahead,
    "memory": memory,
}


def _some(rng: Random, tables: Tables, share: float) -> list[dict[str, Any]]:
    jobs = tables["jobs.csv"]
    return [job for job, u in zip(jobs, rng.random(len(jobs)), strict=True) if u < share]


def _pool(tables: Tables, gpu_type: str) -> dict[str, Any]:
    return next(pool for pool in tables["pools.csv"] if pool["gpu_type"] == gpu_type)


def make_round(names: list[str], jobs: int, seed: int) -> Any:
    """Return the snapshot of a round with these features."""
    pools = (
        PoolSpec("H100", max(8, jobs // 8)),
        PoolSpec("A100", max(8, jobs // 4), "on_demand"),
        PoolSpec("V100", max(16, 3 * jobs // 8)),
        PoolSpec("T4", max(8, jobs // 4), "spot"),
    )
    made, rng = generate(ClusterSpec("features", jobs, pools), seed), np.random.default_rng(seed)
    config = dict(made.config)
    tables = {file: [dict(row) for row in rows] for file, rows in made.tables.items()}
    for name in names:
        FEATURES[name](rng, config, tables)
    return Folder(made.name, config, tables).snapshot()


def decide(names: list[str], jobs: int, seeds: range) -> list[dict[str, Any]]:
    """Decide one round of each seed, and describe it."""
    allocator.solve(make_round(names, 1_000, 999), gap=GAP)
    found = []
    for seed in seeds:
        snapshot = make_round(names, jobs, seed)
        begin = cpu_seconds()
        plan = allocator.solve(snapshot, gap=GAP)
        cpu_s = cpu_seconds() - begin
        found.append({"cpu_s": cpu_s, "gap": plan.gap, "seconds": dict(plan.seconds)})
    return found


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--only",
        default=f"none,{','.join(FEATURES)},all without pairs,all",
        help="features, none, all, all without pairs",
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        unpaired = [name for name in FEATURES if name not in ("sharing", "best-effort")]
        known = {"none": [], "all": list(FEATURES), "all without pairs": unpaired}
        names = known.get(args.child, [args.child])
        print(json.dumps(decide(names, args.jobs, range(args.seeds))))
        return
    print("| features | rounds | CPU s, median | worst | largest gap | wall by phase, median |")
    print("|---|---|---|---|---|---|")
    for name in args.only.split(","):
        words = [__file__, "--child", name, "--jobs", str(args.jobs), "--seeds", str(args.seeds)]
        ran = subprocess.run(
            [sys.executable, *words], stdout=subprocess.PIPE, check=True, text=True, cwd=ROOT
        )
        runs = json.loads(ran.stdout.splitlines()[-1])
        cpu = np.array([run["cpu_s"] for run in runs])
        phases = {
            phase: float(np.median([run["seconds"].get(phase, 0.0) for run in runs]))
            for phase in runs[0]["seconds"]
        }
        shown = ", ".join(f"{phase} {s:.2f}" for phase, s in phases.items())
        gap = max(run["gap"] for run in runs)
        print(
            f"| {name} | {len(runs)} | {np.median(cpu):.2f} | {cpu.max():.2f} | {gap:.1e} |"
            f" {shown} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
