"""Measure the CPU time of decisions with colocations at 1,000 jobs and a gap of 0.5 %.

    # ten minutes with the defaults
    python scripts/studies/sharing/bench_sharing.py [--seeds N] [--jobs J] > table.md

- gang: all jobs of the workload `sharing` wait at once, one size each, for 64 GPUs of 48 GB.
- elastic: jobs of 20 models with four sizes in each of three pools of 256 GPUs.
- `HiGHS alone`: the model of the same round in plain HiGHS at the same gap, with the time to build
  it.

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

GAP = SolveLimits(gap=5e-3)
CASES: dict[str, Callable[[int, int], Problem]] = {"gang": waiting, "elastic": elastic}
PATIENCE_S = 60.0


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
    args = parser.parse_args()
    # what is a worker process elsewhere
    setattr(registry, "get", lambda name: InProcessDecomposition())  # noqa: B010
    print(
        f"{machine()}; {args.jobs:,} jobs, seeds 1 to {args.seeds}; CPU seconds: mean (largest)\n"
    )
    print(
        "| jobs | objective | options | of secondary jobs | rows | build | decision | gap | gain by"
        f" pairs | HiGHS alone (stopped after {PATIENCE_S:.0f} s) | its gap |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, make in CASES.items():
        decide_round(dataclasses.replace(make(100, 0), objective="progress"), limits=GAP)
        for objective in ("progress", "completion"):
            print(
                line(name, objective, [make(args.jobs, seed) for seed in range(1, args.seeds + 1)]),
                flush=True,
            )


def line(name: str, objective: str, problems: list[Problem]) -> str:
    """Return one row of the table."""
    rows = []
    for problem in problems:
        p = dataclasses.replace(problem, objective=objective)
        begin = cpu()
        d = decide_round(p, limits=GAP)
        whole, built = cpu() - begin, d.round
        begin = cpu()
        round_ = compile_round(p)
        build = cpu() - begin
        alone = decide_round(
            dataclasses.replace(
                p, pools=dataclasses.replace(p.pools, sharing=np.zeros_like(p.pools.sharing))
            ),
            limits=GAP,
        )
        wall, begin = time.monotonic(), cpu()
        model = round_.model
        answer = highs.solve(
            model,
            dataclasses.replace(GAP, time_s=PATIENCE_S),
            WarmStart(),
            lambda values, bound: None,
        )
        plain, stopped = build + cpu() - begin, time.monotonic() - wall >= PATIENCE_S
        rows.append(
            (
                model.n,
                int((built.instance.primary >= 0).sum()),
                model.m - len(p.jobs),
                build,
                whole,
                d.proof[2],
                d.value / alone.value - 1,
                plain,
                answer.bound / answer.objective - 1,
                stopped,
            )
        )
    a = np.array(rows, dtype=float)
    mean, most = a.mean(axis=0), a.max(axis=0)
    return (
        f"| {name} | {objective} | {mean[0]:,.0f} | {mean[1]:,.0f} | {mean[2]:,.0f} | {mean[3]:.2f}"
        f" | {mean[4]:.2f} ({most[4]:.2f}) | {most[5]:.2%} | {mean[6]:.1%} | {mean[7]:.2f}"
        f" ({most[7]:.2f}{', ' + str(int(a[:, 9].sum())) + ' stopped' if a[:, 9].any() else ''}) |"
        f" {most[8]:.2%} |"
    )


if __name__ == "__main__":
    main()
