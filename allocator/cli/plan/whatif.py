"""`allocator whatif`: decide the round again with some values changed, and compare."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from allocator.cli.output import note, print_json, warn
from allocator.cli.parsing import add_effort, add_folder_or_queue, add_format, add_objective

if TYPE_CHECKING:
    from allocator.cli.tables import Table
    from allocator.domain.plan import Plan
    from allocator.engine.whatif import Comparison

EXAMPLES = """
allocator whatif data/snapshots/demo --set pools.a100.gpus=12                      four more GPUs
allocator whatif data/snapshots/demo --set budget_per_hour=24 --set jobs.rank.weight=2
allocator whatif data/snapshots/demo --set pools.spot.gpu_type=A100 --set pools.spot.gpus=8 --out \
bigger
allocator whatif data/snapshots/demo --submit data/examples/submit/train.sbatch     a new job
"""
ABOUT = """\
Decide the round as it is and once more with other values; show the jobs that differ, what both
plans are valued in one scale, the hours of work and the dollars; and where nothing changes, which
limits bind. WHERE is a setting of config.toml (budget_per_hour, horizon.rounds) or
FILE.NAME.COLUMN: pools.a100.gpus, jobs.bert-3.weight, tenants.team-1.max_gpus. An empty value is
the default. A new pool needs its gpu_type and gpus. With --submit: when a job would start that is
not there yet, whom it would push away, and what would make it start sooner."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "whatif",
        examples=EXAMPLES,
        description=ABOUT,
        help="the round with other values, against the round as it is",
    )
    add_folder_or_queue(parser, "SNAPSHOT", "snapshot folder, which stays as it is")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--set",
        dest="values",
        action="append",
        metavar="WHERE=VALUE",
        help="what is changed; may be given several times",
    )
    what.add_argument(
        "--submit",
        metavar="FILE",
        help="a new job: sbatch script, manifest of a Kubernetes Job, JobSet, PyTorchJob or RayJob,"
        " or CSV file with one row of jobs.csv",
    )
    parser.add_argument(
        "--policy", default="mip", metavar="NAME", help="who decides both (default: mip)"
    )
    add_objective(parser)
    add_effort(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="write the changed snapshot there, for solve and explain"
    )
    add_format(parser, "table", "json", about="json has both plans")
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    from allocator.cli.models.sources import read_source
    from allocator.cli.plan.submission import call_submit
    from allocator.domain.changes import changed
    from allocator.engine.advice.trials import SolveCommand
    from allocator.engine.decision import explain_decision
    from allocator.engine.whatif import compare
    from allocator.errors import Infeasible, UsageError
    from allocator.io.snapshots import write_snapshot
    from allocator.solvers.base import SolveLimits

    snapshot = read_source(args.folder_or_queue)
    command = SolveCommand(
        args.policy,
        args.objective,
        solver=args.solver,
        limits=SolveLimits(args.time_limit, args.gap, args.threads, args.seed),
    )
    if args.submit is not None:
        return call_submit(args, snapshot, command)
    values: dict[str, str] = {}
    for text in args.values:
        place, sign, value = text.partition("=")
        if not sign or not place.strip():
            raise UsageError(f'--set "{text}": write WHERE=VALUE, such as pools.a100.gpus=12')
        values[place.strip()] = value.strip()
    other = changed(snapshot, values)
    problem = command.problem(other, {})
    after = command.decide(problem)
    try:
        as_is = command.problem(snapshot, {})
        before = command.decide(as_is)
    except Infeasible as error:  # this may be the answer that the user looks for
        before = None
        note(f"as it is: {error}")
    warn(problem.warnings)
    if args.out:
        write_snapshot(other, args.out)
    comparison = None if before is None else compare(before, after, values)
    how = {"policy": args.policy, "solver": args.solver, "limits": command.limits}
    result = explain_decision(problem, after, **how)
    if args.format == "json":
        old = None if before is None else explain_decision(as_is, before, **how).to_dict()
        print_json(
            {
                "set": values,
                "before": old,
                "after": result.to_dict(),
                "comparison": None if comparison is None else comparison.to_dict(),
            }
        )
    else:
        _show(values, result, comparison)
    return 0


def _show(values: dict[str, str], after: Plan, comparison: Comparison | None) -> None:
    from allocator.cli import tables
    from allocator.cli.plan.differences import differences

    said = ", ".join(f"{place} = {value or 'default'}" for place, value in values.items())
    head = [
        f"snapshot {tables.text(after.snapshot)}, objective {after.objective}, "
        f"with {tables.text(said)}"
    ]
    if comparison is None:
        tables.show(
            [tables.plans({"with it": after}, "plan"), tables.jobs_table(after.jobs, after.now_s)],
            head,
        )
        return
    totals = _totals(comparison)
    tables.show([totals, differences(comparison, after)] if comparison.jobs else [totals], head)
    print("", *comparison.lines(), sep="\n")


def _totals(c: Comparison) -> Table:
    """Return both plans, a row each, with their values on one scale."""
    from allocator.cli.tables import Table, text

    rows = [
        [
            name,
            text(c.value[n], 5),
            text(c.work_h[n]),
            text(c.dollars[n]),
            str(c.gpus[n]),
            str(c.running[n]),
        ]
        for n, name in enumerate(("as it is", "with it"))
    ]
    columns = ("plan", "value", "hours of work", "$/h", "GPUs", "jobs")
    return Table(f"plans, both valued {c.scale}", columns, rows, frozenset(columns[1:]))
