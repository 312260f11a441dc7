"""Rounds with every objective and feature, and advice taken as a user would take it: edit the
files, solve again."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cases.folders import Folder
from fakes.random_rounds import random_snapshot

from allocator.cli import main
from formulations.objectives import BUILT_IN as OBJECTIVES

RANKED = (
    "progress=2,response=0.5",
    "completion > progress",
    "tardiness > throughput",
    "flow > progress",
)
Rows = list[dict[str, Any]]


def feature_round(rng: np.random.Generator, jobs: int, objective: str) -> Folder:
    """A random round with some of all features, under one objective."""
    plain = random_snapshot(rng, jobs)
    config = dict(plain.config) | {"objective": objective}
    tables: dict[str, Rows] = {
        file: [dict(row) for row in rows] for file, rows in plain.tables.items()
    }
    for feature in (
        _checkpoints,
        _deadlines,
        _ages,
        _pipelines,
        _sessions,
        _regions,
        _shares,
        _nodes,
        _curves,
    ):
        if rng.random() < 0.3:
            feature(rng, config, tables)
    return replace(plain, config=config, tables=tables)


def _checkpoints(
    rng: np.random.Generator, _config: dict[str, Any], tables: dict[str, Rows]
) -> None:
    """Checkpoints that cost time, and spot pools that are taken back."""
    for job in tables["jobs.csv"]:
        job |= {
            "checkpoint_s": int(rng.integers(0, 40)),
            "checkpoint_every_s": int(rng.integers(100, 2000)),
        }
    for pool in tables["pools.csv"]:
        if pool["market"] == "spot":
            pool |= {"revocations_per_gpu_hour": 0.2, "availability": 0.6}


def _deadlines(rng: np.random.Generator, config: dict[str, Any], tables: dict[str, Rows]) -> None:
    for job in tables["jobs.csv"]:
        if rng.random() < 0.7:
            job["deadline_s"] = config["now_s"] + int(rng.integers(-500, 8000))


def _ages(rng: np.random.Generator, config: dict[str, Any], tables: dict[str, Rows]) -> None:
    """Ageing, dollars with a price, and sizes that are only predicted."""
    config |= {"ageing_s": 7200, "dollar_price": 0.05}
    if rng.random() < 0.5:
        config["sizes"] = "predicted"
        for job in tables["jobs.csv"]:
            job["total_work"] = 2 * job["remaining_work"]


def _pipelines(rng: np.random.Generator, _config: dict[str, Any], tables: dict[str, Rows]) -> None:
    rows = tables["jobs.csv"]
    for before, job in itertools.pairwise(rows):
        if job["state"] in ("queued", "paused") and rng.random() < 0.3:
            job["after"] = [before["job_id"]]


def _sessions(rng: np.random.Generator, _config: dict[str, Any], tables: dict[str, Rows]) -> None:
    """GPUs that are kept for interactive jobs."""
    pool = tables["pools.csv"][0]
    tables["interactive.csv"] = [
        {"pool": pool["pool"], "headroom_gpus": int(rng.integers(0, 1 + pool["gpus"] // 2))}
    ]
    for job in tables["jobs.csv"]:
        job["interactive"] = bool(rng.random() < 0.2)


def _regions(rng: np.random.Generator, _config: dict[str, Any], tables: dict[str, Rows]) -> None:
    """Limits on spot GPUs of tenants and jobs."""
    for tenant in tables["tenants.csv"]:
        tenant["max_spot_gpus"] = int(rng.integers(0, 12))
    for job in tables["jobs.csv"]:
        if rng.random() < 0.3:
            job["max_spot_gpus"] = int(rng.integers(0, 4))


def _shares(rng: np.random.Generator, _config: dict[str, Any], tables: dict[str, Rows]) -> None:
    """Jobs two by two on the same GPUs."""
    models = sorted({row["model"] for row in tables["rates.csv"]})
    for pool in tables["pools.csv"]:
        pool |= {"sharing": "any", "memory_gb": 48}
    for job in tables["jobs.csv"]:
        job["memory_gb"] = 10
    tables["sharing.csv"] = [
        {
            "model_a": a,
            "model_b": b,
            "gpu_type": kind,
            "gpus": 1,
            "slowdown_a": round(float(rng.uniform(1.1, 1.7)), 2),
            "slowdown_b": round(float(rng.uniform(1.1, 1.7)), 2),
        }
        for kind in sorted({pool["gpu_type"] for pool in tables["pools.csv"]})
        for i, a in enumerate(models)
        for b in models[i:]
    ]


def _nodes(rng: np.random.Generator, _config: dict[str, Any], tables: dict[str, Rows]) -> None:
    """A pool whose GPUs are those of its nodes."""
    pool = tables["pools.csv"][-1]
    if pool["gpus"]:
        tables["nodes.csv"] = [
            {"node": f"node-{p['pool']}", "pool": p["pool"], "gpus": p["gpus"], "state": "up"}
            for p in tables["pools.csv"]
        ]


def _curves(rng: np.random.Generator, _config: dict[str, Any], tables: dict[str, Rows]) -> None:
    """One model whose speed is a formula on one type."""
    row = tables["rates.csv"][0]
    tables["rates.csv"] = [
        r
        for r in tables["rates.csv"]
        if (r["model"], r["gpu_type"]) != (row["model"], row["gpu_type"])
    ] or tables["rates.csv"]
    tables["models.csv"] = [
        {
            "model": row["model"],
            "gpu_type": row["gpu_type"],
            "kind": "amdahl",
            "parameters": {
                "rate_1": row["work_per_s"],
                "parallel": round(float(rng.uniform(0.8, 0.99)), 3),
                "max_gpus": 16,
            },
        }
    ]


def command(*words: object) -> tuple[int, str]:
    """Exit code and standard output of `allocator` with these words."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = main.run([str(word) for word in words])
    return code, out.getvalue()


def edited(folder: Path, to: Path, values: dict[str, str]) -> Path:
    """A copy of the folder with other cells, written with a plain CSV writer: what a user does in
    an editor."""
    shutil.copytree(folder, to)
    for place, value in values.items():
        table, _, rest = place.partition(".")
        name, _, column = rest.rpartition(".")
        if not name:
            lines = (to / "config.toml").read_text().splitlines()
            lines = [line for line in lines if line.partition("=")[0].strip() != place]
            (to / "config.toml").write_text("\n".join([f"{place} = {value}", *lines]) + "\n")
            continue
        path = to / f"{table}.csv"
        with path.open(newline="") as file:
            header, *rows = csv.reader(file)
        if column not in header:
            header, rows = [*header, column], [[*row, ""] for row in rows]
        for row in rows:
            if row[0] == name:
                row[header.index(column)] = value
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return to


def entry(folder: Path, job: str, options: Sequence[object] = ()) -> dict[str, Any] | None:
    """What `solve` gives a job; None where there is no plan."""
    code, out = command("solve", folder, *options, "--format", "json")
    return next(j for j in json.loads(out)["jobs"] if j["job_id"] == job) if code == 0 else None


def take_advice(
    folder: Path, job: str, options: Sequence[object] = ()
) -> Iterator[tuple[str, str]]:
    """(kind, verdict) of every change that `explain` prints, each taken; "true", "false" or
    "no-op"."""
    code, out = command("explain", folder, job, *options, "--format", "json")
    assert code == 0
    told = json.loads(out)
    before = told["got"]
    for number, change in enumerate(told["changes"]):
        assert all(value in change["text"] for value in change["values"].values())
        cells, words = dict(change["values"]), list(options)
        if "--budget" in cells:
            words[words.index("--budget") + 1] = cells.pop("--budget")
        now = entry(
            edited(folder, folder.parent / f"{folder.name}-{job}-{number}", cells), job, words
        )
        keys = ("pool", "gpus", "shared_with")
        if now is None or any(now[k] != change[k] for k in keys):
            yield change["kind"], "false"
        else:
            yield change["kind"], "no-op" if all(now[k] == before[k] for k in keys) else "true"
    if not told["changes"]:
        yield "none", "served" if before["reason"] is None else "nothing found"


def _options(rng: np.random.Generator, round_: Folder) -> list[str]:
    """Words for `solve` and `explain`: mostly none, else another policy, objective, budget or
    gap."""
    if rng.random() < 0.7:
        return []
    policy = ("mip", "marginal", "greedy", "static", "srtf")[int(rng.integers(5))]
    cost = sum(p["gpus"] * p["price_per_gpu_hour"] for p in round_.tables["pools.csv"])
    return [
        "--policy",
        policy,
        "--objective",
        OBJECTIVES[int(rng.integers(len(OBJECTIVES)))],
        "--budget",
        str(round(cost * float(rng.uniform(0.1, 0.9)), 2)),
        "--gap",
        ("0", "0.01")[int(rng.integers(2))],
    ]


def try_rounds(count: int, seed: int, parent: Path, explained: int = 2) -> Counter[tuple[str, str]]:
    """Verdicts by kind over `count` rounds, of `explained` jobs each that could use more, if there
    are as many."""
    rng, seen = np.random.default_rng(seed), Counter[tuple[str, str]]()
    objectives = (*OBJECTIVES, *RANKED)
    for number in range(count):
        round_ = feature_round(rng, int(rng.integers(2, 9)), objectives[number % len(objectives)])
        folder = replace(round_, name=f"round-{number}").write(parent)
        code, out = command("solve", folder, "--format", "json")
        seen["round", str(code)] += 1
        plan = json.loads(out) if code == 0 else None
        options = _options(rng, round_) if plan is not None else []
        if options:
            code, out = command("solve", folder, *options, "--format", "json")
            plan = json.loads(out) if code == 0 else None
        wanting = [j["job_id"] for j in plan["jobs"] if j["reason"] is not None] if plan else []
        for job in wanting[:explained]:
            seen["job", "explained"] += 1
            seen.update(take_advice(folder, job, options))
        for used in parent.glob(f"round-{number}*"):
            shutil.rmtree(used)
    return seen
