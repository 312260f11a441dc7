"""`allocator bench`: measure resumably, and report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.measure import bench_policies
from allocator.cli.output import note, progress_console, show_result
from allocator.cli.parsing import duration, number, parse_integer, show_help_alone, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.bench.solvers.runs import SolverRun

EXAMPLES = """
allocator bench policies --loads 0.3,0.36 --policies greedy,mip --seeds 10 --out results
allocator bench solvers --sizes S,M --seeds 2 --limit 10 --out results
allocator bench solvers report --out results
"""
SOLVER_EXAMPLES = """
allocator bench solvers --sizes S,M,L --rules standard,all --seeds 3 --limit 20 --out results
allocator bench solvers --files round.npz --engines auto,highs --out results
allocator bench solvers report --out results            pictures and tables of what is there
"""
ABOUT = """\
Run every engine on every instance, each in a process of its own that is killed some time after the
limit. Rows go to OUT/runs.csv (and plans and bounds over time to OUT/trace.csv); what is there is
not run again. Then, or with `report` alone, the tables go to standard output and OUT/tables.md;
`report` draws the pictures too (extra `plots`)."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        examples=EXAMPLES,
        help="measure policies and solvers",
        description="Measure policies and solvers.",
    )
    show_help_alone(parser)
    kinds = parser.add_subparsers(title="what", metavar="WHAT", parser_class=type(parser))
    bench_policies.add(kinds)
    solvers = kinds.add_parser(
        "solvers", examples=SOLVER_EXAMPLES, help="time to proven gaps, memory", description=ABOUT
    )
    solvers.add_argument(
        "what", nargs="?", choices=("run", "report"), default="run", help="run (default) or report"
    )
    solvers.add_argument(
        "--engines",
        type=words,
        default=words("auto,highs,cpsat,pulp,marginal,greedy"),
        metavar="A,B",
        help="auto, highs, cpsat, pulp, marginal, greedy (default: these), a module",
    )
    solvers.add_argument(
        "--sizes",
        type=words,
        metavar="A,B",
        help="S, M, L, XL, XXL or JOBSxGPUSxTYPES (default: S,M,L; none with --files)",
    )
    solvers.add_argument(
        "--seeds",
        type=parse_integer(1, 10_000),
        default=3,
        metavar="N",
        help="seeds 0 .. N-1 (default: 3)",
    )
    solvers.add_argument(
        "--rules",
        type=words,
        default=("standard",),
        metavar="A,B",
        help="standard (20 tenants; default), tenants (100), all (every rule)",
    )
    solvers.add_argument(
        "--rounds",
        type=words,
        default=("cold",),
        metavar="A,B",
        help="cold (default), warm: the next round, given what the engine found for this one",
    )
    solvers.add_argument(
        "--files",
        nargs="+",
        default=(),
        metavar="FILE",
        help="models too: neutral .npz files or saved rounds of Sia",
    )
    solvers.add_argument(
        "--limit",
        type=duration(0.01),
        default=60.0,
        metavar="TIME",
        help="wall seconds per run (default: 60)",
    )
    solvers.add_argument(
        "--gap",
        type=number(),
        default=1e-4,
        metavar="G",
        help="relative gap asked for (default: 1e-4)",
    )
    solvers.add_argument(
        "--threads",
        type=parse_integer(1, 1024),
        default=1,
        metavar="N",
        help="threads of a solver (default: 1)",
    )
    solvers.add_argument(
        "--out",
        default="bench-solvers",
        metavar="DIR",
        help="folder of the results (default: bench-solvers)",
    )
    solvers.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    if args.what == "run":
        from allocator.bench.solvers.records import MeasurementStore
        from allocator.bench.solvers.runs import grid

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
        measure_all(runs, MeasurementStore(args.out))
    tables = report(args.out, pictures=args.what == "report")
    show_result(
        args.format,
        {"folder": args.out, "tables": tables},
        lambda: print(tables, end=""),
    )
    return 0


def measure_all(runs: Sequence[SolverRun], store: Any) -> None:
    """Measure what is missing, with a bar and a line per measurement on standard error."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from allocator.bench.solvers.records import summary
    from allocator.bench.solvers.run import run_all

    console = progress_console()
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    finished = store.finished()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(
            "", total=len(runs), completed=sum(run.key in finished for run in runs)
        )

        def tell(run: SolverRun, row: dict[str, object] | None) -> None:
            progress.update(
                task,
                description=f"{run.engine} {Path(run.instance).name} {run.rules} seed {run.seed}",
            )
            if row is not None:
                progress.advance(task)
                console.print(summary(row), markup=False, soft_wrap=True)

        run_all(runs, store, tell)


def report(folder: str, pictures: bool) -> str:
    """Write tables.md, and the pictures if wanted; return the tables."""
    from allocator.io.plans import write_files
    from allocator.report.solvers.results import read_results
    from allocator.report.solvers.table import markdown

    results = read_results(folder)
    text = markdown(results)
    write_files(Path(folder), {"tables.md": text})
    if pictures:
        from allocator.report.solvers.pictures import draw

        note(*map(str, draw(results, folder)))
    return text
