"""`allocator bench solvers`: measure solvers resumably, and report."""

from argparse import Namespace
from pathlib import Path

from allocator.bench.solvers.runs import START_S, grid, late_s
from allocator.bench.solvers.tables import write_runs
from allocator.bench.sweep.executors import on_processes
from allocator.bench.sweep.store import SweepStore
from allocator.cli.measure.bench_policies import run
from allocator.cli.output import Answer, note
from allocator.io.plans import write_files
from allocator.report.solvers import markdown, read_results, write_pictures

RUNNER = "allocator.bench.solvers.runner:run"


def solvers(args: Namespace) -> Answer:
    code = 0
    if args.what == "run":
        sizes = args.sizes or (() if args.files else ("S", "M", "L"))
        how = {"gap_asked": args.gap, "limit_s": args.limit, "threads": args.threads}
        asked = (args.engines, sizes, args.seeds, args.rules, args.rounds, args.files)
        tasks = grid(*asked, **how)
        # a warm measurement solves a round before
        executor = on_processes(1, RUNNER, START_S + 2.0 * late_s(args.limit))
        with SweepStore(args.out) as store:
            code = run(tasks, store, executor)
            write_runs(store)
    results = read_results(args.out)
    tables = markdown(results)
    write_files(Path(args.out), {"tables.md": tables})
    if args.what == "report":
        note(*map(str, write_pictures(results, args.out)))
    return Answer({"folder": args.out, "tables": tables}, tables, exit_code=code)
