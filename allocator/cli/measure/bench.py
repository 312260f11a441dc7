"""`allocator bench`: measure resumably, and report."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.measure.bench_policies import RUN_OR_REPORT, policies
from allocator.cli.output import note, progress_bar, show_result
from allocator.cli.parsing import (
    CommandGroup,
    command,
    duration,
    number,
    option,
    parse_integer,
    words,
)

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
`report` draws the pictures too."""


@command(
    "solvers",
    "time to proven gaps, memory",
    ABOUT,
    SOLVER_EXAMPLES,
    RUN_OR_REPORT,
    option(
        "--engines",
        "A,B",
        "auto, highs, cpsat, pulp, marginal, greedy (default: these), a module",
        words,
        words("auto,highs,cpsat,pulp,marginal,greedy"),
    ),
    option(
        "--sizes",
        "A,B",
        "S, M, L, XL, XXL or JOBSxGPUSxTYPES (default: S,M,L; none with --files)",
        words,
    ),
    option("--seeds", "N", "seeds 0 .. N-1 (default: 3)", parse_integer(1, 10_000), 3),
    option(
        "--rules",
        "A,B",
        "standard (20 tenants; default), tenants (100), all (every rule)",
        words,
        ("standard",),
    ),
    option(
        "--rounds",
        "A,B",
        "cold (default), warm: the next round, given what the engine found for this one",
        words,
        ("cold",),
    ),
    option(
        "--files",
        "FILE",
        "models too: neutral .npz files, saved rounds of Sia, published knapsacks and assignments",
        default=(),
        nargs="+",
    ),
    option("--limit", "TIME", "wall seconds per run (default: 60)", duration(0.01), 60.0),
    option("--gap", "G", "relative gap asked for (default: 1e-4)", number(), 1e-4),
    option("--threads", "N", "threads of a solver (default: 1)", parse_integer(1, 1024), 1),
    option(
        "--out",
        "DIR",
        "folder of the results (default: bench-solvers)",
        default="bench-solvers",
    ),
)
def solvers(args: argparse.Namespace) -> int:
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
    from allocator.bench.solvers.records import summary
    from allocator.bench.solvers.run import run_all

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


def report(folder: str, pictures: bool) -> str:
    """Write tables.md, and the pictures if wanted; return the tables."""
    from allocator.io.plans import write_files
    from allocator.report.solvers.results import markdown, read_results

    results = read_results(folder)
    text = markdown(results)
    write_files(Path(folder), {"tables.md": text})
    if pictures:
        from allocator.report.solvers.page import write_pictures

        note(*map(str, write_pictures(results, folder)))
    return text


bench = CommandGroup(
    "bench",
    "measure policies and solvers",
    "Measure policies and solvers.",
    EXAMPLES,
    (policies, solvers),
    title="what",
    metavar="WHAT",
)
