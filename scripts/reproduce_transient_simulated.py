"""Measured training on transient servers, simulated from single-worker figures (allocator/bench/transient_runs.py).

    python scripts/reproduce_transient_simulated.py [--runs 2000] [--seed 0]

Time and cost of each cluster against the means that were measured; shares of K80 servers revoked within so many hours
against the 128 observed. Markdown on standard output.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from allocator.bench import transient_runs as case
from allocator.bench.solvers import machine


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="of each cluster (default: 2,000)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(f"{machine()}; {args.runs} runs of each cluster, seed {args.seed}\n\n"
          "| cluster | measured, s | simulated, s | sd | difference | measured, $ | simulated, $ | difference | "
          f"revocations a run | expected |\n|{'---|' * 10}")
    for c in case.CLUSTERS:
        jobs = case.run(c, args.runs, args.seed).jobs
        seconds, usd = jobs["jct_s"], float(jobs["dollars"].mean())
        expected = case.HAZARD * c.n * float(seconds.mean() - c.startup_s) / 3600 if c.spot else 0.0
        print(f"| {c.name} | {c.measured_s:,.0f} | {seconds.mean():,.0f} | {seconds.std():.0f} | "
              f"{seconds.mean() / c.measured_s - 1:+.1%} | {c.measured_usd:.3f} | {usd:.3f} | "
              f"{usd / c.measured_usd - 1:+.1%} | {jobs['revocations'].mean():.4f} | {expected:.4f} |", flush=True)
    print("\n| hours | observed of 128 | standard error | simulated, one hazard | simulated, early burst |\n"
          f"|{'---|' * 5}")
    for hours, share in case.REVOKED.items():
        flat = case.revoked_within(args.runs, hours, case.HAZARD, 1.0, args.seed)
        burst = case.revoked_within(args.runs, hours, case.LATER, case.BURST, args.seed)
        error = np.sqrt(share * (1 - share) / case.SERVERS)
        print(f"| {hours} | {share:.3f} | {error:.3f} | {flat:.3f} | {burst:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
