"""`allocator whatif`: the round decided again with some values changed, beside the round as it is."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from allocator.cli.parsing import add_effort, add_objective

if TYPE_CHECKING:
    from allocator.cli.tables import Table
    from allocator.domain.result import Result
    from allocator.domain.snapshot import Snapshot

EXAMPLES = """
allocator whatif data/snapshots/demo --set pools.a100.gpus=12                      four more GPUs
allocator whatif data/snapshots/demo --set budget_per_hour=24 --set jobs.rank.weight=2
allocator whatif data/snapshots/demo --set pools.spot.gpu_type=A100 --set pools.spot.gpus=8 --out bigger
"""
ABOUT = """\
Decide the round as it is and once more with other values; show what both plans are worth and the jobs that differ.
WHERE is a setting of config.toml (budget_per_hour, horizon.rounds) or FILE.NAME.COLUMN: pools.a100.gpus,
jobs.bert-3.weight, tenants.team-1.max_gpus. An empty value is the default. A new pool needs its gpu_type and gpus."""


def add(commands: Any) -> None:
    parser = commands.add_parser("whatif", examples=EXAMPLES, description=ABOUT,
                                 help="the round with other values, beside the round as it is")
    parser.add_argument("snapshot", metavar="SNAPSHOT", help="snapshot folder; it stays as it is")
    parser.add_argument("--set", dest="values", action="append", required=True, metavar="WHERE=VALUE",
                        help="what is changed; may be given several times")
    parser.add_argument("--policy", default="mip", metavar="NAME", help="who decides both (default: mip)")
    add_objective(parser)
    add_effort(parser)
    parser.add_argument("--out", metavar="DIR", help="write the changed snapshot there, for solve and explain")
    parser.add_argument("--format", choices=("table", "json"), default="table",
                        help="of standard output; json has both plans (default: table)")
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    from allocator import read_snapshot
    from allocator.domain.changes import changed
    from allocator.errors import Infeasible, UsageError
    from allocator.files.plans import dumps
    from allocator.files.snapshots import write_snapshot

    values: dict[str, str] = {}
    for text in args.values:
        place, sign, value = text.partition("=")
        if not sign or not place.strip():
            raise UsageError(f'--set "{text}": write WHERE=VALUE, such as pools.a100.gpus=12')
        values[place.strip()] = value.strip()
    snapshot = read_snapshot(args.snapshot)
    other = changed(snapshot, values)
    after = _decide(other, args)
    try:
        before = _decide(snapshot, args)
    except Infeasible as error:                      # perhaps why somebody asks
        before = None
        print(f"as it is: {error}", file=sys.stderr)
    for warning in after.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if args.out:
        write_snapshot(other, args.out)
    if args.format == "json":
        print(dumps({"schema_version": 1, "set": values, "before": None if before is None else before.to_dict(),
                     "after": after.to_dict()}))
    else:
        _show(values, before, after)
    return 0


def _decide(snapshot: Snapshot, args: argparse.Namespace) -> Result:
    from allocator import solve

    return solve(snapshot, policy=args.policy, objective=args.objective, solver=args.solver,
                 time_limit_s=args.time_limit, gap=args.gap, seed=args.seed, threads=args.threads)


def _show(values: dict[str, str], before: Result | None, after: Result) -> None:
    from allocator.cli import tables

    said = ", ".join(f"{place} = {value or 'default'}" for place, value in values.items())
    head = [f"snapshot {tables.text(after.snapshot)}, objective {after.objective}, with {tables.text(said)}"]
    if before is None:
        tables.show([tables.plans({"with it": after}, "plan"), *tables.decision(after)[:1]], head)
        return
    differ = _differences(before, after)
    totals = tables.plans({"as it is": before, "with it": after}, "plan")
    tables.show([totals, differ] if differ.rows else [totals], head)
    if (before.objective, before.interval_s) != (after.objective, after.interval_s):
        print("\nThe two values are no numbers of one kind: another objective, or rounds of another length.")
        return
    if not differ.rows:
        print("\nNo job gets anything else.")
        return
    gained, certain = after.objective_value - before.objective_value, 1e-9 * max(1.0, abs(before.objective_value))
    gap = max(before.bound - before.objective_value, after.bound - after.objective_value)
    if abs(gained) <= certain:
        print("\nThe plan is worth the same.")
    else:
        doubt = "" if abs(gained) > gap else f", which is less than the plans may be from the best ({gap:.2g})"
        print(f"\nThe plan is worth {abs(gained):.4g} {'more' if gained > 0 else 'less'}{doubt}.")


def _differences(before: Result, after: Result) -> Table:
    from allocator.cli.tables import Table, gets, text

    old = {job["job_id"]: job for job in before.to_dict()["jobs"]}
    rows = []
    for job in after.to_dict()["jobs"]:
        was = old.get(job["job_id"])
        if was is None or (was["pool"], was["gpus"], was["shared_with"]) != (
                job["pool"], job["gpus"], job["shared_with"]):
            rows.append([text(job["job_id"]), "-" if was is None else gets(was), gets(job),
                         "-" if was is None else text(was["value"]), text(job["value"]), text(job["reason"] or "")])
    return Table(f"jobs that differ ({len(rows)} of {len(after.jobs['job_id'])})",
                 ("job", "as it is", "with it", "value", "then", "reason"), rows, frozenset({"value", "then"}))
