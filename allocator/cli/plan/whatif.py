"""`allocator explain` and `whatif`: why a job got what it got, and what other values change."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from allocator import Comparison, Infeasible, InvalidInput, Plan, Snapshot, changed, validate
from allocator.cli.output import Answer, Table, Values, note, text, text_of, warn
from allocator.cli.parsing import read_limits, take
from allocator.cli.plan.plan_show import differences, jobs_table, plans
from allocator.cli.sources import read_source
from allocator.engine.advice.submission import submit, with_job
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.explain import explain as find_reasons
from allocator.engine.whatif import compare
from allocator.io.snapshots import write_snapshot


def explain(args: Namespace) -> Answer:
    snapshot = read_source(args.folder_or_queue)
    warn(validate(snapshot).warnings)
    command = take(SolveCommand, args, limits=read_limits(args))
    explanation = find_reasons(snapshot, args.job, command, tries=args.tries)
    return Answer(explanation.to_dict(), text_of(explanation.lines()))


def whatif(args: Namespace) -> Answer:
    snapshot = read_source(args.folder_or_queue)
    command = take(SolveCommand, args, limits=read_limits(args))
    if args.submit is not None:
        return _submit(args, snapshot, command)
    values = dict(args.values)
    other = changed(snapshot, values)
    problem = command.problem(other, {})
    after = command.decide(problem)
    before = comparison = None
    try:
        as_is = command.problem(snapshot, {})
        before = command.decide(as_is)
        comparison = compare(before, after, values)
    except Infeasible as error:  # this may be the answer that the user looks for
        note(f"as it is: {error}")
    warn(problem.warnings)
    if args.out:
        write_snapshot(other, args.out)
    result = command.plan(problem, after)

    def document() -> Values:
        return {
            "set": values,
            "before": None if before is None else command.plan(as_is, before).to_dict(),
            "after": result.to_dict(),
            "comparison": None if comparison is None else comparison.to_dict(),
        }

    return Answer(document, _show(values, result, comparison))


def _show(
    values: dict[str, str], after: Plan, comparison: Comparison | None
) -> Iterator[str | Table]:
    changes = ", ".join(f"{place} = {value or 'default'}" for place, value in values.items())
    head = f"snapshot {text(after.snapshot)}, objective {after.objective}, with {text(changes)}"
    if comparison is None:
        yield from (head, plans({"with it": after}, "plan"), jobs_table(after.jobs, after.now_s))
        return
    if comparison.jobs:
        yield comparison.answer
    yield from (head, _totals(comparison))
    if comparison.jobs:
        yield differences(comparison, after)
    yield "\n".join(["", *comparison.lines()])


def _totals(c: Comparison) -> Table:
    """Return both plans, a row each, with their values on one scale."""
    rows = [
        (name, text(c.value[n], 5), c.work_h[n], c.dollars[n], c.gpus[n], c.running[n])
        for n, name in enumerate(("as it is", "with it"))
    ]
    columns = ("plan", ">value", ">hours of work", ">$/h", ">GPUs", ">jobs")
    return Table(f"plans, both valued {c.scale}", columns, rows)


def _submit(args: Namespace, snapshot: Snapshot, command: SolveCommand) -> Answer:
    """Answer when the job of a file would start, and whom it would push away."""
    from allocator.clusters.submission.read import read_new_job

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

    def document() -> Values:
        return {
            "submit": {"file": args.submit, "job": dict(job.row), "notes": list(job.notes)},
            "before": command.plan(problem, before).to_dict(),
            "after": command.plan(with_other, after).to_dict(),
            **done.to_dict(),
        }

    differs = [differences(done.comparison, done.plan)] if done.comparison.jobs else []
    return Answer(document, [done.answer, *differs, "\n".join(done.lines())])
