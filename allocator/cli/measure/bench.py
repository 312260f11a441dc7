"""`allocator bench`: simulations of policies, or solvers, on a grid, resumably; and reports."""

import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from allocator import UsageError
from allocator.bench.paired import FEWEST_SEEDS, LEVEL
from allocator.bench.solvers.runs import START_S, grid as solver_grid, late_s
from allocator.bench.solvers.tables import write_runs
from allocator.bench.sweep.executors import TaskExecutor, TaskOutcome, on_processes
from allocator.bench.sweep.store import SweepStore, sweep
from allocator.bench.sweep.tables import write_tables
from allocator.bench.sweep.tasks import LEAST, SweepTask, grid, has_seeds, source_of_folder
from allocator.bench.workloads import GENERATORS, generate
from allocator.cli.output import Answer, note, progress_bar, warn
from allocator.cli.parsing import take
from allocator.engine.decision import override_settings
from allocator.io.plans import write_files
from allocator.policies.base import policy
from allocator.report.measures import duration
from allocator.report.policies import write_policy_report
from allocator.report.solvers import markdown, read_results, write_pictures
from allocator.simulator import SimulationOptions
from allocator.solvers.registry import find

RUNNER = "allocator.bench.solvers.runner:run"


def policies(args: Namespace) -> Answer:

    tasks = None if args.what == "report" else parse_tasks(args)
    executor = build_executor(args)
    with SweepStore(args.out) as store:
        if tasks is None:
            tasks, baseline = store.last_request()
            code = 0
        else:
            baseline = args.baseline
            store.save_request(tasks, baseline)
            code = run(tasks, store, executor)
        text = write_tables(store, tasks, baseline)
        page = write_policy_report(store.folder)
    document = {"folder": str(store.folder), "report": str(page), "tables": text}
    return Answer(document, text, exit_code=code, notes=[str(page)])


def parse_tasks(args: Namespace) -> list[SweepTask]:
    """Return the tasks of the command line.

    Raises UsageError for invalid names and values, before any task runs.
    """

    compared = list(dict.fromkeys((args.baseline, *args.policies)))
    for name in compared:
        if name != LEAST:
            policy(name)
    find(args.solver)
    override_settings(
        generate("reproduction", jobs=1).workload().problem,
        args.objective,
        args.budget,
        args.horizon,
    )
    options = take(SimulationOptions, args)
    workloads = sources(args.workloads, args.loads, args.jobs_per_workload)
    differs = [has_seeds(source, options) for source in workloads]
    if args.seeds > 1 and not all(differs):
        note(
            "folders are simulated once: without --misjudged, --noise or --failures, and without"
            " hazards of spot pools, every seed would be the same"
        )
    if 1 < args.seeds < FEWEST_SEEDS and any(differs):
        note(
            f"with {args.seeds} seeds every difference will stay open, because the paired test"
            f" cannot give p below {LEVEL:g}: --seeds {FEWEST_SEEDS} or more can tell"
        )
    return grid(workloads, compared, args.seeds, options)


def sources(
    names: Sequence[str], loads: Sequence[float] | None, jobs: int | None
) -> list[SweepTask]:
    """Return every workload, at each of its loads.

    Raises UsageError for a workload that does not exist, and for loads if there are only folders.
    """

    workloads: list[SweepTask] = []
    for name in dict.fromkeys(names):
        if name in GENERATORS:
            generator = GENERATORS[name]
            each = dict.fromkeys(loads or generator.loads)
            workloads += (SweepTask(name, load, jobs=jobs or generator.jobs) for load in each)
        elif Path(name).is_dir():
            workloads.append(source_of_folder(name))
        else:
            raise UsageError(
                f'"{name}" is neither a generator of workloads ({", ".join(GENERATORS)}) nor a'
                " folder"
            )
    if (loads or jobs) and any(source.digest for source in workloads):
        if all(source.digest for source in workloads):
            raise UsageError(
                "--loads and --jobs-per-workload are for generators; a folder is simulated as it is"
            )
        note(
            "--loads and --jobs-per-workload do not change folders: they are simulated as they are"
        )
    return workloads


def build_executor(args: Namespace) -> TaskExecutor:
    """Return the executor that the options ask for."""

    if args.executor == "processes":
        if args.scheduler:
            raise UsageError("--scheduler needs --executor dask")
        return on_processes(args.workers, limit_s=args.task_limit)
    if not args.scheduler:
        raise UsageError("--executor dask needs --scheduler ADDRESS")
    if args.workers:
        raise UsageError(
            "--workers is for --executor processes; a Dask cluster has the workers it has"
        )

    from allocator.bench.sweep.executors import on_dask

    return on_dask(args.scheduler, limit_s=args.task_limit)


def run(tasks: Sequence[SweepTask], store: SweepStore, executor: TaskExecutor) -> int:
    """Run what is missing; return the exit code, 1 if a task failed.

    Standard error has how much is missing, a line per task with how much is left, and a bar.
    """

    there = sum(map(store.is_done, tasks))
    note(f"{len(tasks)} tasks" + (f", {there} of them are there" if there else ""))
    begin, count = time.monotonic(), 0
    with progress_bar(is_counted=True) as progress:
        bar = progress.add_task("", total=len(tasks), completed=there)

        def tell(task: SweepTask, outcome: TaskOutcome) -> None:
            nonlocal count
            count += 1
            progress.advance(bar)
            left = len(tasks) - there - count
            each_s = (time.monotonic() - begin) / count
            note(
                f"{there + count} of {len(tasks)}: {describe_task(task, outcome)}"
                + (f"; about {duration(left * each_s)} left" if left else "")
            )

        try:
            failed = sweep(tasks, store, executor, tell)
        # Ctrl-C, SIGTERM or a full disk: the caller reports which
        except BaseException:
            note(f"the same command goes on after {there + count} of {len(tasks)}")
            raise
    if failed:
        warn(
            [
                f"{len(failed)} of {len(tasks)} tasks failed; why is in {store.failed}, and the"
                " next call tries them again"
            ]
        )
    return 1 if failed else 0


def describe_task(task: SweepTask, outcome: TaskOutcome) -> str:
    """Return a finished task as a line."""
    if outcome.failure:
        return ": ".join([f"{task}: FAILED, {outcome.failure}", *outcome.words.splitlines()[-1:]])
    return f"{task}: {outcome.seconds:.1f} s"


def solvers(args: Namespace) -> Answer:
    code = 0
    if args.what == "run":
        sizes = args.sizes or (() if args.files else ("S", "M", "L"))
        how = {"gap_asked": args.gap, "limit_s": args.limit, "threads": args.threads}
        axes = (args.engines, sizes, args.seeds, args.rules, args.rounds, args.files)
        tasks = solver_grid(*axes, **how)
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
