"""Compare policies that may colocate jobs with policies that may not, over whole workloads.

    # set OMP_NUM_THREADS=1; a quarter of an hour of CPU
    python scripts/studies/sharing/measure_sharing_policies.py --runs runs.jsonl
    # a part of it
    python scripts/studies/sharing/measure_sharing_policies.py --runs runs.jsonl \\
        --gpus 32 --loads 1.5
    # jobs on the GPUs of up to four jobs, and idle ones, against jobs on those of one
    python scripts/studies/sharing/measure_sharing_policies.py --runs runs.jsonl \\
        --gpus 64 --loads 1.5 --seeds 3 --primaries 4

bsbf, ffs and mip may colocate; las, sjf, srtf and mip may not. The workload is that of the
generator `sharing` with 240 jobs, rounds of 150 s, and mean completion. Every simulation is a line
of the file of runs, and existing ones are not made again. Intervals are bootstrap intervals over
seeds of the paired change (bench/paired.py). Policies that do not colocate do not use slowdowns,
and run once for all of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import platform
from pathlib import Path

import numpy as np

from allocator.bench.paired import PairedComparison, compare
from allocator.bench.workloads.sharing import sharing
from allocator.domain.problem import Isolation
from allocator.simulator import SimulationOptions, simulate

SLOWDOWNS = ((1.1, 2.5), (1.05, 1.5))
APART = ("las", "sjf", "srtf", "mip progress", "mip completion", "mip flow")
SHARED = ("ffs", "bsbf", "mip progress", "mip completion", "mip flow")


class CompletionRuns:
    """Mean completions in minutes by case, kept in a file."""

    def __init__(self, path: Path, primaries: int = 1) -> None:
        self.path = path
        self.primaries = primaries
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.known = {
            json.dumps(row["case"]): float(row["minutes"]) for row in map(json.loads, lines)
        }

    def minutes(
        self, gpus: int, load: float, slow: tuple[float, float], shares: bool, name: str, seed: int
    ) -> float:
        """Return the result of one simulation under a policy and, for mip, an objective."""
        most = self.primaries if shares else 1
        key = [gpus, load, list(slow) if shares else None, name, seed]
        case = json.dumps([*key, most] if most > 1 else key)
        if case not in self.known:
            w = sharing(seed=seed, load=load, jobs=240, gpus=gpus, slowdown=slow).workload()
            if not shares:
                pools = dataclasses.replace(
                    w.problem.pools, sharing=np.full(len(w.problem.pools), Isolation.NONE)
                )
                w = dataclasses.replace(w, problem=dataclasses.replace(w.problem, pools=pools))
            w = dataclasses.replace(w, problem=dataclasses.replace(w.problem, max_primaries=most))
            policy, _, objective = name.partition(" ")
            done = simulate(
                w,
                policy=policy,
                options=SimulationOptions(objective=objective or None, prove_every=0),
            )
            assert not done.unfinished
            self.known[case] = float(done.metrics["jct_s_mean"]) / 60
            with self.path.open("a", encoding="utf-8") as file:
                file.write(
                    json.dumps({"case": json.loads(case), "minutes": self.known[case]}) + "\n"
                )
        return self.known[case]


def format_change(c: PairedComparison) -> str:
    """Return the mean change in percent with its interval, and on how many seeds it was better."""
    return f"{c.change_percent:+.0f} % [{c.low:+.0f}, {c.high:+.0f}], {c.lower} of {c.n}"


def compare_primaries(
    args: argparse.Namespace, pairs: CompletionRuns, groups: CompletionRuns
) -> None:
    """Print the mean completion with one and with several primary jobs of a secondary job."""
    print(
        f"{platform.machine()}, Python {platform.python_version()}, seeds 0 to {args.seeds - 1},"
        f" 240 jobs; mean completion in minutes with pairs, and with max_primaries ="
        f" {groups.primaries}\n"
    )
    print(
        "| GPUs | load | slowdowns | policy | pairs | several | against pairs"
        " | against `bsbf` with pairs |\n" + "|---" * 8 + "|"
    )
    for gpus, load, slow in itertools.product(args.gpus, args.loads, SLOWDOWNS):
        base = [pairs.minutes(gpus, load, slow, True, "bsbf", s) for s in range(args.seeds)]
        for name in args.policies or SHARED:
            one, several = (
                [runs.minutes(gpus, load, slow, True, name, s) for s in range(args.seeds)]
                for runs in (pairs, groups)
            )
            print(
                f"| {gpus} | {load:g} | {slow[0]:g} to {slow[1]:g} | `{name}` |"
                f" {np.mean(one):.1f} | {np.mean(several):.1f} |"
                f" {format_change(compare(several, one))} |"
                f" {format_change(compare(several, base))} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=Path, required=True, help="file of runs, made or gone on with"
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--gpus", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--loads", type=float, nargs="+", default=[1.0, 1.5])
    parser.add_argument(
        "--no-mip", action="store_true", help="only policies that decide without a solver"
    )
    parser.add_argument(
        "--primaries",
        type=int,
        default=1,
        help="compare with max_primaries of so many, instead of with policies that do not share",
    )
    parser.add_argument(
        "--policies", nargs="+", choices=SHARED, help="with --primaries: which of them"
    )
    args = parser.parse_args()
    runs = CompletionRuns(args.runs)
    if args.primaries > 1:
        compare_primaries(args, runs, CompletionRuns(args.runs, args.primaries))
        return
    print(
        f"{platform.machine()}, Python {platform.python_version()}, seeds 0 to {args.seeds - 1},"
        " 240 jobs; mean completion in minutes\n",
        flush=True,
    )
    print(
        "| GPUs | load | slowdowns | shares | policy | minutes | against las | against bsbf |\n"
        + "|---" * 8
        + "|"
    )
    for gpus in args.gpus:
        for load in args.loads:
            for slow in SLOWDOWNS:
                rows = {
                    (shares, name): [
                        runs.minutes(gpus, load, slow, shares, name, s) for s in range(args.seeds)
                    ]
                    for shares, names in ((False, APART), (True, SHARED))
                    for name in names
                    if not (args.no_mip and name.startswith("mip"))
                }
                for (shares, name), got in rows.items():
                    case = (
                        f"{gpus} | {load:g} | {slow[0]:g} to {slow[1]:g} |"
                        f" {'yes' if shares else 'no'}"
                    )
                    print(
                        f"| {case} | `{name}` | {np.mean(got):.1f} |"
                        f" {format_change(compare(got, rows[False, 'las']))} |"
                        f" {format_change(compare(got, rows[True, 'bsbf']))} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
