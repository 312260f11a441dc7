"""Compare the objectives of the policy `mip`, and rules, on small workloads.

    # a JSON line per simulation
    python scripts/studies/policies/measure_objectives.py run FILE --seeds 3
        --families "mixed, 1.3; due, 1.3"
    # tables for docs/objectives.md
    python scripts/studies/policies/measure_objectives.py table FILE...

A simulation that already has its line in FILE is not run again. Every case gets the same jobs and
the same cluster, and all beliefs are true. "at once": all jobs of the workload are submitted at the
beginning.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from allocator.bench.workloads import generate
from allocator.domain.workload import Workload
from allocator.simulator import SimulationOptions, simulate
from scripts.studies.results import read_results

FAMILIES: dict[str, tuple[str, float, int, bool]] = {  # generator, load, jobs, all at once
    "reproduction, 0.36": ("reproduction", 0.36, 150, False),
    "mixed, 1.3": ("mixed", 1.3, 120, False),
    "reproduction, at once": ("reproduction", 0.36, 80, True),
    "mixed, at once": ("mixed", 1.3, 60, True),
    "due, 1.3": ("due", 1.3, 120, False),
}
CASES: dict[str, tuple[str, str | None]] = {  # policy, objective
    **{
        f"`{o}`": ("mip", o)
        for o in (
            "progress",
            "throughput",
            "completion",
            "tardiness",
            "utility",
            "fairness",
            "maxmin",
            "makespan",
            "completion=1,fairness=1",
            "fairness > completion",
            "maxmin > completion",
            "makespan > completion",
            "tardiness > completion",
        )
    },
    "sia": ("sia", None),
    "maxmin": ("maxmin", None),
}
COLUMNS = {
    "mean": "mean min",
    "p99": "p99 min",
    "ftf_mean": "ftf mean",
    "ftf_max": "ftf worst",
    "makespan": "makespan h",
    "dollars": "dollars",
    "restarts": "restarts",
    "met": "deadlines met %",
}
DIGITS = {
    "mean": 1,
    "p99": 0,
    "ftf_mean": 2,
    "ftf_max": 1,
    "makespan": 2,
    "dollars": 0,
    "restarts": 2,
    "met": 0,
}
MOST_BEST = {"met"}


def main() -> None:
    """Run simulations or print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--families", default="; ".join(FAMILIES), help="of this file's list, with semicolons"
    )
    parser.add_argument("--cases", help="numbers of cases from 0, with commas (default: all)")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    done = read_results(*args.files)
    if args.what == "table":
        tables(done)
        return
    known = {(r["family"], r["seed"], r["case"]) for r in done}
    names = list(CASES)
    chosen = names if args.cases is None else [names[int(i)] for i in args.cases.split(",")]
    with args.files[0].open("a") as out:
        for seed in range(args.seeds):
            for family in (part.strip() for part in args.families.split(";")):
                made = workload(family, seed)
                dated = not np.isnan(made.problem.jobs.deadline_s).all()
                for case in chosen:
                    if (family, seed, case) in known or ("tardiness" in case and not dated):
                        continue
                    print(
                        json.dumps(
                            {"family": family, "seed": seed, "case": case, **one(made, case)}
                        ),
                        file=out,
                        flush=True,
                    )


def workload(family: str, seed: int) -> Workload:
    """Return the jobs of a family."""
    name, load, jobs, at_once = FAMILIES[family]
    made = generate(name, seed=seed, load=load, jobs=jobs).workload()
    if not at_once:
        return made
    problem = made.problem
    start = np.full(len(problem.jobs), problem.jobs.submitted_s.min())
    return replace(made, problem=replace(problem, jobs=replace(problem.jobs, submitted_s=start)))


def one(made: Workload, case: str) -> dict[str, Any]:
    """Return the metrics of a simulation, and CPU seconds of one decision with its round."""
    policy, objective = CASES[case]
    begin = time.process_time()
    found = simulate(
        made, policy=policy, options=SimulationOptions(objective=objective, prove_every=0)
    )
    m, deadline = found.metrics, made.problem.jobs.deadline_s[: len(found.jobs)]
    met = (found.jobs["finished_s"].to_numpy() <= deadline)[~np.isnan(deadline)]
    return {
        "mean": m["jct_s_mean"] / 60,
        "p99": m["jct_s_p99"] / 60,
        "ftf_mean": m["ftf_mean"],
        "ftf_max": m["ftf_max"],
        "makespan": m["makespan_s"] / 3600,
        "dollars": m["dollars"],
        "restarts": m["restarts"] / m["jobs"],
        "met": 100 * float(met.mean()) if len(met) else None,
        "finished": m["finished"],
        "jobs": m["jobs"],
        "cpu_s": (time.process_time() - begin) / max(1, m["rounds"]),
    }


def tables(rows: list[dict[str, Any]]) -> None:
    """Print means over the seeds that all cases of a family have; the best of a column is bold."""
    print(
        f"Machine: {platform.machine()}, Python {platform.python_version()}, numpy"
        f" {np.__version__}."
    )
    for family, (name, load, jobs, at_once) in FAMILIES.items():
        mine = {(r["seed"], r["case"]): r for r in rows if r["family"] == family}
        cases = [c for c in CASES if any(case == c for _, case in mine)]
        seeds = sorted(s for s in {s for s, _ in mine} if all((s, c) in mine for c in cases))
        if not seeds:
            continue
        mean = {c: {k: _mean([mine[s, c][k] for s in seeds]) for k in COLUMNS} for c in cases}
        shown = [k for k in COLUMNS if any(mean[c][k] for c in cases)]
        best = {
            k: (max if k in MOST_BEST else min)(
                round(v, DIGITS[k]) for c in cases if (v := mean[c][k]) is not None
            )
            for k in shown
        }
        print(
            f"\n**{family}**: generator `{name}`, load {load:g}, {jobs}"
            f" jobs{' at once' if at_once else ''}, seeds {', '.join(map(str, seeds))}\n"
        )
        print(
            "| | " + " | ".join(COLUMNS[k] for k in shown) + " |\n|---" + "|---" * len(shown) + "|"
        )
        for c in cases:
            cells = []
            for k in shown:
                text = f"{mean[c][k]:.{DIGITS[k]}f}"
                cells.append(
                    f"**{text}**" if round(mean[c][k] or 0.0, DIGITS[k]) == best[k] else text
                )
            print(f"| {c} | " + " | ".join(cells) + " |")


def _mean(values: list[float | None]) -> float | None:
    given = [v for v in values if v is not None]
    return float(np.mean(given)) if given else None


if __name__ == "__main__":
    main()
