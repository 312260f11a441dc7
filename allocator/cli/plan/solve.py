"""`allocator solve`: one decision per snapshot folder."""

from argparse import Namespace
from functools import partial
from pathlib import Path

from allocator import UsageError, read_snapshot
from allocator.cli.output import Answer, tell_details, warn
from allocator.cli.parsing import read_limits, take
from allocator.cli.plan.batch import batch, decide_folder
from allocator.cli.plan.plan_show import log_lines, show_plan
from allocator.cli.progress import Progress
from allocator.engine.advice.trials import SolveCommand
from allocator.io import plans
from allocator.io.performance_models import check_format, write_model
from allocator.options.instance_building import compile_round
from allocator.policies.base import policy
from allocator.solvers.registry import find


def solve(args: Namespace) -> Answer | int:
    policy(args.policy)
    find(args.solver)
    if args.write_model:
        check_format(args.write_model)
    if len(args.snapshots) == 1:
        return _one(args)
    for name, given in (("--log", args.log), ("--write-model", args.write_model)):
        if given:
            raise UsageError(f"{name} takes one snapshot, this is a batch")
    command = take(SolveCommand, args, limits=read_limits(args, log=False))
    return batch(args.snapshots, command, args.out, args.format, args.jobs)


def _one(args: Namespace) -> Answer:
    (folder,) = args.snapshots
    progress = Progress(is_valued=args.policy == "mip")
    limits = read_limits(args, log=bool(args.log), watch=progress)
    command = take(SolveCommand, args, limits=limits)
    if args.write_model:
        write_model(
            compile_round(command.problem(read_snapshot(folder), {})).model, args.write_model
        )
    with progress.shown("solve"):
        result = decide_folder(folder, command)
    warn(result.warnings)
    log = log_lines(result, progress.notes)
    tell_details(*log)
    if args.out:
        plans.write_plan(result, args.out)
    if args.log:
        path = Path(args.log)
        plans.write_files(path.parent, {path.name: "\n".join(log) + "\n"})
    return Answer(
        partial(plans.to_json, result),
        show_plan(result, args.reasons),
        partial(plans.to_csv, result),
    )
