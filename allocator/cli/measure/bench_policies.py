"""`allocator bench policies`: simulate a grid of tasks resumably, compare, and report."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING

from allocator.cli.measure.simulate import OPTIONS, WORLD
from allocator.cli.output import note, progress_bar, show_result, warn
from allocator.cli.parsing import (
    command,
    duration,
    group,
    many,
    number,
    option,
    parse_integer,
    take,
    words,
)
from allocator.errors import UsageError
from allocator.report.measures import duration as in_words
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


RUN_OR_REPORT = option(
    "what",
    None,
    "run (default) or report",
    default="run",
    nargs="?",
    choices=("run", "report"),
)


@command(
    "policies",
    "simulate policies, compare with intervals",
    ABOUT,
    EXAMPLES,
    RUN_OR_REPORT,
    group(
        "grid",
        option(
            "--workloads",
            "A,B",
            "generators or folders (default: reproduction)",
            words,
            ("reproduction",),
        ),
        option(
            "--loads",
            "X,Y",
            "loads of the generators (default: each one's own); a folder is simulated as it is",
            many(number(1e-9)),
        ),
        option("--policies", "A,B", "default: greedy,mip", words, words("greedy,mip")),
        option(
            "--seeds",
            "N",
            "seeds 0 .. N-1 of generator and simulation; a folder in a world without chance has "
            "one (default: 3; significance needs 6 or more)",
            parse_integer(1, 100_000),
            3,
        ),
        option("--jobs-per-workload", "N", "default: the generator's own", parse_integer(1)),
        option(
            "--baseline",
            "P",
            "what the others are compared with; run too (default: greedy)",
            default="greedy",
        ),
    ),
    group(
        "decisions and rounds",
        *OPTIONS,
        option("--gap", "G", f"default: {GAP:g}", number(), GAP),
        option(
            "--time-limit",
            "TIME",
            "seconds per decision (default: none); with one, results depend on the machine",
            duration(infinite=True),
            math.inf,
            dest="time_limit_s",
        ),
        option("--solver", "NAME", "of policy mip (default: auto)", default="auto"),
    ),
    group("a world that is not as believed", *WORLD),
    group(
        "how",
        option(
            "--executor",
            None,
            "default: processes",
            default="processes",
            choices=("processes", "dask"),
        ),
        option(
            "--workers",
            "N",
            "processes at a time (default: the cores)",
            parse_integer(1, 1024),
        ),
        option("--scheduler", "ADDRESS", "of the Dask cluster: tcp://host:8786"),
        option(
            "--task-limit",
            "TIME",
            "seconds after which a task is killed (default: none)",
            duration(0.01, infinite=True),
            math.inf,
        ),
        option(
            "--out",
            "DIR",
            "folder of the results (default: bench-policies)",
            default="bench-policies",
        ),
    ),
)
def policies(args: argparse.Namespace) -> int:
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

    compared = list(dict.fromkeys((args.baseline, *args.policies)))
    for policy in compared:
        registry.policy(policy)
    find(args.solver)
    override_settings(
        generate("reproduction", jobs=1).workload().problem,
        args.objective,
        args.budget,
        args.horizon,
    )
    options = take(SimulationOptions, args)
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
    return grid(found, compared, args.seeds, options)


def sources(
    names: Sequence[str], loads: Sequence[float] | None, jobs: int | None
) -> list[WorkloadSource]:
    """Return every workload.

    Raises UsageError for a workload that does not exist, and for loads if there are only folders.
    """
    from allocator.bench.sweep.tasks import WorkloadSource, source_of_folder
    from allocator.bench.workloads import GENERATORS

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
    from allocator.bench.sweep.sweep import sweep

    there = sum(map(store.is_done, tasks))
    note(f"{len(tasks)} simulations" + (f", {there} of them are there" if there else ""))
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
                f"{there + count} of {len(tasks)}: {line(task, outcome)}"
                + (f"; about {in_words(left * each_s)} left" if left else "")
            )

        try:
            return sweep(tasks, store, executor, tell)
        # Ctrl-C, SIGTERM or a full disk: the caller reports which
        except BaseException:
            note(f"the same command goes on after {there + count} of {len(tasks)}")
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
