"""Measure the CPU time of decisions with colocations at 1,000 jobs and a gap of 0.5 %.

    # one minute; with --patience 60 also what HiGHS alone takes, ten minutes
    python scripts/studies/sharing/bench_sharing.py [--seeds N] [--jobs J] [--patience S] > table.md

- gang: all jobs of the workload `sharing` wait at once, one size each, for 64 GPUs of 48 GB.
- elastic: jobs of 20 models with four sizes in each of three pools of 256 GPUs.
- `HiGHS alone`: the model of the round in the end, with those pairs that lose least, in plain HiGHS
  at the same gap, with the time to list options and kinds.

CPU seconds are those of this process and of the solver, with one thread, from a validated problem
to an audited plan. One decision before loads the libraries. Everything is the default except for
the gap, and except that a solver works in this process instead of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import time
from collections.abc import Callable

import numpy as np
from measure_sharing import elastic, waiting

from allocator.bench.machine import machine
from allocator.domain.problem import Problem
from allocator.engine.decision import decide_round
from allocator.options.instance_building import compile_round
from allocator.solvers import highs, registry
from allocator.solvers.base import SolveLimits, WarmStart
from allocator.solvers.decomposition.solve import solve as decomposition
from formulations.model.linear import LinearModel

GAP = SolveLimits(gap=5e-3)
CASES: dict[str, Callable[[int, int], Problem]] = {"gang": waiting, "elastic": elastic}


def cpu() -> float:
    """Return CPU seconds of this process and of the children that have ended."""
    own, ended = (
        resource.getrusage(resource.RUSAGE_SELF),
        resource.getrusage(resource.RUSAGE_CHILDREN),
    )
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


class InProcessDecomposition:
    """The decomposition in this process, so that its CPU time is counted with the rest."""

    name = "decomposition"

    def solve(self, model, limits, hint=None):  # type: ignore[no-untyped-def]
        """Solve the model; see solvers.base.Solver."""
        return decomposition(model, limits, hint or WarmStart(), lambda values, bound: None)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--patience", type=float, default=0.0, help="seconds of HiGHS alone")
    args = parser.parse_args()
    # what is a worker process elsewhere
    setattr(registry, "get", lambda name: InProcessDecomposition())  # noqa: B010
    print(
        f"{machine()}; {args.jobs:,} jobs, seeds 1 to {args.seeds}; CPU seconds: mean (largest)\n"
    )
    alone = f" HiGHS alone (stopped after {args.patience:.0f} s) | its gap |"
    print(
        "| jobs | objective | options | of secondary jobs | rows | build | decision | gap | gain by"
        f" pairs |{alone if args.patience else ''}"
    )
    print("|---" * (11 if args.patience else 9) + "|")
    for name, make in CASES.items():
        decide_round(dataclasses.replace(make(100, 0), objective="progress"), limits=GAP)
        for objective in ("progress", "completion"):
            problems = [make(args.jobs, seed) for seed in range(1, args.seeds + 1)]
            print(line(name, objective, problems, args.patience), flush=True)


def line(name: str, objective: str, problems: list[Problem], patience_s: float) -> str:
    """Return one row of the table."""
    rows = []
    for problem in problems:
        p = dataclasses.replace(problem, objective=objective)
        begin = cpu()
        d = decide_round(p, limits=GAP)
        whole, built = cpu() - begin, d.round
        begin = cpu()
        compile_round(p)
        build = cpu() - begin
        alone = decide_round(
            dataclasses.replace(
                p, pools=dataclasses.replace(p.pools, sharing=np.zeros_like(p.pools.sharing))
            ),
            limits=GAP,
        )
        model = built.model
        plain, its_gap, is_stopped = _solve_alone(model, patience_s) if patience_s else (0, 0, 0)
        rows.append(
            (
                model.n,
                int((built.instance.primary >= 0).sum()),
                model.m - len(p.jobs),
                build,
                whole,
                d.proof[2],
                d.value / alone.value - 1,
                build + plain,
                its_gap,
                is_stopped,
            )
        )
    a = np.array(rows, dtype=float)
    mean, most = a.mean(axis=0), a.max(axis=0)
    stopped = f", {int(a[:, 9].sum())} stopped" if a[:, 9].any() else ""
    alone = f" {mean[7]:.2f} ({most[7]:.2f}{stopped}) | {most[8]:.2%} |"
    return (
        f"| {name} | {objective} | {mean[0]:,.0f} | {mean[1]:,.0f} | {mean[2]:,.0f} | {mean[3]:.2f}"
        f" | {mean[4]:.2f} ({most[4]:.2f}) | {most[5]:.2%} | {mean[6]:.1%} |"
        f"{alone if patience_s else ''}"
    )


def _solve_alone(model: LinearModel, patience_s: float) -> tuple[float, float, bool]:
    """Return CPU seconds and gap of HiGHS alone, and whether it was stopped."""
    wall, begin = time.monotonic(), cpu()
    limits = dataclasses.replace(GAP, time_s=patience_s)
    answer = highs.solve(model, limits, WarmStart(), lambda values, bound: None)
    gap = answer.bound / answer.objective - 1
    return cpu() - begin, gap, time.monotonic() - wall >= patience_s


if __name__ == "__main__":
    main()
