"""Decide many snapshots, one after the other in this process, or in parallel in worker processes.

The workers live until the batch ends.
"""

import csv
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from allocator import SolveLimits, UsageError
from allocator.cli.output import Values, percent, print_json, progress_bar, text
from allocator.cli.plan import deciding
from allocator.cli.plan.deciding import FIELDS, describe_fault, snapshot_name, summarise
from allocator.engine.advice.trials import SolveCommand
from allocator.solvers.isolation.worker_processes import ProtocolError, Worker, WorkerPool

GRAVITY = (0, 5, 4, 3, 2, 1)  # of exit codes, the gravest last


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
                for said in (
                    *(f"warning: {w}" for w in summary["warnings"]),
                    *(summary["error"] or "").splitlines(),
                ):
                    print(f"{summary['snapshot']}: {said}", file=sys.stderr)
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
        worker = self._idle.take(deciding.__name__, ())
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
            self._idle.give(deciding.__name__, (), worker)
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
        return lambda s: print_json({name: s[name] for name in FIELDS})
    if form == "csv":
        writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        return writer.writerow

    def line(s: Values) -> None:
        said = f"{text(s['snapshot']):<{width}}  {s['status']}"
        if s["objective_value"] is not None:
            said = (
                f"{said:<{width + 10}}  value {text(s['objective_value'], 7):>9} "
                f" bound {text(s['bound'], 7):>9}  gap {percent(s['gap'] or 0.0):>9} "
                f" {s['solver'] or 'no solver'}"
                f"{' (fallback ' + s['fallback'] + ')' if s['fallback'] else ''} "
                f" {s['seconds']:.2f} s"
            )
        print(said)

    return line
