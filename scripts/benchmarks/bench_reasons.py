"""Measure the CPU time of reading all reasons of a plan against that of its decision.

    python scripts/benchmarks/bench_reasons.py [--jobs 60,100,150] [--families one,20] [--seeds 2]

Prints a line for every size and family of bench_rounds.py: CPU milliseconds of the decision and of
the reasons, the least of three, as means over seeds, and their ratio. Reasons that another process
decides are not counted. For the code of another checkout, set PYTHONPATH to it.
"""

import argparse
import time

from bench_rounds import GAP, GAPS, make_snapshot

import allocator
from formulations.branching.branch_and_bound import compile_search


def measure(family: str, jobs: int, seed: int) -> tuple[float, float]:
    """Return the CPU seconds of a decision and of its reasons."""
    snapshot, seconds = make_snapshot(family, jobs, seed), []
    for _ in range(3):
        times = [time.process_time()]
        plan = allocator.solve(snapshot, gap=GAP if family == "rules" else GAPS.get(jobs, GAP))
        for column in ("pool", "reason"):
            assert plan.jobs[column]
            times.append(time.process_time())
        seconds.append((times[1] - times[0], times[2] - times[1]))
    decision, reasons = map(min, zip(*seconds, strict=True))
    return decision, reasons


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--jobs", default="12,30,60,100,150,300")
parser.add_argument("--families", default="one,20,100,tight,guarantees,changes,rules")
parser.add_argument("--seeds", type=int, default=2)
args = parser.parse_args()
compile_search()
measure("one", 60, 999)
for jobs in map(int, args.jobs.split(",")):
    for family in args.families.split(","):
        rounds = [measure(family, jobs, seed) for seed in range(args.seeds)]
        decision, reasons = (1e3 * sum(column) / args.seeds for column in zip(*rounds, strict=True))
        print(f"{jobs} {family} {decision:.1f} {reasons:.1f} {reasons / decision:.2f}", flush=True)
