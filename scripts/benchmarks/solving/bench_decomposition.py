"""Measure the gap and the CPU seconds of the decomposition.

    python scripts/benchmarks/solving/bench_decomposition.py rounds [--sizes M,L,XL,XXL,XL-every]
        [--seeds 5] [--repeat 3]
    python scripts/benchmarks/solving/bench_decomposition.py table [--sizes M,L,XL,XXL] [--seeds 5]
    python scripts/benchmarks/solving/bench_decomposition.py sweep [--sizes L,XL] [--seeds 20,21,22]

- rounds: a cold round and the round after it (2 % of the jobs are replaced, 5 % of the values
  change), which starts from the plan and prices of the cold one. The least of `repeat` times
  counts, because other work on the machine only adds to them.
- table: the sizes of the solver table.
- sweep: many kinds of limits, for robustness.

CPU seconds are those of this process, from the arrays of the instance to the answer, including the
formulation. The gap is computed here from the bound that the answer claims and the value of its
plan. The plan is checked against every row.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time

import numpy as np

from allocator.bench.solvers.instances import EVERYTHING, PLAIN, TENANTS, InstanceRules, generate
from allocator.bench.solvers.next_round import next_round, warm_hint
from allocator.solvers import highs
from allocator.solvers.base import SolveLimits, SolverResult, WarmStart
from allocator.solvers.decomposition import solve
from formulations.model.instance import Instance
from formulations.model.single_round import build_model

# one thread, so that CPU seconds are wall seconds; read when numpy is loaded
THREADS = "OPENBLAS_NUM_THREADS"
GAPS = {"S": 5e-4, "M": 5e-4, "L": 2e-4, "XL": 5e-4, "XXL": 1e-4}
RULES = {"plain": PLAIN, "100 tenants": TENANTS, "every rule": EVERYTHING}


def measure(
    size: str, seed: int, rules: InstanceRules, gap: float, time_s: float
) -> tuple[float, float, str]:
    """Return (gap, CPU seconds, detail) of one run; raise if the plan violates a row."""
    instance = generate(size, seed, rules)
    begin = time.process_time()
    model = build_model(instance)
    answer = solve.solve(
        model, SolveLimits(time_s=time_s, gap=gap), WarmStart(), lambda values, bound: None
    )
    seconds = time.process_time() - begin
    if answer.values is None or not model.feasible(answer.values):
        raise SystemExit(f"{size} seed {seed} {rules}: no feasible plan: {answer}")
    return (answer.bound - answer.objective) / abs(answer.objective), seconds, answer.detail


def rounds(size: str, seed: int, repeat: int) -> str:
    """Return a Markdown row: seconds and gap of a cold round and of the warm one after it."""
    name, every = size.removesuffix("-every"), size.endswith("-every")
    gap = 1e-3 if every else GAPS[name]
    instance = generate(name, seed, EVERYTHING if every else PLAIN)
    after = next_round(instance, seed)
    model, model_after = build_model(instance), build_model(after)
    cold = [solved(instance, gap, WarmStart()) for _ in range(repeat)]
    hint = warm_hint(model, cold[0][1], model_after)
    warm = [solved(after, gap, hint) for _ in range(repeat)]
    cells = [
        f"{min(s for s, _ in runs):.3f} | {100 * runs[0][1].bound / runs[0][1].objective - 100:.4f}"
        for runs in (cold, warm)
    ]
    return f"| {size} | {seed} | {100 * gap:g} | {' | '.join(cells)} |"


def solved(instance: Instance, gap: float, hint: WarmStart) -> tuple[float, SolverResult]:
    """Return (CPU seconds, answer) of formulating and solving; check the plan."""
    begin = time.process_time()
    model = build_model(instance)
    answer = solve.solve(model, SolveLimits(time_s=60.0, gap=gap), hint, lambda values, bound: None)
    if answer.values is None or not model.feasible(answer.values):
        raise SystemExit(f"no feasible plan: {answer.detail}")
    return time.process_time() - begin, answer


def show(label: str, rows: list[tuple[float, float, str]], gap: float) -> None:
    """Print one line: gaps in percent and seconds, as median, p90 and worst."""
    gaps, seconds = np.array([r[0] for r in rows]) * 100, np.array([r[1] for r in rows])
    stats = " ".join(
        f"{name} {np.median(x):.4f} / {np.quantile(x, 0.9):.4f} / {x.max():.4f}"
        for name, x in (("gap %", gaps), ("CPU s", seconds))
    )
    print(
        f"{label:24s} {stats}  over {100 * gap:g} %: {int((gaps > 100 * gap).sum())} of"
        f" {len(rows)}",
        flush=True,
    )


def main() -> None:
    """Print the table or the sweep."""
    if THREADS not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, THREADS: "1"})
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["table", "sweep", "rounds"])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--sizes", default="")
    parser.add_argument("--rules", default="plain,100 tenants,every rule")
    parser.add_argument("--seeds", default="")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--each", action="store_true", help="a line for every run")
    a = parser.parse_args()
    # loading the library is not part of a solve
    highs.version()
    if a.what == "rounds":
        print(
            "| size | seed | gap asked % | cold s | gap % | warm s | gap %"
            " |\n|---|---|---|---|---|---|---|"
        )
        for size, seed in itertools.product(
            (a.sizes or "M,L,XL,XXL,XL-every").split(","), range(int(a.seeds or 5))
        ):
            print(rounds(size, seed, a.repeat), flush=True)
        return
    print("median / p90 / worst")
    if a.what == "table":
        for size, name in itertools.product(
            (a.sizes or "M,L,XL,XXL").split(","), a.rules.split(",")
        ):
            gap = GAPS[size] if name == "plain" else 1e-3
            rows = [
                measure(size, seed, RULES[name], gap, a.time_limit)
                for seed in range(int(a.seeds or 5))
            ]
            if a.each:
                print(*(f"  {g * 100:.4f} % {s:.3f} s {d}" for g, s, d in rows), sep="\n")
            show(f"{size} {name}", rows, gap)
        return
    for size in (a.sizes or "L,XL").split(","):
        rows = []
        for demand, budget, tenants, seed in itertools.product(
            (1.5, 3.0), (0.5, 0.8, 1.2), (20, 100), map(int, (a.seeds or "20,21,22").split(","))
        ):
            rows.append(
                measure(size, seed, InstanceRules(demand, budget, tenants), 1e-3, a.time_limit)
            )
            if a.each:
                g, s, d = rows[-1]
                print(
                    f"  demand {demand} budget {budget} tenants {tenants} seed {seed}:"
                    f" {g * 100:.4f} % {s:.3f} s {d}"
                )
        show(f"{size} sweep", rows, 1e-3)


if __name__ == "__main__":
    main()
