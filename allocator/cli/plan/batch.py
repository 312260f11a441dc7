"""Decide many snapshots, one after the other in this process, or in parallel in child processes.

The children live until the batch ends.
"""

import csv
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from types import FrameType
from typing import Any, NoReturn

from allocator.cli.output import print_json, progress_bar
from allocator.cli.plan.deciding import FIELDS, describe_fault, snapshot_name, summarise
from allocator.cli.tables import percent, text
from allocator.engine.advice.trials import SolveCommand
from allocator.errors import UsageError
from allocator.solvers.base import SolveLimits
from allocator.solvers.isolation.child_processes import Child

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
    team = _Team(command, out)
    bar = progress_bar(is_counted=True)
    task = bar.add_task("snapshots", total=len(folders))
    with ThreadPoolExecutor(jobs) as threads, bar:
        try:
            work: Iterator[dict[str, Any]] = (
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
    """Child processes that decide snapshots, one for each thread; one that dies is replaced."""

    def __init__(self, command: SolveCommand, out: str | None) -> None:
        self._order = {"command": asdict(command), "out": out}
        self._children: dict[int, Child] = {}
        self._is_over = False
        self._lock = threading.Lock()

    def summarise(self, folder: str) -> dict[str, Any]:
        """Return what the child of this thread answers about a snapshot."""
        answer = b""
        child = self._find_child()
        if child is not None and child.process.stdin and child.process.stdout:
            try:
                child.process.stdin.write(json.dumps({**self._order, "folder": folder}).encode())
                child.process.stdin.write(b"\n")
                child.process.stdin.flush()
                answer = child.process.stdout.readline()
            except OSError:
                pass
        if answer:
            found: dict[str, Any] = json.loads(answer)
            return found
        with self._lock:
            self._children.pop(threading.get_ident(), None)
        if child is not None:
            child.kill()
        return describe_fault(folder, "internal error: the process that worked on it died")

    def _find_child(self) -> Child | None:
        me = threading.get_ident()
        with self._lock:
            if not self._is_over and me not in self._children:
                self._children[me] = Child(
                    "batch",
                    "allocator.cli.plan.batch",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=2,
                )  # Ctrl-C reaches only this process, which ends the children
            return self._children.get(me)

    def end(self) -> None:
        """End the children; they first get the chance to end themselves."""
        with self._lock:
            self._is_over = True
            children = [*self._children.values()]
        for child in children:
            child.terminate()
        for child in children:
            child.wait(5.0)
            child.kill()


def _printer(form: str, width: int) -> Callable[[Mapping[str, Any]], None]:
    """Return the function that prints the line of a summary."""
    if form == "json":
        return lambda s: print_json({name: s[name] for name in FIELDS})
    if form == "csv":
        writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        return writer.writerow

    def line(s: Mapping[str, Any]) -> None:
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


def work() -> None:
    """Read one JSON line per snapshot and write one summary line for each.

    When the parent ends in any way, standard input ends. Then the child ends at once with its
    solvers.
    """
    signal.signal(signal.SIGTERM, _stop)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    # nothing else may be written between the summaries
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    while True:
        order = json.loads(orders.get())
        limits = SolveLimits(**order["command"].pop("limits"))
        command = SolveCommand(**order["command"], limits=limits)
        out.write(json.dumps(summarise(order["folder"], command, order["out"])) + "\n")
        out.flush()


def _listen(orders: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os.kill(os.getpid(), signal.SIGTERM)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(143)


if __name__ == "__main__":
    work()
