"""Compare decisions with two published ways to split a round into small problems.

    python scripts/benchmarks/bench_decomposition.py PYTHON [JOBS ...] > table.md

PYTHON is an interpreter that has the package `dede`. The rounds are those of the families `lumpy`
and `one` of bench_rounds.py, seeds 0 to 2, with 100 and 500 jobs unless JOBS says otherwise.

- mip: this project's default, with the gap of 0.1 %
- highs: HiGHS alone, on the whole model, with the same gap and at most 120 s
- pop: the jobs are dealt into 4 parts at random, and each part has a quarter of every row, whole
  GPUs; HiGHS solves each part with the same gap (Narayanan et al., SOSP 2021)
- dede: the published package with its default settings (Xu et al., OSDI 2025); values and rows are
  scaled to a mean of 1. Its result is shares. So every job takes its option of the largest share,
  in the order of the shares, if it fits

For `pop` and `dede` jobs that may not be stopped keep what they hold, and the others get the rest.
Every plan is audited. Seconds are of the clock, from the snapshot in memory to the audited plan;
for `dede` only those of its own `solve`, without the start of its processes.
"""

import functools
import itertools
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from bench_rounds import make_snapshot

import allocator
from allocator.policies.base import Proposal, Task
from allocator.solvers import registry
from allocator.solvers.base import WarmStart

PARTS = 4
own_s: list[float] = []


def keep_what_stays(task: Task) -> tuple[Any, Any]:
    """Return the choice of the jobs that may not be stopped, and what it leaves of the rows."""
    c = task.choices
    choice = np.where(c.mandatory, task.round.unchanged_choice(), -1)
    return choice, task.round.model.upper[c.rows] - c.use_of(choice)


def pop(task: Task) -> Proposal:
    """Decide each part of the jobs alone."""
    c, model = task.choices, task.round.model
    choice, left = keep_what_stays(task)
    part = np.where(c.mandatory, -1, np.random.default_rng(0).permutation(c.J) % PARTS)
    upper = model.upper.copy()
    upper[c.rows] = np.where(left % 1 == 0, left // PARTS, left / PARTS)
    for number in range(PARTS):
        columns = np.flatnonzero(part[c.group] == number)
        small = model.take(columns)
        vars(small).update(lower=np.full(len(upper), -np.inf), upper=upper)
        answer = registry.get("highs").solve(small, task.remaining(), WarmStart(None, None))
        if answer.values is not None:
            taken = columns[answer.values > 0.5]
            choice[c.group[taken]] = taken
    return Proposal(choice)


def dede(task: Task, python: str) -> Proposal:
    """Decide by the shares of DeDe."""
    c = task.choices
    choice, left = keep_what_stays(task)
    columns = np.flatnonzero(~c.mandatory[c.group])
    rows = c.matrix[columns].transpose()
    with TemporaryDirectory() as folder:
        np.savez(
            f"{folder}/round.npz",
            value=c.value[columns] / np.abs(c.value[columns]).mean(),
            start=np.append(0, np.cumsum(np.bincount(c.group[columns], minlength=c.J))),
            data=rows.data / np.repeat(c.unit, np.diff(rows.indptr)),
            column=rows.indices,
            indptr=rows.indptr,
            high=left / c.unit,
        )
        child = Path(__file__).with_name("relax_with_dede.py")
        subprocess.run([python, child, folder], check=True, capture_output=True)
        answer = np.load(f"{folder}/answer.npz")
    own_s.append(float(answer["seconds"]))
    order = np.argsort(-answer["share"], kind="stable")
    for column in columns[order[answer["share"][order] > 0]].tolist():
        trial = choice.copy()
        trial[c.group[column]] = column
        if choice[c.group[column]] < 0 and c.feasible(trial):
            choice = trial
    return Proposal(choice)


def main(python: str, sizes: list[int]) -> None:
    """Print a row of the table for each size, family and way."""
    ways: dict[str, dict[str, Any]] = {
        "mip": {},
        "highs": {"solver": "highs"},
        "pop": {"policy": pop},
        "dede": {"policy": functools.partial(dede, python=python)},
    }
    allocator.solve(make_snapshot("one", 100, 999), gap=1e-3)  # loads what is compiled
    print("| jobs | family | way | seconds, median and worst | below the bound, median and worst |")
    print("|---|---|---|---|---|")
    for jobs, family in itertools.product(sizes, ("lumpy", "one")):
        plans, seconds = {}, {}
        for seed, (way, options) in itertools.product(range(3), ways.items()):
            begin = time.monotonic()
            round_ = make_snapshot(family, jobs, seed)
            plans[way, seed] = allocator.solve(round_, gap=1e-3, time_limit_s=120.0, **options)
            seconds[way, seed] = time.monotonic() - begin if way != "dede" else own_s[-1]
        bound = np.array([plans["mip", seed].bound for seed in range(3)])
        for way in ways:
            took = [seconds[way, seed] for seed in range(3)]
            below = 1 - np.array([plans[way, seed].objective_value for seed in range(3)]) / bound
            print(
                f"| {jobs} | {family} | {way} | {np.median(took):.2f}, {max(took):.2f} |"
                f" {np.median(below):.2%}, {below.max():.2%} |",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1], [int(jobs) for jobs in sys.argv[2:]] or [100, 500])
