"""`allocator bench policies`: simulate a grid of tasks resumably, compare, and report."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.output import note, progress_console, show_result, warn
from allocator.cli.parsing import (
    add_objective,
    add_settings,
    duration,
    number,
    parse_integer,
    words,
)
from allocator.domain.schema.columns import SIZES, SPEEDS
from allocator.solvers.effort import GAP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.bench.sweep.executors import TaskExecutor, TaskOutcome
    from allocator.bench.sweep.store import SweepStore
    from allocator.bench.sweep.sweep import SweepSummary
    from allocator.bench.sweep.tasks import SweepTask, WorkloadSource

EXAMPLES = """
allocator bench policies --workloads bursty --loads 1 --jobs-per-workload 40 --policies las,mip \
--seeds 6 --out results
allocator bench policies --workloads reproduction --loads 0.3,0.36 --policies greedy,mip --seeds \
10 --out results
allocator bench policies --workloads bursty,data/workloads/demo --loads 1 --policies las,srtf,mip \
--out results
allocator bench policies --executor dask --scheduler tcp://head:8786 --seeds 10 --out results
allocator bench policies report --out results           tables and report of what is there
"""
ABOUT = """\
Simulate every policy on every workload at every load with every seed, each task in a process of its
own. Finished tasks are kept in OUT/tasks; what is there is not run again, what failed is tried
again by the next call. Then results and paired differences from the baseline go to OUT/*.csv,
OUT/report.html and, as a table, to standard output."""


def add(kinds: Any) -> None:
    """Add `policies` below `bench`."""
    parser = kinds.add_parser(
        "policies",
        examples=EXAMPLES,
        help="simulate policies, compare with intervals",
        description=ABOUT,
    )
    parser.add_argument(
        "what", nargs="?", choices=("run", "report"), default="run", help="run (default) or report"
    )
    grid = parser.add_argument_group("grid")
    grid.add_argument(
        "--workloads",
        type=words,
        default=("reproduction",),
        metavar="A,B",
        help="generators or folders (default: reproduction)",
    )
    grid.add_argument(
        "--loads",
        type=_loads,
        metavar="X,Y",
        help="loads of the generators (default: each one's own); a folder is simulated as it is",
    )
    grid.add_argument(
        "--policies",
        type=words,
        default=words("greedy,mip"),
        metavar="A,B",
        help="default: greedy,mip",
    )
    grid.add_argument(
        "--seeds",
        type=parse_integer(1, 100_000),
        default=3,
        metavar="N",
        help=(
            "seeds 0 .. N-1 of generator and simulation; a folder in a world without chance has "
            "one (default: 3; significance needs 6 or more)"
        ),
    )
    grid.add_argument(
        "--jobs-per-workload",
        type=parse_integer(1),
        metavar="N",
        help="default: the generator's own",
    )
    grid.add_argument(
        "--baseline",
        default="greedy",
        metavar="P",
        help="what the others are compared with; run too (default: greedy)",
    )
    asked = parser.add_argument_group("decisions and rounds")
    add_objective(asked, "the workload's own")
    asked.add_argument("--gap", type=number(), default=GAP, metavar="G", help=f"default: {GAP:g}")
    asked.add_argument(
        "--time-limit",
        type=duration(infinite=True),
        default=math.inf,
        metavar="TIME",
        help="seconds per decision (default: none); with one, results depend on the machine",
    )
    asked.add_argument(
        "--solver", default="auto", metavar="NAME", help="of policy mip (default: auto)"
    )
    add_settings(asked, "the workload's", "budget", "ageing", "horizon", "interval")
    asked.add_argument(
        "--react",
        type=duration(1e-3),
        default=math.inf,
        metavar="TIME",
        help="arrivals and completions cause early rounds, at least TIME after the one before",
    )
    asked.add_argument(
        "--announce",
        type=duration(infinite=True),
        default=0.0,
        metavar="TIME",
        help=("changes of capacity and prices are in the snapshots TIME ahead (default: 0, never)"),
    )
    asked.add_argument(
        "--prove",
        type=parse_integer(0),
        default=1,
        metavar="N",
        help=(
            "a bound in every N-th round of policies that need none to decide; 0: never"
            " (default: 1)"
        ),
    )
    world = parser.add_argument_group(
        "a world that is not as believed (as of `allocator simulate`)"
    )
    world.add_argument("--sizes", choices=SIZES)
    world.add_argument("--speeds", choices=SPEEDS, default="known")
    world.add_argument("--losses", type=number(), metavar="SIGMA")
    for name, unit in (
        ("misjudged", "SIGMA"),
        ("misjudged-sizes", "SIGMA"),
        ("misjudged-slowdowns", "SIGMA"),
        ("noise", "SIGMA"),
        ("failures", "RATE"),
        ("latency", "TIME"),
        ("charge-decisions", "F"),
    ):
        convert = duration() if unit == "TIME" else number()
        world.add_argument(f"--{name}", type=convert, default=0.0, metavar=unit)
    how = parser.add_argument_group("how")
    how.add_argument(
        "--executor", choices=("processes", "dask"), default="processes", help="default: processes"
    )
    how.add_argument(
        "--workers",
        type=parse_integer(1, 1024),
        metavar="N",
        help="processes at a time (default: the cores)",
    )
    how.add_argument("--scheduler", metavar="ADDRESS", help="of the Dask cluster: tcp://host:8786")
    how.add_argument(
        "--task-limit",
        type=duration(0.01, infinite=True),
        default=math.inf,
        metavar="TIME",
        help="seconds after which a task is killed (default: none)",
    )
    how.add_argument(
        "--out",
        default="bench-policies",
        metavar="DIR",
        help="folder of the results (default: bench-policies)",
    )
    parser.set_defaults(call=call)


def _loads(text: str) -> tuple[float, ...]:
    """Parse numbers above 0, separated by commas."""
    found = tuple(float(word) for word in words(text))
    if not all(0 < load < math.inf for load in found):
        raise argparse.ArgumentTypeError(f"{text}: loads are numbers above 0")
    return found


def call(args: argparse.Namespace) -> int:
    """Run the command; return 1 if a task failed."""
    from allocator.bench.sweep.store import SweepStore
    from allocator.bench.sweep.tables import write_tables
    from allocator.report.policies import write_policy_report

    tasks = None if args.what == "report" else parse_tasks(args)
    executor = build_executor(args)
    with SweepStore(args.out) as store:
        swept = None
        if tasks is None:
            tasks, baseline = store.last_request()
        else:
            baseline = args.baseline
            store.save_request(tasks, baseline)
            swept = run(tasks, store, executor)
        text = write_tables(store, tasks, baseline)
        page = write_policy_report(store.folder)
    document = {"folder": str(store.folder), "report": str(page), "tables": text}
    show_result(args.format, document, lambda: print(text, end=""))
    note(str(page))
    return report_missing(swept, store) if swept else 0


def parse_tasks(args: argparse.Namespace) -> list[SweepTask]:
    """Return the tasks of the command line.

    Raises UsageError for invalid names and values, before any task runs.
    """
    from allocator.bench.paired import FEWEST_SEEDS, LEVEL
    from allocator.bench.sweep.tasks import grid
    from allocator.bench.workloads import generate
    from allocator.engine.decision import override_settings
    from allocator.policies import registry
    from allocator.simulator import SimulationOptions
    from allocator.solvers.registry import find

    policies = list(dict.fromkeys((args.baseline, *args.policies)))
    for policy in policies:
        registry.policy(policy)
    find(args.solver)
    override_settings(
        generate("reproduction", jobs=1).workload().problem,
        args.objective,
        args.budget,
        args.horizon,
    )
    options = SimulationOptions(
        objective=args.objective,
        gap=args.gap,
        time_limit_s=args.time_limit,
        solver=args.solver,
        budget=args.budget,
        interval_s=args.interval,
        ageing_s=args.ageing,
        horizon=args.horizon,
        react_s=args.react,
        speeds=args.speeds,
        misjudged=args.misjudged,
        misjudged_sizes=args.misjudged_sizes,
        misjudged_slowdowns=args.misjudged_slowdowns,
        sizes=args.sizes,
        loss_noise=args.losses,
        noise=args.noise,
        failures_per_gpu_hour=args.failures,
        latency_s=args.latency,
        latency_factor=args.charge_decisions,
        prove_every=args.prove,
        announce_s=args.announce,
    )
    found = sources(args.workloads, args.loads, args.jobs_per_workload)
    if (
        args.seeds > 1
        and not options.is_random
        and any(source.digest and not source.revocable for source in found)
    ):
        note(
            "folders are simulated once: without --misjudged, --noise or --failures, and without"
            " hazards of spot pools, every seed would be the same"
        )
    if 1 < args.seeds < FEWEST_SEEDS and any(
        not source.digest or options.is_random for source in found
    ):
        note(
            f"with {args.seeds} seeds every difference will stay open, because the paired test"
            f" cannot give p below {LEVEL:g}: --seeds {FEWEST_SEEDS} or more can tell"
        )
    return grid(found, policies, args.seeds, options)


def sources(
    names: Sequence[str], loads: Sequence[float] | None, jobs: int | None
) -> list[WorkloadSource]:
    """Return every workload.

    Raises UsageError for a workload that does not exist, and for loads if there are only folders.
    """
    from allocator.bench.sweep.tasks import WorkloadSource, source_of_folder
    from allocator.bench.workloads import GENERATORS
    from allocator.errors import UsageError

    found: list[WorkloadSource] = []
    for name in dict.fromkeys(names):
        if name in GENERATORS:
            made = GENERATORS[name]
            found.append(WorkloadSource(name, tuple(loads or made.loads), jobs or made.jobs))
        elif Path(name).is_dir():
            found.append(source_of_folder(name))
        else:
            raise UsageError(
                f'"{name}" is neither a generator of workloads ({", ".join(GENERATORS)}) nor a'
                " folder"
            )
    if (loads or jobs) and any(source.digest for source in found):
        if all(source.digest for source in found):
            raise UsageError(
                "--loads and --jobs-per-workload are for generators; a folder is simulated as it is"
            )
        note(
            "--loads and --jobs-per-workload do not change folders: they are simulated as they are"
        )
    return found


def build_executor(args: argparse.Namespace) -> TaskExecutor:
    """Return the executor that the options ask for."""
    from allocator.bench.sweep.executors import ProcessExecutor
    from allocator.errors import UsageError

    if args.executor == "processes":
        if args.scheduler:
            raise UsageError("--scheduler needs --executor dask")
        return ProcessExecutor(args.workers, limit_s=args.task_limit)
    if not args.scheduler:
        raise UsageError("--executor dask needs --scheduler ADDRESS")
    if args.workers:
        raise UsageError(
            "--workers is for --executor processes; a Dask cluster has the workers it has"
        )
    from allocator.bench.sweep.on_dask import DaskExecutor

    return DaskExecutor(args.scheduler, limit_s=args.task_limit, quiet=True)


def run(tasks: Sequence[SweepTask], store: SweepStore, executor: TaskExecutor) -> SweepSummary:
    """Run what is missing.

    Standard error has how much is missing, a line per task with how much is left, and a bar.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from allocator.bench.sweep.sweep import sweep
    from allocator.report.measures import duration

    console = progress_console()
    there = sum(map(store.is_done, tasks))
    console.print(
        f"{len(tasks)} simulations" + (f", {there} of them are there" if there else ""),
        soft_wrap=True,
    )
    begin, count = time.monotonic(), 0
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        bar = progress.add_task("", total=len(tasks), completed=there)

        def tell(task: SweepTask, outcome: TaskOutcome) -> None:
            nonlocal count
            count += 1
            progress.advance(bar)
            left = len(tasks) - there - count
            each_s = (time.monotonic() - begin) / count
            console.print(
                f"{there + count} of {len(tasks)}: {line(task, outcome)}"
                + (f"; about {duration(left * each_s)} left" if left else ""),
                markup=False,
                soft_wrap=True,
            )

        try:
            return sweep(tasks, store, executor, tell)
        # Ctrl-C, SIGTERM or a full disk: the caller reports which
        except BaseException:
            console.print(f"the same command goes on after {there + count} of {len(tasks)}")
            raise


def line(task: SweepTask, outcome: TaskOutcome) -> str:
    """Return a finished task as a line."""
    if outcome.failure:
        return ": ".join([f"{task}: FAILED, {outcome.failure}", *outcome.words.splitlines()[-1:]])
    return f"{task}: {outcome.seconds:.1f} s"


def report_missing(swept: SweepSummary, store: SweepStore) -> int:
    """Print what is missing; return the exit code."""
    if not swept.failed:
        return 0
    warn(
        [
            f"{len(swept.failed)} of {swept.before + swept.ran} tasks failed; why is in"
            f" {store.failed}, and the next call tries them again"
        ]
    )
    return 1
