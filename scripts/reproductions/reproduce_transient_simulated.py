"""Simulate measured training on transient servers from single-worker figures.

    python scripts/reproductions/reproduce_transient_simulated.py [--runs 2000] [--seed 0]
        [--startup FOLDER]

The figures are those of scripts/cases/transient/runs.py. The tables compare:

- time and cost of each cluster with the measured means
- shares of K80 servers revoked within so many hours with the 128 observed servers
- replacement and start-up times, drawn log-normal with the measured mean and standard deviation,
  with these and, if FOLDER has the published vm_time_measure_*.csv, with every start

Standard output is Markdown.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from allocator.bench.machine import machine
from scripts.cases.transient import runs as case


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000, help="of each cluster (default: 2,000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--startup", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    print(
        f"{machine()}; {args.runs} runs of each cluster, seed {args.seed}\n\n| cluster | measured,"
        " s | simulated, s | sd | difference | measured, $ | simulated, $ | difference |"
        f" revocations a run | expected |\n|{'---|' * 10}"
    )
    for c in case.CLUSTERS:
        jobs = case.run(c, args.runs, args.seed, case.SPREAD).jobs
        seconds, usd = jobs["jct_s"], float(jobs["dollars"].mean())
        expected = case.HAZARD * c.n * float(seconds.mean() - c.startup_s) / 3600 if c.spot else 0.0
        print(
            f"| {c.name} | {c.measured_s:,.0f} | {seconds.mean():,.0f} | {seconds.std():.0f} | "
            f"{seconds.mean() / c.measured_s - 1:+.1%} | {c.measured_usd:.3f} | {usd:.3f} | "
            f"{usd / c.measured_usd - 1:+.1%} | {jobs['revocations'].mean():.4f} |"
            f" {expected:.4f} |",
            flush=True,
        )
    print(
        "\n| hours | observed of 128 | standard error | simulated, one hazard | simulated, early"
        f" burst |\n|{'---|' * 5}"
    )
    for hours, share in case.REVOKED.items():
        flat = case.revoked_within(args.runs, hours, case.HAZARD, 1.0, args.seed)
        burst = case.revoked_within(args.runs, hours, case.LATER, case.BURST, args.seed)
        error = np.sqrt(share * (1 - share) / case.SERVERS)
        print(f"| {hours} | {share:.3f} | {error:.3f} | {flat:.3f} | {burst:.3f} |", flush=True)
    replacements(args.runs, args.seed)
    if args.startup is not None:
        start_ups(args.startup, args.runs, args.seed)
    return 0


def replacements(runs: int, seed: int) -> None:
    """Print the seconds from a loss until the replacement works."""
    print(f"\n| replacement of | measured, s | simulated, s | error of the mean |\n|{'---|' * 4}")
    for kind, (mean, sd) in case.REPLACED.items():
        took = case.starts(mean, sd, runs, seed)[1]
        print(
            f"| {kind} | {mean} +- {sd} | {took.mean():.1f} +- {took.std():.1f} | "
            f"{took.std() / np.sqrt(runs):.2f} |",
            flush=True,
        )


def start_ups(folder: Path, runs: int, seed: int) -> None:
    """Compare every published start with a log-normal law.

    The law has the mean and standard deviation of the file.
    """
    from scipy.stats import ks_2samp

    print(
        "\n| starts | number | measured, s | 5, 50, 95 % | simulated, s | 5, 50, 95 % | largest"
        f" difference of the shares, p |\n|{'---|' * 7}"
    )
    for path in sorted(folder.glob("vm_time_measure_*.csv")):
        total = np.genfromtxt(path, delimiter=",", skip_header=1).sum(axis=1)
        seen = total[~np.isnan(total)]
        drawn = case.starts(float(seen.mean()), float(seen.std(ddof=1)), runs, seed)[0]
        measured, simulated = (
            ", ".join(f"{x:.0f}" for x in np.percentile(v, (5, 50, 95))) for v in (seen, drawn)
        )
        same = ks_2samp(seen, drawn)
        print(
            f"| {path.stem.removeprefix('vm_time_measure_')} | {len(seen)} | {seen.mean():.1f} +-"
            f" {seen.std(ddof=1):.1f} | {measured} | {drawn.mean():.1f} +- {drawn.std():.1f} |"
            f" {simulated} | {same.statistic:.2f}, {same.pvalue:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
