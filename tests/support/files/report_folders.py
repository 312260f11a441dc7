"""Folders as simulations and benchmarks leave them, small or huge, without simulating anything.

A made-up cluster of one pool: job j comes at 600 j seconds, waits as long as its policy makes it,
runs an hour on as many GPUs as it asked for. Numbers of metrics are means of what the files say, so
that reports can be checked by hand.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allocator.bench.sweep.tables import FIELDS
from allocator.simulator.results.records import TIMELINE

RUN_S, EVERY_S = 3600.0, 600.0
WAIT_S = {"greedy": 1200.0, "mip": 300.0, "static": 2400.0}
JOBS = (
    "policy,job_id,model,tenant,submitted_s,started_s,finished_s,queue_s,jct_s,efficiency,ftf,"
    "restarts,gpu_hours,dollars,requested_gpus,total_work"
)
ROUNDS = "policy,round,at_s,active,queued,changes,value,bound,gap,decision_s,status,fallback"
SPANS = "policy,job_id,pool,gpus,from_s,to_s"
CHANGES = (  # against greedy: metric, per cent, verdict
    ("jct_s_mean", -18.75, "better"),
    ("queue_s_mean", -75.0, "better"),
    ("efficiency_mean", 1.0, "open"),
    ("makespan_s", 4.5, "worse"),
)
Row = tuple[Any, ...]
Tables = dict[str, list[Row]]


def tables(
    policy: str, jobs: int = 5, finished: int | None = None, seed: int = 0, rounds: bool = True
) -> Tables:
    """The rows of the four files: the first `finished` jobs are done (default: all), the others
    never start.
    """
    finished = jobs if finished is None else finished
    wait = WAIT_S.get(policy, 600.0) + 60.0 * seed
    out: Tables = {"jobs": [], "timeline": [], "rounds": [], "spans": []}
    for j in range(jobs):
        name, come, gpus = f"job-{j}", EVERY_S * j, 1 + j % 8
        begin: Row = (policy, name, "bert", "default", come)
        if j < finished:
            start, end = come + wait, come + wait + RUN_S
            done: Row = (start, end, wait, wait + RUN_S, 1.0, 1.5, 0, gpus, 2.0 * gpus)
            out["spans"].append((policy, name, "a100", gpus, start, end))
        else:
            done = (*[""] * 6, 0, 0.0, 0.0)
        out["jobs"].append((*begin, *done, gpus, 100.0))
    last = EVERY_S * jobs + wait + RUN_S
    for n in range(int(last // 300) if rounds else 0):
        at: Row = (policy, n, 300.0 * n)
        out["timeline"].append((*at, "a100", 32, 8, 2, 1, 2.0))
        out["rounds"].append((*at, 3, 1, 1, 1.0, 1.01, 0.01, 0.002, "gap", ""))
    return out


def metrics(made: Tables) -> dict[str, float | None]:
    """METRICS of those rows: all jobs wait and run equally long, all rounds take equally long."""
    done = [row for row in made["jobs"] if row[6] != ""]
    wait, jct = done[0][7:9] if done else (None, None)
    took, gap, ftf = (0.002, 0.01, 1.5) if made["rounds"] else (None, None, None)
    return {
        "jobs": len(made["jobs"]),
        "finished": len(done),
        **{f"queue_s_{name}": wait for name in ("mean", "median", "p99")},
        **{f"jct_s_{name}": jct for name in ("mean", "median", "p99")},
        "makespan_s": max((row[6] for row in done), default=None),
        "efficiency_mean": 1.0 if done else None,
        "gpu_hours": sum(row[12] for row in made["jobs"]),
        "dollars": sum(row[13] for row in made["jobs"]),
        "restarts": 0,
        "utilisation": 0.5,
        **{f"decision_s_{name}": took for name in ("mean", "p99", "max")},
        **dict.fromkeys(("gap_mean", "gap_max"), gap),
        **dict.fromkeys(("ftf_mean", "ftf_max"), ftf),
        "rounds": len(made["rounds"]),
    }


def simulation(folder: Path, made: Mapping[str, Tables]) -> Path:
    """A folder of `allocator simulate --out`, by policy."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {policy: metrics(rows) for policy, rows in made.items()}
    (folder / "results.json").write_text(
        json.dumps({"schema_version": 1, "workload": "made-up", "seed": 0, "policies": found}),
        encoding="utf-8",
    )
    heads = {"jobs": JOBS, "timeline": ",".join(("policy", *TIMELINE))}
    for name, head in {**heads, "rounds": ROUNDS, "spans": SPANS}.items():
        rows = (row for made_rows in made.values() for row in made_rows[name])
        write_csv(folder / f"{name}.csv", head.split(","), rows)
    return folder


def benchmark(folder: Path, loads: Sequence[str] = ("0.3", "0.36"), seeds: int = 6) -> Path:
    """A folder of `allocator bench policies --out` for mip and the baseline greedy."""
    folder.mkdir(parents=True, exist_ok=True)
    results: list[Row] = []
    keys: list[str] = []
    for load, seed, policy in itertools.product(loads, range(seeds), ("greedy", "mip")):
        made = tables(policy, seed=seed)
        key = hashlib.sha256(f"{load}{seed}{policy}".encode()).hexdigest()
        simulation(folder / "tasks" / key, {policy: made})
        (folder / "tasks" / key / "results.json").unlink()
        found = metrics(made)
        keys = list(found)
        values = ("" if v is None else v for v in found.values())
        results.append(("made-up", load, seed, policy, *values, key))
    write_csv(
        folder / "results.csv", ("workload", "load", "seed", "policy", *keys, "task"), results
    )
    rows: list[Row] = []
    for load in [*loads, *(["all"] if len(loads) > 1 else [])]:
        for metric, change, verdict in CHANGES:
            begin: Row = ("made-up", load, "mip", "greedy", metric, seeds, "", "")
            low_high = (change - 5, change + 5)
            rows.append((*begin, change, *low_high, change, seeds, 0.03, 0.01, verdict))
    write_csv(folder / "comparison.csv", FIELDS, rows)
    return folder


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Row]) -> None:
    """A CSV file."""
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)
