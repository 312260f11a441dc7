"""Decide many snapshots, one after the other in this process, or in parallel in child processes.

The children live until the batch ends.
"""

from __future__ import annotations

import csv
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, fields
from types import FrameType
from typing import NoReturn

from allocator.cli.output import print_json, progress_bar
from allocator.cli.request import DecisionSummary, Request, snapshot_name, summarise
from allocator.cli.tables import percent, text
from allocator.errors import UsageError
from allocator.solvers.isolation.child_processes import Child

GRAVITY = (0, 5, 4, 3, 2, 1)  # of exit codes, the gravest last
FIELDS = tuple(f.name for f in fields(DecisionSummary) if f.name != "warnings")


def batch(folders: Sequence[str], request: Request, out: str | None, form: str, jobs: int) -> int:
    """Decide every folder, print a line for each in order, return the gravest exit code."""
    twice = [name for name, n in Counter(map(snapshot_name, folders)).items() if n > 1]
    if out and twice:
        raise UsageError(
            f"snapshots of the same name would overwrite each other in --out: {', '.join(twice)}"
        )
    line = _printer(form, max(len(snapshot_name(f)) for f in folders))
    gravest = 0
    work = (
        _decide_in_turn(folders, request, out)
        if jobs == 1
        else _decide_in_parallel(folders, request, out, jobs)
    )
    bar = progress_bar(is_counted=True)
    task = bar.add_task("snapshots", total=len(folders))
    with bar:
        try:
            for summary in work:
                bar.stop()  # while lines are printed
                line(summary)
                sys.stdout.flush()
                for text in (
                    *(f"warning: {w}" for w in summary.warnings),
                    *(summary.error or "").splitlines(),
                ):
                    print(f"{summary.snapshot}: {text}", file=sys.stderr)
                bar.advance(task)
                bar.start()
                gravest = max(gravest, summary.exit_code, key=GRAVITY.index)
        finally:
            work.close()
    return gravest


def _decide_in_turn(
    folders: Sequence[str], request: Request, out: str | None
) -> Generator[DecisionSummary, None, None]:
    yield from (summarise(folder, request, out) for folder in folders)


def _decide_in_parallel(
    folders: Sequence[str], request: Request, out: str | None, jobs: int
) -> Generator[DecisionSummary, None, None]:
    """Yield summaries in the order of the folders, from up to `jobs` children.

    Closing the generator ends the children.
    """
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for i in range(len(folders)):
        todo.put(i)
    done: queue.SimpleQueue[tuple[int, DecisionSummary]] = queue.SimpleQueue()
    team = [_Child(folders, request, out, todo, done) for _ in range(min(jobs, len(folders)))]
    waiting: dict[int, DecisionSummary] = {}
    try:
        for child in team:
            child.start()
        for i in range(len(folders)):
            while i not in waiting:
                number, summary = done.get()
                waiting[number] = summary
            yield waiting.pop(i)
    finally:
        for child in team:
            child.end()


class _Child(threading.Thread):
    """A thread that feeds one child process, and starts another when that one dies."""

    def __init__(
        self,
        folders: Sequence[str],
        request: Request,
        out: str | None,
        todo: queue.SimpleQueue[int],
        done: queue.SimpleQueue[tuple[int, DecisionSummary]],
    ) -> None:
        super().__init__(daemon=True)
        self._folders = folders
        self._out = out
        self._todo = todo
        self._done = done
        self._request = request
        self._child: Child | None = None
        self._ending = False
        self._lock = threading.Lock()

    def run(self) -> None:
        while not self._ending:
            try:
                i = self._todo.get_nowait()
            except queue.Empty:
                break
            self._done.put((i, self._request_summary(self._folders[i])))
        self.end(wait=False)

    def _request_summary(self, folder: str) -> DecisionSummary:
        order = json.dumps({"folder": folder, "request": asdict(self._request), "out": self._out})
        answer = b""
        try:
            child = self._alive()
            if child is not None and child.process.stdin and child.process.stdout:
                child.process.stdin.write(order.encode() + b"\n")
                child.process.stdin.flush()
                answer = child.process.stdout.readline()
        except OSError:
            pass
        if answer:
            return DecisionSummary(**json.loads(answer))
        self._discard_child()
        return DecisionSummary(
            snapshot_name(folder),
            1,
            "error",
            error="internal error: the process that worked on it died",
        )

    def _discard_child(self) -> None:
        """Drop a process that does not answer, so that the next snapshot gets a new one."""
        with self._lock:
            child = self._child
            self._child = None
        if child is not None:
            child.kill()

    def _alive(self) -> Child | None:
        with self._lock:
            if not self._ending and self._child is None:
                self._child = Child(
                    "batch",
                    "allocator.cli.plan.batch",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=2,
                )  # Ctrl-C reaches only this process, which ends the children
            return self._child

    def end(self, wait: bool = True) -> None:
        """End the child process; it first gets the chance to end itself."""
        with self._lock:
            self._ending = True
            child = self._child
            if wait:
                self._child = None
        if child is not None:
            child.terminate()
            if wait:
                child.wait(5.0)
                child.kill()


def _printer(form: str, width: int) -> Callable[[DecisionSummary], None]:
    """Return the function that prints the line of a summary."""
    if form == "json":
        return lambda s: print_json({f: getattr(s, f) for f in FIELDS})
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(FIELDS)
        return lambda s: writer.writerow([getattr(s, f) for f in FIELDS])

    def line(s: DecisionSummary) -> None:
        if s.objective_value is None:
            print(f"{text(s.snapshot):<{width}}  {s.status}")
            return
        print(
            f"{text(s.snapshot):<{width}}  {s.status:<8}  value {text(s.objective_value, 7):>9} "
            f" bound {text(s.bound, 7):>9}  gap {percent(s.gap or 0.0):>9} "
            f" {s.solver or 'no solver'}{f' (fallback {s.fallback})' if s.fallback else ''} "
            f" {s.seconds:.2f} s"
        )

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
        summary = summarise(order["folder"], Request(**order["request"]), order["out"])
        out.write(json.dumps(asdict(summary)) + "\n")
        out.flush()


def _listen(orders: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        orders.put(line)
    os.kill(os.getpid(), signal.SIGTERM)


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(143)


if __name__ == "__main__":
    work()
