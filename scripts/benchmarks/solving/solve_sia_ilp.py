"""Solve saved rounds of the Sia scheduler, and print Sia's own objective.

    python scripts/benchmarks/solving/solve_sia_ilp.py ilp/*.npz [--solver decomposition]

The objective can be compared with what Sia's solver found. allocator/io/model_files/sia_ilp.py
describes the format of the files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from allocator.io.model_files.sia_ilp import read_sia_ilp, sia_objective
from allocator.solvers.base import SolveLimits
from allocator.solvers.registry import get


def main() -> None:
    """Print one line per file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--solver", default="highs", help="default: highs")
    parser.add_argument(
        "--gap", type=float, default=1e-6, help="relative to our value (default: 1e-6)"
    )
    args = parser.parse_args()
    for file in args.files:
        answer = get(args.solver).solve(read_sia_ilp(file), SolveLimits(time_s=120.0, gap=args.gap))
        print(
            f"{Path(file).name}: {sia_objective(file, answer.objective):.2f}, at best "
            f"{sia_objective(file, answer.bound):.2f}, {answer.termination}, {answer.seconds:.2f} s"
        )


if __name__ == "__main__":
    main()
