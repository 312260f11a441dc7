"""Decide snapshot folders for `allocator solve`: one, or many as lines of a batch.

A batch decides one after the other in this process, or in parallel in worker processes, which live
until it ends.
"""

import csv
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from allocator import AllocatorError, Plan, SolveLimits, UsageError, read_snapshot, validate
from allocator.cli.output import Values, format_json, percent, pick, progress_bar, text
from allocator.engine.advice.trials import SolveCommand
from allocator.engine.decision import decide
from allocator.io.plans import write_plan
from allocator.solvers.isolation.worker_processes import ProtocolError, Worker, WorkerPool

GRAVITY = (0, 5, 4, 3, 2, 1)  # of exit codes, the gravest last
OF_PLAN = ("objective_value", "bound", "gap", "solver", "termination", "fallback")
FIELDS = ("snapshot", "exit_code", "status", *OF_PLAN, "seconds", "plan", "error")
"""What the line of a snapshot has: what was decided, or why not."""


def decide_folder(folder: str, command: SolveCommand) -> Plan:
    """Read, validate and decide one snapshot folder."""
    begin = time.monotonic()
    snapshot = read_snapshot(folder)
    read = time.monotonic()
    problem = validate(snapshot)
    seconds = {"read": read - begin, "validate": time.monotonic() - read}
    left = max(0.0, command.limits.time_s - seconds["validate"])
    how = vars(command) | {"limits": replace(command.limits, time_s=left)}
    return decide(problem, **how, seconds=seconds)


def summarise(folder: str, command: SolveCommand, out: str | None) -> Values:
    """Decide one snapshot of a batch, write its plan to `out`, and return its line.

    A fault is a line, too.
    """
    begin = time.monotonic()
    try:
        result = decide_folder(folder, command)
        written = None if out is None else write_plan(result, Path(out) / snapshot_name(folder))
    except AllocatorError as error:
        status = {3: "invalid", 4: "infeasible", 5: "no plan"}.get(error.exit_code, "error")
        summary = describe_fault(folder, str(error), error.exit_code, status, error.warnings)
    except Exception as error:
        summary = describe_fault(folder, f"internal error: {type(error).__name__}: {error}")
    else:
        summary = {
            **describe_fault(folder, None, 0, result.status, result.warnings),
            **pick(result, *OF_PLAN),
            "plan": None if written is None else str(written[0]),
        }
    return summary | {"seconds": time.monotonic() - begin}


def describe_fault(
    folder: str,
    error: str | None,
    exit_code: int = 1,
    status: str = "error",
    warnings: Sequence[str] = (),
) -> Values:
    """Return the line of a snapshot that was not decided."""
    return dict.fromkeys(FIELDS) | {
        "snapshot": snapshot_name(folder),
        "exit_code": exit_code,
        "status": status,
        "seconds": 0.0,
        "error": error,
        "warnings": warnings,
    }


def snapshot_name(folder: str) -> str:
    """Return the name of a snapshot in a batch: that of its folder."""
    return os.path.basename(os.path.abspath(folder)) or "snapshot"


def solve(order: tuple[str, SolveCommand, str | None], *_: object) -> Values:
    """Return the line of a snapshot; what a worker process of a batch calls."""
    return summarise(*order)


def batch(
    folders: Sequence[str], command: SolveCommand, out: str | None, form: str, jobs: int
) -> int:
    """Decide every folder, print a line for each in order, return the gravest exit code."""
    twice = [name for name, n in Counter(map(snapshot_name, folders)).items() if n > 1]
    if out and twice:
        raise UsageError(
            f"snapshots of the same name would overwrite each other in --out: {', '.join(twice)}"
        )
    line = _printer(form, max(len(snapshot_name(f)) for f in folders))
    gravest = 0
    team = _Team(command, out, jobs)
    bar = progress_bar(is_counted=True)
    task = bar.add_task("snapshots", total=len(folders))
    with ThreadPoolExecutor(jobs) as threads, bar:
        try:
            work: Iterator[Values] = (
                (summarise(folder, command, out) for folder in folders)
                if jobs == 1
                else threads.map(team.summarise, folders)
            )
            for summary in work:
                bar.stop()  # while lines are printed
                line(summary)
                sys.stdout.flush()
                for words in (
                    *(f"warning: {w}" for w in summary["warnings"]),
                    *(summary["error"] or "").splitlines(),
                ):
                    print(f"{summary['snapshot']}: {words}", file=sys.stderr)
                bar.advance(task)
                bar.start()
                gravest = max(gravest, summary["exit_code"], key=GRAVITY.index)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            team.end()
    return gravest


class _Team:
    """Worker processes that decide snapshots, one for each thread; one that dies is replaced."""

    def __init__(self, command: SolveCommand, out: str | None, jobs: int) -> None:
        self._command = command
        self._out = out
        self._idle = WorkerPool(jobs)
        self._busy: set[Worker] = set()
        self._is_over = False

    def summarise(self, folder: str) -> Values:
        """Return what a worker answers about a snapshot."""
        worker = self._idle.take(__name__, ())
        self._busy.add(worker)
        order = (folder, self._command, self._out)
        try:
            if self._is_over or worker.wait_ready(math.inf):
                raise EOFError
            worker.channel.send(("solve", 0, order, SolveLimits(), math.inf, None))
            _, _, answer = worker.receive()
        except (EOFError, OSError, ProtocolError):
            answer = None
        self._busy.discard(worker)
        if isinstance(answer, dict):
            self._idle.give(__name__, (), worker)
            return answer
        worker.kill()
        return describe_fault(folder, "internal error: the process that worked on it died")

    def end(self) -> None:
        """End the workers; the thread of a busy one sees that, and kills all that it started."""
        self._is_over = True
        self._idle.close()
        for worker in tuple(self._busy):
            worker.terminate()


def _printer(form: str, width: int) -> Callable[[Values], None]:
    """Return the function that prints the line of a summary."""
    if form == "json":
        return lambda s: print(format_json({name: s[name] for name in FIELDS}))
    if form == "csv":
        writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        return writer.writerow

    def line(s: Values) -> None:
        row = f"{text(s['snapshot']):<{width}}  {s['status']}"
        if s["objective_value"] is not None:
            row = (
                f"{row:<{width + 10}}  value {text(s['objective_value'], 7):>9} "
                f" bound {text(s['bound'], 7):>9}  gap {percent(s['gap'] or 0.0):>9} "
                f" {s['solver'] or 'no solver'}"
                f"{' (fallback ' + s['fallback'] + ')' if s['fallback'] else ''} "
                f" {s['seconds']:.2f} s"
            )
        print(row)

    return line
