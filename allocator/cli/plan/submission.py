"""`allocator whatif --submit`: a job that is not there yet, read, decided and told."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from allocator.cli.output import note, print_json, warn

if TYPE_CHECKING:
    from allocator.domain.snapshot import Snapshot
    from allocator.engine.advice.trials import SolveCommand


def call_submit(args: argparse.Namespace, snapshot: Snapshot, command: SolveCommand) -> int:
    """Answer when the job of a file would start, and whom it would push away."""
    from allocator.cli import tables
    from allocator.cli.plan.differences import differences
    from allocator.clusters.submission.read import read_new_job
    from allocator.engine.advice.submission import submit, with_job
    from allocator.engine.decision import explain_decision
    from allocator.errors import InvalidInput
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
    note(*(f"{args.submit}: {text}" for text in job.notes))
    if args.out:
        write_snapshot(other, args.out)
    how = {"policy": args.policy, "solver": args.solver, "limits": command.limits}
    plan = explain_decision(with_other, after, **how)
    if args.format == "json":
        print_json(
            {
                "submit": {"file": args.submit, "job": dict(job.row), "notes": list(job.notes)},
                "before": explain_decision(problem, before, **how).to_dict(),
                "after": plan.to_dict(),
                **done.to_dict(),
            }
        )
        return 0
    print(done.answer)
    if done.comparison.jobs:
        tables.show([differences(done.comparison, plan)], [])
    print(*done.lines(), sep="\n")
    return 0
