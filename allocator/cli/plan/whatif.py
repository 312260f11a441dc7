"""`allocator whatif`: decide the round again with some values changed, and compare."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from allocator.cli.models.sources import read_source
from allocator.cli.output import note, print_json, warn
from allocator.cli.parsing import (
    command,
    effort,
    folder_or_queue,
    formats,
    objective,
    one_of,
    option,
    pair,
    repeated,
)
from allocator.cli.plan.plan_show import differences, jobs_table, plans
from allocator.cli.tables import Table, show, text
from allocator.errors import Infeasible, InvalidInput

if TYPE_CHECKING:
    from allocator.domain.plan import Plan
    from allocator.domain.snapshot import Snapshot
    from allocator.engine.advice.trials import SolveCommand
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


@command(
    "whatif",
    "the round with other values, against the round as it is",
    ABOUT,
    EXAMPLES,
    folder_or_queue("SNAPSHOT", "snapshot folder, which stays as it is"),
    one_of(
        repeated(
            "--set",
            "WHERE=VALUE",
            "what is changed; may be given several times",
            type=pair("WHERE=VALUE, such as pools.a100.gpus=12", str.strip),
            dest="values",
            default=None,
        ),
        option(
            "--submit",
            "FILE",
            "a new job: sbatch script, manifest of a Kubernetes Job, JobSet, PyTorchJob or RayJob,"
            " or CSV file with one row of jobs.csv",
        ),
        is_required=True,
    ),
    option("--policy", "NAME", "who decides both (default: mip)", default="mip"),
    objective(),
    effort(),
    option("--out", "DIR", "write the changed snapshot there, for solve and explain"),
    formats("table", "json", about="json has both plans"),
)
def call(args: argparse.Namespace) -> int:
    from allocator.domain.changes import changed
    from allocator.engine.advice.trials import SolveCommand
    from allocator.engine.whatif import compare
    from allocator.io.snapshots import write_snapshot
    from allocator.solvers.base import SolveLimits

    snapshot = read_source(args.folder_or_queue)
    command = SolveCommand(
        args.policy,
        args.objective,
        solver=args.solver,
        limits=SolveLimits(args.time_limit_s, args.gap, args.threads, args.seed),
    )
    if args.submit is not None:
        return _submit(args, snapshot, command)
    values = dict(args.values)
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
    result = command.plan(problem, after)
    if args.format == "json":
        old = None if before is None else command.plan(as_is, before).to_dict()
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
    said = ", ".join(f"{place} = {value or 'default'}" for place, value in values.items())
    head = [f"snapshot {text(after.snapshot)}, objective {after.objective}, with {text(said)}"]
    if comparison is None:
        show([plans({"with it": after}, "plan"), jobs_table(after.jobs, after.now_s)], head)
        return
    totals = _totals(comparison)
    if not comparison.jobs:
        show([totals], head)
    else:
        show([totals, differences(comparison, after)], [comparison.answer, *head])
    print("", *comparison.lines(), sep="\n")


def _totals(c: Comparison) -> Table:
    """Return both plans, a row each, with their values on one scale."""
    rows = [
        (name, text(c.value[n], 5), c.work_h[n], c.dollars[n], c.gpus[n], c.running[n])
        for n, name in enumerate(("as it is", "with it"))
    ]
    columns = ("plan", ">value", ">hours of work", ">$/h", ">GPUs", ">jobs")
    return Table(f"plans, both valued {c.scale}", columns, rows)


def _submit(args: argparse.Namespace, snapshot: Snapshot, command: SolveCommand) -> int:
    """Answer when the job of a file would start, and whom it would push away."""
    from allocator.clusters.submission.read import read_new_job
    from allocator.engine.advice.submission import submit, with_job
    from allocator.io.snapshots import write_snapshot

    place = Path(args.folder_or_queue)
    problem = command.problem(snapshot, {})
    job = read_new_job(
        Path(args.submit), snapshot, place if place.is_dir() else None, problem.now_s
    )
    other = with_job(snapshot, job.row)
    try:
        with_other = command.problem(other, {})
    except InvalidInput as error:
        raise InvalidInput(job.locate(error.faults, other), error.warnings) from None
    warn(with_other.warnings)
    done, before, after = submit(problem, other, with_other, command)
    note(*(f"{args.submit}: {line}" for line in job.notes))
    if args.out:
        write_snapshot(other, args.out)
    if args.format == "json":
        print_json(
            {
                "submit": {"file": args.submit, "job": dict(job.row), "notes": list(job.notes)},
                "before": command.plan(problem, before).to_dict(),
                "after": command.plan(with_other, after).to_dict(),
                **done.to_dict(),
            }
        )
        return 0
    print(done.answer)
    if done.comparison.jobs:
        show([differences(done.comparison, done.plan)])
    print(*done.lines(), sep="\n")
    return 0
