"""Compare the policy `horizon` with `mip` and with rules, on workloads of several kinds.

    # a JSON line per simulation
    python scripts/studies/policies/measure_horizon.py run FILE \\
        --families "reproduction;bursty" --seeds 5
    # Markdown for docs/horizon.md
    python scripts/studies/policies/measure_horizon.py table FILE...
    # CPU seconds of a decision by size
    python scripts/studies/policies/measure_horizon.py times [--arrays]

A simulation that already has its line in FILE is not run again. Every policy gets the same jobs and
the same cluster, and all its beliefs are true. Changes are means over pairs of one seed with
bootstrap intervals (allocator/bench/paired.py).
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from allocator.bench.paired import compare
from allocator.bench.workloads import generate
from allocator.domain.problem import Problem, State
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.workload import Changes, Workload
from allocator.engine.decision import decide_round, override_settings
from allocator.policies.memory import Memory
from allocator.simulator import SimulationOptions, simulate
from allocator.solvers.base import SolveLimits
from formulations.objectives.interval import HOUR
from scripts.cases.clusters import generate as generate_cluster
from scripts.cases.shipped import MEDIUM
from scripts.studies.results import read_results

LOOKS = (3, 6, 12)


@dataclass(frozen=True)
class HorizonCase:
    """A policy with its settings: objective and intervals.

    `announced`: changes of the cluster are known as far ahead as the horizon.
    """

    policy: str
    objective: str = "progress"
    intervals: int | None = None
    announced: bool = True


@dataclass(frozen=True)
class Family:
    """Workloads of a generator at some loads, with something changed.

    `baselines` are the cases with which others are compared.
    """

    generator: str
    loads: tuple[float, ...]
    jobs: int
    cases: tuple[str, ...]
    baselines: tuple[str, ...]
    change: Callable[[Workload], Workload] = lambda workload: workload


CASES: dict[str, HorizonCase] = {
    "mip, progress": HorizonCase("mip"),
    "greedy": HorizonCase("greedy"),
    "srtf": HorizonCase("srtf"),
    "sia": HorizonCase("sia"),
    "mip, completion": HorizonCase("mip", "completion"),
    "horizon 6, progress": HorizonCase("horizon", "progress", 6),
    **{
        f"horizon {h}, completion": HorizonCase("horizon", "completion", h)
        for h in (1, 2, *LOOKS, 24)
    },
    "mip, flow": HorizonCase("mip", "flow"),
    "horizon 6, completion, not told": HorizonCase("horizon", "completion", 6, announced=False),
}
PLAIN = (
    "mip, progress",
    "greedy",
    "srtf",
    "sia",
    "mip, completion",
    "horizon 6, progress",
    "horizon 6, completion",
)
TOLD = (
    "greedy",
    "sia",
    "mip, completion",
    "horizon 6, completion, not told",
    "horizon 1, completion",
    "horizon 2, completion",
    "horizon 6, completion",
    "horizon 12, completion",
)
DEAR = (
    "greedy",
    "sia",
    "mip, completion",
    "mip, flow",
    "horizon 3, completion",
    "horizon 6, completion",
    "horizon 12, completion",
)


def lent(away: float, checkpoint_s: float) -> Callable[[Workload], Workload]:
    """Lend a share of the GPUs to others for about two of every six hours.

    Jobs write a checkpoint every `checkpoint_s` seconds.
    """

    def change(workload: Workload) -> Workload:
        p = workload.problem
        at_s = (
            p.now_s
            + HOUR * np.arange(1, 200)
            + np.random.default_rng(len(p.jobs)).uniform(0, p.interval_s, 199)
        )
        rows = [
            (t, pool, round(n * (1 - away * (h % 6 in (2, 3)))))
            for h, t in enumerate(at_s.tolist(), 1)
            if h % 6 in (2, 4)
            for pool, n in enumerate(p.pools.gpus.tolist())
        ]
        at, pool, gpus = (np.array(c) for c in zip(*rows, strict=True))
        jobs = replace(p.jobs, checkpoint_every_s=np.full(len(p.jobs), checkpoint_s))
        return Workload(
            replace(p, jobs=jobs),
            Changes(at.astype(np.float64), pool, gpus, np.full(len(at), np.nan)),
        )

    return change


def starts_take(seconds: float) -> Callable[[Workload], Workload]:
    """Let every start take this many seconds: the first, after a pause, and of a change."""

    def change(workload: Workload) -> Workload:
        p = workload.problem
        return replace(
            workload,
            problem=replace(p, pools=replace(p.pools, startup_s=np.full(len(p.pools), seconds))),
        )

    return change


def restarts_take(seconds: float) -> Callable[[Workload], Workload]:
    """Let a change of a running job take this many seconds; a start after a pause takes none."""

    def change(workload: Workload) -> Workload:
        p = workload.problem
        return replace(
            workload,
            problem=replace(p, jobs=replace(p.jobs, restart_s=np.full(len(p.jobs), seconds))),
        )

    return change


FAMILIES = {
    "reproduction": Family(
        "reproduction", (0.24, 0.30, 0.36), 250, PLAIN, ("sia", "mip, progress")
    ),
    "bursty": Family("bursty", (0.7, 1.4), 200, PLAIN, ("sia", "mip, progress")),
    "mixed": Family("mixed", (0.7, 1.3), 150, PLAIN, ("sia", "mip, progress")),
    **{
        f"half lent, checkpoints {m} min": Family(
            "reproduction",
            (0.20,),
            200,
            TOLD,
            ("mip, completion", "horizon 1, completion"),
            lent(0.5, 60.0 * m),
        )
        for m in (10, 60, 600)
    },
    **{
        f"{kind} of {m} min": Family(
            "reproduction",
            (0.36,),
            200,
            DEAR,
            ("greedy", "sia", "mip, completion"),
            change(60.0 * m),
        )
        for kind, change in (("starts", starts_take), ("restarts", restarts_take))
        for m in (2, 5, 10)
    },
}
SHOWN = {"jct_s_mean": "mean", "jct_s_median": "median", "jct_s_p99": "p99", "restarts": "restarts"}
FEWEST = 3  # least number of seeds of a line of the table


def main() -> None:
    """Run simulations or print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("run", "table", "times"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--families", default=";".join(FAMILIES))
    parser.add_argument(
        "--cases", help="numbers of CASES from 0, with commas (default: those of the family)"
    )
    parser.add_argument("--arrays", action="store_true", help="times without numba")
    parser.add_argument("--loads", help="only these loads, with commas")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    done = read_results(*args.files)
    if args.what == "times":
        times(args.arrays)
        return
    if args.what == "table":
        tables(done)
        return
    if not args.files:
        parser.error("run needs a file")
    known = {(r["family"], r["load"], r["seed"], r["case"]) for r in done}
    names = list(CASES)
    chosen = [] if args.cases is None else [names[int(i)] for i in args.cases.split(",")]
    with args.files[0].open("a") as out:
        for seed in range(args.seeds):
            for family in args.families.split(";"):
                f = FAMILIES[family]
                for load in (
                    x for x in f.loads if args.loads is None or f"{x:g}" in args.loads.split(",")
                ):
                    workload = f.change(
                        generate(f.generator, seed=seed, load=load, jobs=f.jobs).workload()
                    )
                    for case in (
                        c for c in chosen or f.cases if (family, load, seed, c) not in known
                    ):
                        row = {
                            "family": family,
                            "load": load,
                            "seed": seed,
                            "case": case,
                            **one(workload, case),
                        }
                        print(json.dumps(row), file=out, flush=True)


def one(workload: Workload, case: str) -> dict[str, Any]:
    """Return the metrics of a simulation, and CPU seconds of one decision with its round."""
    c, begin = CASES[case], time.process_time()
    ahead_s = (c.intervals or 0) * workload.problem.interval_s if c.announced else 0.0
    found = simulate(
        workload,
        policy=c.policy,
        options=SimulationOptions(
            objective=c.objective, horizon=c.intervals, announce_s=ahead_s, prove_every=0
        ),
    )
    spent = time.process_time() - begin
    m = {**found.metrics, "jct_s_median": float(found.jobs["jct_s"].median())}
    return {
        **{k: m[k] for k in SHOWN},
        "finished": m["finished"],
        "cpu_s": spent / max(1, m["rounds"]),
    }


def tables(rows: list[dict[str, Any]]) -> None:
    """Print means by case, and changes against the baselines."""
    print(f"Machine: {platform.machine()}, Python {platform.python_version()}.\n")
    for f, families in groupby(
        FAMILIES, lambda name: (FAMILIES[name].baselines, FAMILIES[name].cases)
    ):
        head = " | ".join(f"mean against {b} %" for b in f[0])
        print(
            "| workload, load | policy, objective | seeds | mean | median | p99 | restarts | CPU"
            " ms | " + head + " |\n" + "|---" * (8 + len(f[0])) + "|"
        )
        for family in families:
            mine = {(r["load"], r["seed"], r["case"]): r for r in rows if r["family"] == family}
            for load in FAMILIES[family].loads:
                _lines(family, load, mine)
        print()


def _lines(family: str, load: float, mine: dict[tuple[float, int, str], dict[str, Any]]) -> None:
    """Print the lines of one family and load."""
    f = FAMILIES[family]
    for case in f.cases:
        seeds = sorted(
            s
            for at, s, c in mine
            if (at, c) == (load, case) and all((load, s, b) in mine for b in f.baselines)
        )
        if len(seeds) >= FEWEST:
            if any(mine[load, s, case]["finished"] < f.jobs for s in seeds):
                rest = " |" * (5 + len(f.baselines))
                print(f"| {family}, {load:g} | {case} | {len(seeds)} | jobs never start{rest}")
                continue
            base = {
                b: [mine[load, s, b]["jct_s_mean"] for s in seeds]
                for b in f.baselines
                if all(mine[load, s, b]["finished"] == f.jobs for s in seeds)
            }
            print(
                f"| {family}, {load:g} | {case} |",
                " | ".join(
                    _cells([mine[load, s, case] for s in seeds], f.jobs, case, f.baselines, base)
                ),
                "|",
            )


def _cells(
    rows: list[dict[str, Any]],
    jobs: int,
    case: str,
    shown: tuple[str, ...],
    baselines: dict[str, list[float]],
) -> list[str]:
    """Return the cells of one line: means in minutes, restarts per job, changes with intervals."""
    mean = {k: float(np.mean([r[k] for r in rows])) for k in (*SHOWN, "cpu_s")}
    cells = [
        str(len(rows)),
        *(f"{mean[k] / 60:.1f}" for k in ("jct_s_mean", "jct_s_median", "jct_s_p99")),
        f"{mean['restarts'] / jobs:.2f}",
        f"{1e3 * mean['cpu_s']:.0f}",
    ]
    for name in shown:
        if (base := baselines.get(name)) is None:
            cells.append("")
            continue
        x = compare([r["jct_s_mean"] for r in rows], base)
        spread = f" ({x.low:+.1f} to {x.high:+.1f})" if len(rows) > 1 else ""
        cells.append("" if name == case else f"{x.change_percent:+.1f}{spread}")
    return cells


def times(arrays: bool) -> None:
    """Print CPU seconds of one decision by size and intervals, with the objective completion.

    With numba the second of two decisions in a process counts. The last column is for six
    intervals, from the plans of the round before: one interval later, running jobs hold what that
    plan gave them.
    """
    looks = LOOKS
    if arrays:
        sys.modules["numba"], looks = None, LOOKS[:2]  # type: ignore[assignment]
    print(
        f"Machine: {platform.machine()}, Python {platform.python_version()}, "
        f"{'without' if arrays else 'with'} numba.\n"
    )
    print(
        "| active jobs | options | single round | "
        + " | ".join(f"{h} intervals" for h in looks)
        + " | 6, the round after |\n|---"
        + "|---" * (3 + len(looks))
        + "|"
    )
    for jobs in (250, 500, 1000):
        pools = tuple(replace(pool, gpus=pool.gpus * jobs // MEDIUM.jobs) for pool in MEDIUM.pools)
        problem = override_settings(
            validate(generate_cluster(replace(MEDIUM, jobs=jobs, pools=pools), 1).snapshot()),
            "completion",
            None,
        )
        cells = []
        for h in (1, *looks):
            for _ in range(1 if arrays else 2):
                begin = time.process_time()
                found = decide_round(
                    override_settings(problem, None, None, h),
                    policy="horizon",
                    limits=SolveLimits(gap=1e-3),
                )
                spent = time.process_time() - begin
            told = found.proposal.solver_choice.removeprefix("look ahead: ").split(" intervals, ")
            gap = (
                "" if h == 1 else f" ({', '.join(told)})" if " of " in told[0] else f" ({told[-1]})"
            )
            cells.append(f"{spent:.2f}{gap}")
        cells.append(f"{_the_round_after(override_settings(problem, None, None, 6)):.2f}")
        print(f"| {jobs} | {len(found.round.option)} |", " | ".join(cells), "|", flush=True)


def _the_round_after(problem: Problem) -> float:
    """Return CPU seconds of the decision one interval later, from the plans of this one."""
    limits = SolveLimits(gap=1e-3)
    first = decide_round(problem, policy="horizon", limits=limits)
    memory = Memory.of(
        problem.objective, first.round.model, first.task.dual.prices, first.proposal.plans
    )
    held, jobs = first.allocation, problem.jobs
    runs = held.pool >= 0
    state = np.where(
        runs, State.RUNNING, np.where(jobs.state == State.RUNNING, State.PAUSED, jobs.state)
    )
    after = replace(
        problem,
        now_s=problem.now_s + problem.interval_s,
        jobs=replace(jobs, state=state, pool=held.pool, gpus=held.gpus),
    )
    begin = time.process_time()
    decide_round(after, policy="horizon", limits=limits, memory=memory)
    return time.process_time() - begin


if __name__ == "__main__":
    main()
