"""Rounds with every objective and feature, and advice taken as a user would take it: edit the
files, solve again."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from builders import write_folder
from fakes.random_rounds import random_snapshot
from matrix import CROSSED, FEATURES, base, made
from matrix_rounds import pick

from allocator.cli import main
from allocator.domain.snapshot import Snapshot
from formulations.objectives import BUILT_IN as OBJECTIVES


def drawn_round(rng: np.random.Generator, objective: str) -> Snapshot:
    """A random round of up to eight jobs, or one of three jobs with up to three features of the
    matrix, under one objective."""
    if rng.random() < 0.5:
        plain = random_snapshot(rng, int(rng.integers(2, 9)))
        return replace(plain, config={**plain.config, "objective": objective}).snapshot()
    seed = int(rng.integers(10**6))
    tables = base(seed)
    tables.config["objective"] = objective
    for name in rng.choice(list(FEATURES), int(rng.integers(4)), replace=False).tolist():
        tables = made(name, seed, tables)
    return tables.snapshot()


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
            if row[0] == name or (table == "quotas" and set(name.split("/")) <= {*row[:3]}):
                row[header.index(column)] = value
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return to


def entry(folder: Path, job: str, options: Sequence[str]) -> dict[str, Any] | None:
    """What `solve` gives a job; None where there is no plan."""
    code, out = command("solve", folder, *options, "--format", "json")
    return next(j for j in json.loads(out)["jobs"] if j["job_id"] == job) if code == 0 else None


def take_advice(folder: Path, job: str, options: Sequence[str]) -> Iterator[str]:
    """The verdict of every change that `explain` prints, each taken: "true", "false" or
    "no-op"."""
    code, out = command("explain", folder, job, *options, "--format", "json")
    assert code == 0
    told, keys = json.loads(out), ("pool", "gpus", "shared_with")
    for number, change in enumerate(told["changes"]):
        assert all(value in change["text"] for value in change["values"].values())
        cells, words = dict(change["values"]), list(options)
        if "--budget" in cells:
            words[words.index("--budget") + 1] = cells.pop("--budget")
        now = entry(edited(folder, folder.parent / f"{folder.name}-{number}", cells), job, words)
        if now is None or any(now[k] != change[k] for k in keys):
            yield "false"
        else:
            yield "no-op" if all(now[k] == told["got"][k] for k in keys) else "true"


def _options(rng: np.random.Generator, round_: Snapshot) -> list[str]:
    """Words for `solve` and `explain`: mostly none, else another policy, objective, budget or
    gap."""
    if rng.random() < 0.7:
        return []
    pools = round_.tables["pools.csv"]
    prices = zip(pools.texts("gpus"), pools.texts("price_per_gpu_hour"), strict=True)
    cost = sum(float(gpus) * float(price) for gpus, price in prices)
    policy = pick(rng, "mip", "marginal", "greedy", "static", "srtf")
    words = ["--policy", policy, "--objective", pick(rng, *OBJECTIVES)]
    words += ["--budget", str(round(cost * float(rng.uniform(0.1, 0.9)), 2))]
    return [*words, "--gap", pick(rng, "0", "0.01")]


def try_rounds(count: int, seed: int, parent: Path) -> Counter[str]:
    """Verdicts over `count` rounds, of one job each that could use more, if there is one."""
    rng, seen = np.random.default_rng(seed), Counter[str]()
    for number in range(count):
        round_ = drawn_round(rng, CROSSED[number % len(CROSSED)])
        folder = write_folder(round_, parent / f"round-{number}")
        if command("solve", folder)[0] != 0:
            continue
        options = _options(rng, round_)
        code, out = command("solve", folder, *options, "--format", "json")
        plan = json.loads(out) if code == 0 else {"jobs": []}
        for job in [j["job_id"] for j in plan["jobs"] if j["reason"] is not None][:1]:
            seen.update(take_advice(folder, job, options))
        for used in parent.glob(f"round-{number}*"):
            shutil.rmtree(used)
    return seen
