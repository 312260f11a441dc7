"""Measure the time of decisions over families, sizes and seeds, with this code and another's.

    python scripts/benchmarks/bench_rounds.py [--jobs 100,500,2000,10000] [--families one,tight]
        [--seeds 20] [--first 0] [--warm 0] [--base FOLDER] [--without nearby-prices]
        [--results FILE] > table.md

Every family has as many GPUs as jobs, in four pools:

- one: one tenant, a budget of 80 % of the price of all GPUs
- 20, 100: so many tenants; every second has a quota, every third a guarantee, every fourth a budget
- lumpy: one tenant, jobs of 1 or 8 to 64 GPUs, no budget
- tight: 8 tenants, a budget of 25 %
- guarantees: one tenant for every 25 jobs; each has a guarantee of the GPUs that its jobs hold
- changes: 8 tenants, at most a tenth of the jobs may change
- rules: 100 tenants, at most a tenth of the jobs may change; the asked gap is 0.1 %
- none, and the names of FEATURES: 8 tenants with one feature of a round, which its function
  describes; unpaired: all features but pairs; all: all of them; the asked gap is 0.1 %

In every family a guarantee is at most what the jobs of the tenant hold, so every round has a plan.
With `--warm N` each round is followed by N others. Between two rounds the plan is carried out, jobs
do at most 2 % of the work that is left, one job in a hundred ends and one like it arrives, one rate
in a hundred is corrected by up to 5 %, and so is the price of one pool. Each of them is decided
warm by `allocator.Rounds`, and cold by `allocator.solve`. The value of neither plan may exceed the
bound of the other.

With `--base FOLDER`, a checkout of another commit, the code of FOLDER decides the same rounds, in
turn. With `--without MECHANISMS` this code does so with one of MECHANISMS switched off at a time:
what a mechanism is for is what changes without it. With `--results FILE` every decision is written
to FILE at once, and rounds that are in FILE are not decided again, so that a run that was stopped
goes on. FILE must be of one commit.

CPU seconds are those of the process and its solver processes on one thread, from a snapshot in
memory to the audited plan and its columns. The first decision of each process is not counted. The
peak of memory is that of the process after a cold decision.
"""

import argparse
import contextlib
import importlib
import itertools
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from cases.clusters import ClusterSpec, PoolSpec, generate  # noqa: E402
from cases.folders import Folder  # noqa: E402

import allocator  # noqa: E402
from allocator.domain.plan import Plan  # noqa: E402
from allocator.domain.snapshot import Snapshot, Table  # noqa: E402
from allocator.errors import Infeasible  # noqa: E402

Row = dict[str, Any]
Tables = dict[str, list[Row]]
Random = np.random.Generator
GAPS = {100: 1e-4, 500: 5e-4, 2_000: 2e-4, 10_000: 5e-4, 50_000: 1e-4}
GAP = 1e-3  # of other sizes, of `rules` and of features
SEEDS = {20: 200, 100: 200, 500: 200, 2_000: 50, 10_000: 20}
# constant, and the value that switches the mechanism off
MECHANISMS: dict[str, tuple[str, str, Any]] = {
    "nearby-prices": ("formulations.bounds.lagrangian", "BOX_SHARE", -1.0),
    "sample": ("formulations.bounds.lagrangian", "SAMPLE", 10**9),
    "kept-rows": ("formulations.bounds.kept_rows", "NARROW", 0.0),
    "near-ties": ("formulations.primal.moves", "NEAR", 10**9),
    "least-loss": ("formulations.primal.rounding", "LARGEST_LOSS", math.inf),
    "idle-units": ("formulations.primal.rounding", "IDLE", math.inf),
    "pairs-of-moves": ("formulations.primal.rounding", "TRIALS", 0),
    "few-groups": ("formulations.primal.closing", "GROUPS", ()),
    "whole-units": ("formulations.branching.branch_and_bound", "UNITS", ()),
    "block-plans": ("formulations.primal.block_plans", "LIKELY", 0.0),
    "branch-and-bound": ("formulations.primal.closing", "LAST", 0.0),
}
CHUNK = 10  # rounds of one family that a process decides
CHANGED = 0.01  # share of the jobs that end, and of the rates that are corrected
DONE = 0.02  # largest share of the remaining work of a job that an interval does
CORRECTION = 0.05  # largest correction of a rate or a price, relative
FAMILIES: dict[str, Row] = {
    "one": {"tenants": 0},
    "20": {"tenants": 20},
    "100": {"tenants": 100},
    "lumpy": {"tenants": 0, "budget": None, "sizes": (1, 8, 16, 32, 64)},
    "tight": {"tenants": 8, "budget": 0.25},
    "guarantees": {},  # the number of tenants depends on that of the jobs
    "changes": {"tenants": 8, "budget": 0.7},
    "rules": {"tenants": 100},
}


def modes(rng: Random, config: Row, tables: Tables) -> None:
    """Let a fifth of the jobs list ways to keep workers in step; those on spot GPUs are uneven."""
    for job in _some(rng, tables, 0.2):
        job |= {"modes": "bulk|backup:1|replicated:2|asynchronous:0.9", "checkpoint_s": 10}
    _pool(tables, "T4")["straggler_cv"] = 0.3


def codecs(rng: Random, config: Row, tables: Tables) -> None:
    """Give every speed on several GPUs an exchange and two codecs; links have 2 and 25 GB/s."""
    for name, link in (("A100", 25.0), ("H100", 2.0)):
        _pool(tables, name)["link_gb_s"] = link
    for row in [r for r in tables["rates.csv"] if r["gpus"] > 1]:
        row |= {"compute_s": 0.2, "volume_gb": 0.4}
        tables["rates.csv"] += [
            row | {"variant": "fp16", "codec_s": 0.01, "ratio": 2.0},
            row | {"variant": "topk", "codec_s": 0.05, "ratio": 20.0, "efficiency": 0.95},
        ]


def sharing(rng: Random, config: Row, tables: Tables) -> None:
    """Let any two jobs share T4 GPUs; the slowdowns of 16 models are known."""
    _pool(tables, "T4")["sharing"] = "any"
    models = sorted({job["model"] for job in tables["jobs.csv"]})[:16]
    for pool in tables["pools.csv"]:
        pool["memory_gb"] = 40
    for job in tables["jobs.csv"]:
        job["memory_gb"] = float(rng.choice([6, 12, 24]))
    tables["sharing.csv"] = [
        {"model_a": a, "model_b": b, "gpu_type": kind, "gpus": 1}
        | {side: round(float(rng.uniform(1.1, 2.2)), 3) for side in ("slowdown_a", "slowdown_b")}
        for i, a in enumerate(models)
        for b in models[i:]
        for kind in ("T4", "V100")
    ]


def best_effort(rng: Random, config: Row, tables: Tables) -> None:
    """Let a fifth of the jobs share V100 GPUs with guaranteed jobs; isolation is 1.1."""
    if "sharing.csv" not in tables:
        sharing(rng, config, tables)
    _pool(tables, "V100").update(sharing="best_effort", isolation=1.1)
    for job in _some(rng, tables, 0.2):
        if job.get("preemptible", True):
            job |= {"best_effort": True, "weight": 0.2}


def transient(rng: Random, config: Row, tables: Tables) -> None:
    """Revoke spot GPUs, which live a day; jobs write checkpoints, some are asynchronous."""
    _pool(tables, "T4").update(lifetime_s=86_400, revocations_per_gpu_hour=0.05)
    for job in tables["jobs.csv"]:
        job |= {"checkpoint_s": 10}
    for job in _some(rng, tables, 0.2):
        job |= {"synchronous": False}


def notebooks(rng: Random, config: Row, tables: Tables) -> None:
    """Make a tenth of the jobs interactive and a fifth shrinkable; keep GPUs for sessions."""
    for job in _some(rng, tables, 0.1):
        job["interactive"] = True
    for job in _some(rng, tables, 0.2):
        job["shrinkable"] = True
    tables["interactive.csv"] = [
        {"pool": pool["pool"], "headroom_gpus": pool["gpus"] // 50, "shrinkable_share": 0.5}
        for pool in tables["pools.csv"]
    ]


def periodic(rng: Random, config: Row, tables: Tables) -> None:
    """Let a tenth of the jobs come again; changes between prepared sizes have their own pauses."""
    for job in _some(rng, tables, 0.1):
        job |= {"every_s": 86_400, "times": 10}
    tables["pauses.csv"] = [
        {"model": model, "from_gpus": k, "to_gpus": 2 * k, "pause_s": 5}
        for model in sorted({job["model"] for job in tables["jobs.csv"]})
        for k in (1, 2, 4)
    ]


def ahead(rng: Random, config: Row, tables: Tables) -> None:
    """Announce prices and capacity; jobs have deadlines, and a dollar has a price."""
    config["dollar_price"] = 1e-4
    tables["prices.csv"] = [
        {
            "at_s": config["now_s"] + hour * 3600,
            "pool": pool["pool"],
            "price_per_gpu_hour": round(pool["price_per_gpu_hour"] * (1 + 0.2 * hour), 3),
            "gpus": max(0, pool["gpus"] - 8 * hour),
        }
        for pool in tables["pools.csv"]
        for hour in (1, 2, 3)
    ]
    for job in _some(rng, tables, 0.3):
        job["deadline_s"] = config["now_s"] + int(rng.integers(3_600, 86_400))


def memory(rng: Random, config: Row, tables: Tables) -> None:
    """Give memory a price; jobs need some, and less of each GPU at larger sizes."""
    for pool in tables["pools.csv"]:
        pool |= {"price_per_gb_hour": 0.02, "memory_gb": 80}
    for row in tables["rates.csv"]:
        row["memory_gb"] = round(4 + 30 / row["gpus"], 2)
    for job in _some(rng, tables, 0.3):
        job["memory_gb"] = int(rng.integers(4, 40))


FEATURES: dict[str, Callable[[Random, Row, Tables], None]] = {
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
UNPAIRED = [name for name in FEATURES if name not in ("sharing", "best-effort")]
FEATURED = {name: [name] for name in FEATURES} | {
    "none": [],
    "unpaired": UNPAIRED,
    "all": list(FEATURES),
}


def _some(rng: Random, tables: Tables, share: float) -> list[Row]:
    jobs = tables["jobs.csv"]
    return [job for job, u in zip(jobs, rng.random(len(jobs)), strict=True) if u < share]


def _pool(tables: Tables, gpu_type: str) -> Row:
    return next(pool for pool in tables["pools.csv"] if pool["gpu_type"] == gpu_type)


def make_snapshot(family: str, jobs: int, seed: int) -> Snapshot:
    """Return the snapshot of a round of this family."""
    pools = (
        PoolSpec("H100", max(8, jobs // 8)),
        PoolSpec("A100", max(8, jobs // 4), "on_demand"),
        PoolSpec("V100", max(16, 3 * jobs // 8)),
        PoolSpec("T4", max(8, jobs // 4), "spot"),
    )
    changes = jobs // 10 if family in ("changes", "rules") else None
    options = FAMILIES.get(family, {"tenants": 8}) or {"tenants": jobs // 25}
    made = generate(ClusterSpec(family, jobs, pools, max_changes=changes, **options), seed)
    config = dict(made.config)
    tables = {file: [dict(row) for row in rows] for file, rows in made.tables.items()}
    held: Counter[str] = Counter()
    for job in tables["jobs.csv"]:
        held[job.get("tenant", "")] += job.get("gpus", 0)
    for tenant in tables.get("tenants.csv", []):
        most = math.inf if family == "guarantees" else tenant.get("guaranteed_gpus", 0)
        tenant["guaranteed_gpus"] = min(most, held[tenant["tenant"]])
    rng = np.random.default_rng(seed)
    for name in FEATURED.get(family, []):
        FEATURES[name](rng, config, tables)
    return Folder(made.name, config, tables).snapshot()


def next_snapshot(snapshot: Snapshot, plan: Plan, rng: Random) -> Snapshot:
    """Return the round after the plan has been carried out, with a few changes."""
    table, interval_s = snapshot.tables["jobs.csv"], float(snapshot.config["interval_s"])
    jobs = {name: np.array(table.texts(name), dtype=object) for name in table.columns}
    pool, gpus = plan.jobs["pool"], plan.jobs["gpus"]
    work = jobs["remaining_work"].astype(float)
    left = work - np.minimum(DONE * work, interval_s * np.array(plan.jobs["work_per_s"]))
    holds = np.array([name is not None for name in pool])
    waits = jobs["state"] != "running"
    jobs["remaining_work"] = np.array([f"{x:.6g}" for x in left], dtype=object)
    jobs["state"] = np.where(holds, "running", np.where(waits, jobs["state"], "queued"))
    jobs["pool"] = np.where(holds, np.array(pool, dtype=object), "")
    jobs["gpus"] = np.where(holds, np.array([str(k) for k in gpus], dtype=object), "")
    ends = rng.random(len(left)) < CHANGED
    now_s = float(snapshot.config["now_s"]) + interval_s
    new = {name: cells[ends] for name, cells in jobs.items()}
    count = len(new["job_id"])
    new["job_id"] = np.array([f"at{now_s:.0f}-{i}" for i in range(count)], dtype=object)
    new["state"] = np.full(count, "queued", dtype=object)
    new["pool"] = new["gpus"] = np.full(count, "", dtype=object)
    columns = {name: np.append(jobs[name][~ends], new[name]).tolist() for name in jobs}
    rates, pools = snapshot.tables["rates.csv"], snapshot.tables["pools.csv"]
    tables = {
        **snapshot.tables,
        "jobs.csv": Table("jobs.csv", columns, range(2, len(columns["job_id"]) + 2)),
        "rates.csv": _with_corrections(rates, "work_per_s", max(1, len(rates) // 100), rng),
        "pools.csv": _with_corrections(pools, "price_per_gpu_hour", 1, rng),
    }
    return Snapshot(snapshot.name, {**snapshot.config, "now_s": now_s}, tables)


def _with_corrections(table: Table, column: str, count: int, rng: Random) -> Table:
    """Return the table with corrections of `count` numbers of a column."""
    cells = list(table.texts(column))
    for i in rng.choice(len(cells), count, replace=False).tolist():
        cells[i] = f"{float(cells[i]) * rng.uniform(1 - CORRECTION, 1 + CORRECTION):.6g}"
    return Table(table.file, {**table.columns, column: cells}, table.lines)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that still run."""
    total, tick = time.process_time(), os.sysconf("SC_CLK_TCK")
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended
            words = file.read_text().rsplit(")", 1)[1].split()
            if int(words[1]) == os.getpid():
                total += (int(words[11]) + int(words[12])) / tick
    return total


def decide_rounds(family: str, jobs: int, seeds: range, warm: int) -> Iterator[Row]:
    """Decide the rounds with the code on the path, and describe each decision."""
    gap = GAPS.get(jobs, GAP) if family in FAMILIES and family != "rules" else GAP
    peak_kb = 0.0

    def decide(kind: str, solve: Callable[[], Plan]) -> tuple[Plan, Row]:
        nonlocal peak_kb
        begin = cpu_seconds()
        plan = solve()
        plan.jobs["pool"]
        cpu_s = cpu_seconds() - begin
        if kind == "cold":
            peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / jobs
        return plan, {
            "family": family,
            "jobs": jobs,
            "seed": seed,
            "kind": kind,
            "cpu_s": cpu_s,
            "solver": plan.solver,
            "gap": plan.gap,
            "value": plan.objective_value,
            "bound": plan.bound,
            "peak_kb": peak_kb,
            "load": os.getloadavg()[0],
        }

    allocator.solve(make_snapshot("one", 100, 999), gap=gap)
    for seed in seeds:
        snapshot, rng = make_snapshot(family, jobs, seed), np.random.default_rng(seed)
        rounds = allocator.Rounds(gap=gap)
        # guarantees of a tenant may come to exceed its quota
        with contextlib.suppress(Infeasible):
            plan, row = decide("cold", lambda s=snapshot, r=rounds: r.solve(s))
            yield row
            for _ in range(warm):
                snapshot = next_snapshot(snapshot, plan, rng)
                plan, row = decide("warm", lambda s=snapshot, r=rounds: r.solve(s))
                # without the texts and the digest that were computed before
                fresh = {file: replace(table) for file, table in snapshot.tables.items()}
                new = replace(snapshot, tables=fresh)
                _, other = decide("cold again", lambda s=new: allocator.solve(s, gap=gap))
                check_bounds(row, other)
                yield from (row, other)


def check_bounds(a: Row, b: Row) -> None:
    """Stop if the bound of one decision lies below the plan of the other."""
    for bound, value in ((a["bound"], b["value"]), (b["bound"], a["value"])):
        if bound < value - 1e-9 * abs(value):
            raise SystemExit(f"a bound lies below a plan: {a} {b}")


class Results:
    """The decisions made so far. With a file, each of them is written to it."""

    def __init__(self, file: Path | None) -> None:
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        self.file, self.runs = file, [json.loads(line) for line in lines]

    def select(self, code: str, family: str, jobs: int) -> list[Row]:
        """Return the decisions of a family and size with a code, by seed."""
        wanted = {"code": code, "family": family, "jobs": jobs}
        return [run for run in self.runs if wanted.items() <= run.items()]

    def measure(
        self, code: str, folder: Path, family: str, jobs: int, seeds: range, warm: int
    ) -> None:
        """Decide the rounds that are missing with the code of a folder, in a process of its own."""
        known = {run["seed"] for run in self.select(code, family, jobs)}
        first = next((seed for seed in seeds if seed not in known), None)
        if first is None:
            return
        words = [__file__, "--child", "--families", family, "--jobs", str(jobs), "--warm"]
        words += [str(warm), "--first", str(first), "--seeds", str(seeds.stop - first)]
        words += ["--without", code] if code in MECHANISMS else []
        paths = {"PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
        child = subprocess.Popen(
            [sys.executable, *words],
            env={**os.environ, **paths},
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        for line in child.stdout:
            self.runs.append({"code": code, **json.loads(line)})
            if self.file is not None:
                with self.file.open("a") as file:
                    print(json.dumps(self.runs[-1]), file=file)
        if child.wait():
            raise SystemExit(f"the process that decides ended with code {child.returncode}")


def describe(name: str, runs: list[Row]) -> str:
    """Return a row of the table."""
    cpu = np.array([run["cpu_s"] for run in runs])
    asked = sum(run["solver"] is not None for run in runs)
    return (
        f"| {name} | {len(cpu)} | {np.median(cpu):.3f} | {np.quantile(cpu, 0.9):.3f} |"
        f" {np.quantile(cpu, 0.99):.3f} | {cpu.max():.3f} | {asked} |"
        f" {max(run['gap'] for run in runs):.1e} | {max(run['peak_kb'] for run in runs):.1f} |"
    )


def print_table(results: Results, sizes: list[int], families: list[str], codes: list[str]) -> None:
    """Print a row for each size, family, kind of round and code; compare bounds of two codes."""
    print("| jobs | family | code | round | rounds | CPU s, median | p90 | p99 | worst", end="")
    print(" | solver asked | largest gap | peak kB a job |\n" + "|---" * 12 + "|")
    for jobs, family in itertools.product(sizes, families):
        rows = {code: results.select(code, family, jobs) for code in codes}
        for kind, code in itertools.product(("cold", "warm", "cold again"), codes):
            if runs := [run for run in rows[code] if run["kind"] == kind]:
                print(describe(f"{jobs:,} | {family} | {code} | {kind}", runs))
        first = [
            {run["seed"]: run for run in runs if run["kind"] == "cold"} for runs in rows.values()
        ]
        for seed in set(first[0]) & set(first[-1]):
            check_bounds(first[0][seed], first[-1][seed])


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", default="100,500,2000,10000", help="numbers of jobs")
    parser.add_argument("--families", default=",".join(FAMILIES), help="families of rounds")
    parser.add_argument("--seeds", type=int, help="rounds of each (default: by size)")
    parser.add_argument("--first", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--warm", type=int, default=0, help="rounds after each (default 0)")
    parser.add_argument("--base", type=Path, help="folder of a checkout of another commit")
    parser.add_argument("--without", default="", help="mechanisms to switch off, one at a time")
    parser.add_argument("--results", type=Path, help="file of the decisions that were made")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    families = args.families.split(",")
    if unknown := set(families) - set(FAMILIES) - set(FEATURED):
        parser.error(f"unknown families: {', '.join(sorted(unknown))}")
    sizes = {
        jobs: range(args.first, args.first + (args.seeds or SEEDS.get(jobs, 1)))
        for jobs in map(int, args.jobs.split(","))
    }
    without = args.without.split(",") if args.without else []
    if unknown := set(without) - set(MECHANISMS):
        known = ", ".join(MECHANISMS)
        parser.error(f"unknown mechanisms: {', '.join(sorted(unknown))}; there are {known}")
    if args.child:
        for name in without:
            module, constant, value = MECHANISMS[name]
            setattr(importlib.import_module(module), constant, value)
        for jobs, seeds in sizes.items():
            for run in decide_rounds(families[0], jobs, seeds, args.warm):
                print(json.dumps(run), flush=True)
        return
    folders = {"this": ROOT} | ({} if args.base is None else {"base": args.base.resolve()})
    folders |= dict.fromkeys(without, ROOT)
    results = Results(args.results)
    # a run that is stopped has as many rounds of every size and family as its time allowed
    for part in range(max(math.ceil(len(seeds) / CHUNK) for seeds in sizes.values())):
        for jobs, seeds in sizes.items():
            some = seeds[part * CHUNK : (part + 1) * CHUNK]
            for family in families if some else ():
                for code, folder in folders.items():
                    results.measure(code, folder, family, jobs, some, args.warm)
    print_table(results, list(sizes), families, list(folders))
    loads = [run["load"] for run in results.runs]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    print(f"\n{machine}; load of the machine {min(loads):.0f} to {max(loads):.0f}")


if __name__ == "__main__":
    main()
