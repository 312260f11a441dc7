"""`allocator demo`: the shipped snapshot decided by greedy and by MIP, side by side."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.errors import AllocatorError

if TYPE_CHECKING:
    from allocator.cli.tables import Table
    from allocator.domain.result import Result

EXAMPLES = """
allocator demo
allocator demo --solver cpsat
"""


def add(commands: Any) -> None:
    parser = commands.add_parser("demo", examples=EXAMPLES, help="a shipped cluster: MIP beside greedy",
                                 description="Decide the shipped snapshot of 12 jobs with greedy and with MIP, and "
                                             "show where they differ and why.")
    parser.add_argument("--solver", default="auto", metavar="NAME",
                        help="auto (default), highs, decomposition, cpsat, pulp")
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    from allocator import read_snapshot, solve
    from allocator.cli import tables

    folder = demo_folder()
    snapshot = read_snapshot(folder)
    greedy = solve(snapshot, policy="greedy")
    mip = solve(snapshot, policy="mip", solver=args.solver, gap=0.0)
    for warning in mip.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    tables.show([_comparison(greedy, mip), _totals(greedy, mip)], _head(folder, mip))
    print("\n" + "\n".join(_closing(folder, greedy, mip)))
    return 0


def demo_folder() -> Path:
    """The demo snapshot: inside the installed package, or in the repository this file belongs to."""
    package = Path(__file__).resolve().parent.parent
    for root in (package, package.parent):
        folder = root / "data" / "snapshots" / "demo"
        if folder.is_dir():
            return folder
    raise AllocatorError("the demo snapshot is missing from this installation (data/snapshots/demo)")


def _head(folder: Path, mip: Result) -> list[str]:
    gpus = sum(p["gpus"] for p in mip.pools)
    limit = mip.budget["per_hour"]
    return [f"{_near(folder)}: {len(mip.jobs['job_id'])} jobs, {gpus} GPUs in {len(mip.pools)} pools, "
            f"rounds of {mip.interval_s:g} s" + ("" if limit is None else f", at most {limit:g} $/h"),
            "A job's value is the share of its remaining work that this round completes, times its weight."]


def _comparison(greedy: Result, mip: Result) -> Table:
    from allocator.cli.tables import Table, text

    rows = []
    for g, m in zip(greedy.to_dict()["jobs"], mip.to_dict()["jobs"], strict=True):
        same = (g["pool"], g["gpus"]) == (m["pool"], m["gpus"])
        rows.append([text(m["job_id"]), _gets(g), _gets(m), "" if same else "<", text(g["value"], 3),
                     text(m["value"], 3), "" if same else _why(g, m)])
    return Table("jobs (< where they differ)", ("job", "greedy", "mip", "", "value greedy", "value mip", "why"), rows,
                 frozenset({"value greedy", "value mip"}))


def _gets(job: dict[str, Any]) -> str:
    from allocator.cli.tables import text

    return text(f"{job['action']} {job['gpus']} x {job['pool']}" if job["pool"] else job["action"])


def _why(greedy: dict[str, Any], mip: dict[str, Any]) -> str:
    """Of two choices that differ: the price if the worth is the same, else the reason of the one who gave less."""
    from allocator.cli.tables import text

    if greedy["value"] == mip["value"] and greedy["cost_per_hour"] != mip["cost_per_hour"]:
        cheap, dear = sorted((greedy, mip), key=lambda job: job["cost_per_hour"])
        return (f"{'mip' if cheap is mip else 'greedy'} pays {cheap['cost_per_hour']:.2f} $/h for the same, "
                f"not {dear['cost_per_hour']:.2f}")
    who, less = ("greedy", greedy) if (greedy["value"], greedy["gpus"]) <= (mip["value"], mip["gpus"]) else ("mip", mip)
    if not less["reason"]:
        more = mip if less is greedy else greedy
        return f"{who} gives it {less['gpus']} GPUs, not {more['gpus']}" if less["gpus"] != more["gpus"] else ""
    detail = (less["detail"] or "").partition("; ")[0]       # the first clause: `allocator explain` tells the rest
    return text(f"{who}: {less['reason']}" + (f": {detail}" if detail else ""))


def _totals(greedy: Result, mip: Result) -> Table:
    from allocator.cli.tables import Table, percent, text

    rows = [[r.policy, text(r.objective_value, 5), text(r.bound, 5), percent(r.gap), r.status,
             text(r.budget["spent_per_hour"]), str(sum(p["used"] for p in r.pools)),
             str(sum(1 for a in r.jobs["pool"] if a is not None)), f"{r.seconds['total']:.3f}"] for r in (greedy, mip)]
    return Table("plans", ("policy", "value", "best at most", "gap", "status", "$/h", "GPUs", "jobs", "seconds"), rows,
                 frozenset({"value", "best at most", "gap", "$/h", "GPUs", "jobs", "seconds"}))


def _closing(folder: Path, greedy: Result, mip: Result) -> list[str]:
    from allocator.cli.tables import percent

    gained = mip.objective_value - greedy.objective_value
    share = f" ({100 * gained / greedy.objective_value:+.0f} %)" if greedy.objective_value > 0 else ""
    waiting = next((n for n, r in zip(mip.jobs["job_id"], mip.jobs["reason"], strict=True) if r), mip.jobs["job_id"][0])
    here = _near(folder)
    return [f"MIP is worth {gained:.4g} more than greedy{share}; no plan can be worth more than {mip.bound:.5g} "
            f"(gap {percent(mip.gap)}, proven by {mip.bound_by}).",
            "", "try next:",
            f"  allocator solve {here}",
            f"  allocator explain {here} {waiting}",
            f"  allocator solve {here} --budget 10 --out plans"]


def _near(folder: Path) -> str:
    """The folder as a person here would type it."""
    relative = os.path.relpath(folder)
    return str(folder) if relative.startswith(os.pardir) else relative
