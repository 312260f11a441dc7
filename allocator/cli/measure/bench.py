"""`allocator bench solvers`: measure solvers resumably, and report."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from allocator.bench.solvers.records import MeasurementStore, run_all, summary
from allocator.bench.solvers.runs import SolverRun, grid
from allocator.cli.output import Answer, note, progress_bar
from allocator.io.plans import write_files
from allocator.report.solvers.page import write_pictures
from allocator.report.solvers.results import markdown, read_results


def solvers(args: Namespace) -> Answer:
    if args.what == "run":
        sizes = args.sizes or (() if args.files else ("S", "M", "L"))
        runs = grid(
            args.engines,
            sizes,
            args.seeds,
            args.rules,
            files=args.files,
            gap=lambda size, rules: args.gap,
            limit_s=args.limit,
            threads=args.threads,
            rounds=args.rounds,
        )
        measure_all(runs, args.out)
    results = read_results(args.out)
    tables = markdown(results)
    write_files(Path(args.out), {"tables.md": tables})
    if args.what == "report":
        note(*map(str, write_pictures(results, args.out)))
    return Answer({"folder": args.out, "tables": tables}, tables)


def measure_all(runs: Sequence[SolverRun], folder: str) -> None:
    """Measure what is missing, with a bar and a line per measurement on standard error."""
    store = MeasurementStore(folder)
    finished = store.finished()
    there = sum(run.key in finished for run in runs)
    with progress_bar(is_counted=True) as progress:
        task = progress.add_task("", total=len(runs), completed=there)

        def tell(run: SolverRun, row: dict[str, object] | None) -> None:
            progress.update(
                task,
                description=f"{run.engine} {Path(run.instance).name} {run.rules} seed {run.seed}",
            )
            if row is not None:
                progress.advance(task)
                note(summary(row))

        run_all(runs, store, tell)
