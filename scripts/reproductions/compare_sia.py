"""Reproduce the published order of Sia's evaluation on workloads in Sia's format.

    python scripts/reproductions/compare_sia.py DATA [--page docs/sia-workloads.md]

DATA is a folder with workloads/KIND/workload-N.csv and profiles/ (not shipped, see docs/traces.md).
Every workload is used. The policies are Sia, Gavel-style, greedy and mip. Elastic policies choose
sizes and batch sizes of the profiles (`--rule-sizes`). Gavel-style runs jobs at the tuned size and
batch size of the workload, as in the publication. Rounds last 60 s as published for Sia, and 360 s
for Gavel; mip also has rounds of 300 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from page import put

from allocator import read_workload
from allocator.bench.machine import machine
from allocator.io.traces.base import TraceOptions as Import
from allocator.io.traces.run import import_trace, write_tables
from allocator.simulator import SimulationOptions as Options, simulate

BEGIN, END = "<!-- table: scripts/reproductions/compare_sia.py -->", "<!-- end of table -->"
COLUMNS = (
    ("mean completion, h", "jct_s_mean", 3600.0),
    ("p99, h", "jct_s_p99", 3600.0),
    ("makespan, h", "makespan_s", 3600.0),
    ("GPU-hours a job", "gpu_hours", 1.0),
    ("restarts a job", "restarts", 1.0),
    ("decision, ms", "decision_s_mean", 1e-3),
)
PER_JOB = {"gpu_hours", "restarts"}


@dataclass(frozen=True)
class SiaCase:
    """A policy on rounds of interval_s; rigid: at the size and batch size of the workload."""

    policy: str
    interval_s: float
    rigid: bool = False
    ageing_s: float | None = None

    @property
    def name(self) -> str:
        """Return the name in the table."""
        return (
            f"{self.policy}, {self.interval_s:g} s"
            + (", tuned sizes" if self.rigid else "")
            + (f", ageing {self.ageing_s / 3600:g} h" if self.ageing_s else "")
        )


CASES = (
    SiaCase("sia", 60),
    SiaCase("sia", 300),
    SiaCase("maxmin", 360, rigid=True),
    SiaCase("las", 360, rigid=True),
    SiaCase("greedy", 60),
    SiaCase("mip", 60),
    SiaCase("mip", 300),
    SiaCase("mip", 300, ageing_s=1_800),
)


def measure(source: Path, case: SiaCase) -> list[float]:
    """Return the metrics of COLUMNS of one simulation."""
    options = (
        Import(rigid=True, extra={"speed": ("tuned",)}) if case.rigid else Import(rule_sizes=True)
    )
    with tempfile.TemporaryDirectory() as folder:
        workload = read_workload(
            write_tables(import_trace("sia", source, options)[0], Path(folder) / "w")
        )
    found = simulate(
        workload,
        policy=case.policy,
        options=Options(
            objective="progress", interval_s=case.interval_s, prove_every=0, ageing_s=case.ageing_s
        ),
    ).metrics
    assert found["finished"] == found["jobs"], (source, case, found["finished"])
    return [found[key] / (found["jobs"] if key in PER_JOB else 1) for _, key, _ in COLUMNS]


def main() -> None:
    """Simulate and print or write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with workloads/ and profiles/")
    parser.add_argument("--workers", type=int, default=2, help="simulations at a time (default: 2)")
    parser.add_argument("--page", type=Path, help="page whose table is replaced")
    args = parser.parse_args()
    sources = sorted(args.data.glob("workloads/*/workload-*.csv"))
    if not sources:
        sys.exit(f'"{args.data}" has no workloads/KIND/workload-N.csv')
    pairs = [(source, case) for case in CASES for source in sources]
    with ProcessPoolExecutor(args.workers) as pool:
        found = np.array(list(pool.map(measure, *zip(*pairs, strict=True))))
    found = found.reshape(len(CASES), len(sources), len(COLUMNS))
    lines = [
        f"Machine: {machine()}. Means over {len(sources)} workloads ("
        + ", ".join(f"{s.parent.name} {s.stem.partition('-')[2]}" for s in sources)
        + "); of mean completion the lowest and highest too.",
        "",
        "| policy | " + " | ".join(c[0] for c in COLUMNS) + " |",
        "|---" + "|---:" * len(COLUMNS) + "|",
    ]
    for case, rows in zip(CASES, found, strict=True):
        cells = [
            f"{m / unit:.2f}" for m, (_, _, unit) in zip(rows.mean(axis=0), COLUMNS, strict=True)
        ]
        low, high = rows[:, 0].min() / 3600, rows[:, 0].max() / 3600
        lines.append(
            f"| {case.name} | {cells[0]} ({low:.2f} to {high:.2f}) | "
            + " | ".join(cells[1:])
            + " |"
        )
    text = "\n".join(lines)
    put(text, args.page, BEGIN, END)


if __name__ == "__main__":
    main()
