"""Measure the policy `horizon`: certified gap and CPU seconds against HiGHS.

    python scripts/benchmarks/solving/bench_horizon.py [--sizes S,M,L] [--seeds 5] [--gap 0.003]
        [--forms compiled,arrays,warm]
    python scripts/benchmarks/solving/bench_horizon.py --forms monolithic --sizes S --seeds 1
        --limit 60

The instances are those of scripts/cases/horizons.py, with whole units of work and with any rates.
All forms get the same instances:

- compiled: with numba
- arrays: without numba
- warm: compiled, for the round after (2 % of the jobs lose half of their work, all plans are one
  interval old), from the plans and prices of the round before
- monolithic: formulations/horizon_monolithic in HiGHS with one thread. The operating system ends it
  after `limit` CPU seconds; the best plan and bound reported until then count.

CPU seconds are those of this process, from the arrays of the instance to the checked plan. The code
of numba is loaded before. The gap is computed here from the bound of the answer and the value of
its plan.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import multiprocessing
import os
import resource
import sys
import time
from typing import Any

import numpy as np

from allocator.bench.machine import machine
from allocator.solvers import highs
from allocator.solvers.base import SolveLimits, SolverResult, WarmStart
from allocator.solvers.decomposition import solve as decomposition
from allocator.solvers.horizon import HorizonStart, look_ahead
from formulations.compilation import has_numba
from formulations.horizon.intervals import Horizon, feasible, follow, shift_plan
from formulations.horizon.monolithic import build_monolithic_model
from formulations.horizon.pricing import Pricing
from formulations.model.linear import LinearModel
from scripts.cases.horizons import horizon

# one thread, so that CPU seconds are wall seconds; read when numpy is loaded
THREADS = "OPENBLAS_NUM_THREADS"
INTERVALS = 12


class InProcessDecomposition:
    """The decomposition in this process, so that its CPU seconds are counted."""

    name = "decomposition"

    def solve(
        self, model: LinearModel, limits: SolveLimits, hint: WarmStart | None = None
    ) -> SolverResult:
        """See allocator.solvers.base.Solver."""
        return decomposition.solve(model, limits, hint or WarmStart(), lambda values, bound: None)


def ahead(
    x: Horizon, gap: float, limit: float, compiled: bool, start: HorizonStart | None = None
) -> tuple[float, float, Any]:
    """Return (gap, CPU seconds, answer) of a horizon; end the script if the plan violates a row."""
    begin = time.process_time()
    answer = look_ahead(
        x, SolveLimits(time_s=limit, gap=gap), start, InProcessDecomposition(), compiled
    )
    seconds = time.process_time() - begin
    if answer.plan is None or not feasible(x, answer.plan):
        raise SystemExit("no feasible plan")
    gain = float(follow(x, np.arange(x.J), answer.plan).gain.sum())
    return (answer.bound - gain) / gain, seconds, answer


def next_round(x: Horizon, plan: Any, seed: int) -> Horizon:
    """Return the horizon one interval later.

    The work of the first interval is done, and jobs hold what the plan gave them. Finished jobs are
    replaced by new jobs of the same kind. 2 % of the jobs have lost half of their remaining work.
    """
    rng = np.random.default_rng(seed)
    first = plan.copy()
    first[:, 1:] = -1
    left = follow(x, np.arange(x.J), first).left
    gone = left <= 0
    left = np.where(gone, x.remaining, np.where(rng.random(x.J) < 0.02, 0.5 * left, left))
    return dataclasses.replace(x, remaining=left, current=np.where(gone, -1, plan[:, 0]))


def child(pipe: Any, size: str, seed: int, whole: bool, gap: float, limit: float) -> None:
    """Solve the monolithic model and report every improvement.

    The operating system ends the process after its CPU seconds.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 1))
    x = horizon(size, seed, INTERVALS, whole)

    def told(values: Any, bound: float) -> None:
        pipe.send((None if values is None else float(model.value @ values), bound))

    model, options = build_monolithic_model(x), highs._options
    # presolve is off in highs.py for single rounds, where it costs more time than it saves;
    # here it saves time
    highs._options = lambda limits, is_mip: {**options(limits, is_mip), "presolve": "choose"}
    answer = highs.solve(model, SolveLimits(time_s=1e6, gap=gap), WarmStart(), told)
    pipe.send((answer.objective, answer.bound))


def whole_model(size: str, seed: int, whole: bool, gap: float, limit: float) -> tuple[float, float]:
    """Return (gap, CPU seconds) of the monolithic model."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    worker = context.Process(target=child, args=(theirs, size, seed, whole, gap, limit))
    worker.start()
    theirs.close()
    value, bound = 0.0, np.inf
    while True:
        try:
            new = ours.recv()
        except EOFError:
            break
        value, bound = max(value, new[0] or 0.0), min(bound, new[1])
    worker.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (bound - value) / max(value, 1e-9), used.ru_utime + used.ru_stime


def row(size: str, whole: bool, form: str, runs: list[tuple[float, float, str]]) -> str:
    """Return a Markdown row."""
    gaps, seconds = np.array([r[0] for r in runs]) * 100, np.array([r[1] for r in runs])
    jobs, kind = horizon(size, 0, 1).J, "whole units" if whole else "any rates"
    return (
        f"| {jobs} x {INTERVALS} | {kind} | {form} | {len(runs)} | {np.median(gaps):.3f} /"
        f" {gaps.max():.3f} | {np.median(seconds):.2f} / {seconds.max():.2f} | {runs[0][2]} |"
    )


def runs_of(
    form: str, size: str, whole: bool, a: argparse.Namespace
) -> list[tuple[float, float, str]]:
    """Return (gap, CPU seconds, note) of every seed."""
    out = []
    for seed in range(a.seeds):
        if form == "monolithic":
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            gap, seconds = whole_model(size, seed, whole, a.gap, a.limit)
            out.append((gap, seconds - before.ru_utime - before.ru_stime, f"{a.limit:g} s limit"))
            continue
        x = horizon(size, seed, INTERVALS, whole)
        found = ahead(x, a.gap, a.limit, form != "arrays")
        if form == "warm":
            start = HorizonStart(shift_plan(found[2].plan), shift_plan(found[2].prices.T).T)
            found = ahead(next_round(x, found[2].plan, seed), a.gap, a.limit, True, start)
        out.append((found[0], found[1], f"{found[2].passes} passes, {found[2].columns} plans"))
    return out


def main() -> None:
    """Print the table."""
    if THREADS not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, THREADS: "1"})
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="S,M,L")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--gap", type=float, default=0.003)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of each run")
    parser.add_argument("--forms", default="compiled")
    parser.add_argument("--kinds", default="whole,any")
    a = parser.parse_args()
    print(f"{machine()}; asked for {100 * a.gap:g} %, seeds 0 to {a.seeds - 1}\n")
    print(
        "| jobs x intervals | work | form | runs | gap %: median / worst | CPU s: median / worst |"
        " seed 0 |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    # loading libraries is not part of the measurement
    highs.version()
    if set(a.forms.split(",")) & {"compiled", "warm"}:
        if not has_numba():
            parser.error(
                'the forms compiled and warm need numba (pip install ".[fast]"); --forms arrays'
                " does without"
            )
        tiny = horizon((4, 16, 2), 0, 2)
        Pricing(tiny, compiled=True).price(np.zeros(tiny.H * tiny.R))
    for form, size, kind in itertools.product(
        a.forms.split(","), a.sizes.split(","), a.kinds.split(",")
    ):
        print(row(size, kind == "whole", form, runs_of(form, size, kind == "whole", a)), flush=True)


if __name__ == "__main__":
    main()
