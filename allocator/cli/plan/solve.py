"""`allocator solve`: one decision per snapshot folder, with its progress on standard error.

A terminal gets one line that is rewritten twice a second. Other outputs get a line after 5, 10, 20,
40 ... seconds. Quick decisions show nothing. The same object keeps the notes for --log.
"""

import math
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from allocator import UsageError, read_snapshot
from allocator.cli.output import MODE, Answer, tell_details, warn
from allocator.cli.parsing import read_limits, take
from allocator.cli.plan.batch import batch, decide_folder
from allocator.cli.plan.plan_show import log_lines, show_plan
from allocator.engine.advice.trials import SolveCommand
from allocator.io import plans
from allocator.io.performance_models import check_format, write_model
from allocator.options.instance_building import compile_round
from allocator.policies.base import policy
from allocator.solvers.registry import find

FIRST_S = 1.5  # quicker decisions show nothing on a terminal,
FIRST_LINE_S = 5.0  # and these nothing elsewhere
LIVE_S = 0.5  # between two states of a terminal's line
CLEAR = "\r\x1b[2K"  # to the beginning of the line, and empty it


class Progress:
    """A ProgressWatcher (solvers/base.py) that keeps the best value and bound, and timed notes.

    `is_valued`: solvers report values of the plan. Policies other than mip give solvers other
    models.
    """

    def __init__(self, is_valued: bool = True) -> None:
        self.begin = time.monotonic()
        self.notes: list[str] = []
        self._is_valued = is_valued
        self._value = -math.inf
        self._bound = math.inf

    def improved(self, value: float, bound: float) -> None:
        """Implement ProgressWatcher.improved."""
        if self._is_valued:
            self._value, self._bound = max(self._value, value), min(self._bound, bound)

    def note(self, text: str) -> None:
        """Implement ProgressWatcher.note."""
        self.notes.append(f"[{time.monotonic() - self.begin:8.3f} s] {text}")

    def line(self) -> str:
        """Return elapsed time, best value, bound and gap, as far as they are known."""
        value = self._value
        bound = self._bound
        parts = [f"{time.monotonic() - self.begin:.0f} s"]
        if math.isfinite(value):
            parts.append(f"best value {value:.7g}")
        if math.isfinite(bound):
            parts.append(f"at most {bound:.7g}")
        if math.isfinite(value) and math.isfinite(bound):
            parts.append(f"gap {100 * max(0.0, bound - value) / max(abs(value), 1e-9):.2g} %")
        return ", ".join(parts)

    @contextmanager
    def shown(self, what: str) -> Iterator[None]:
        """Show the progress on standard error within the block; what: the words before it."""
        over = threading.Event()
        if MODE.is_quiet:
            yield
            return
        thread = threading.Thread(target=self._show, args=(what, over), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _show(self, what: str, over: threading.Event) -> None:
        is_live = sys.stderr.isatty()
        begin, end = (CLEAR, "") if is_live else ("", "\n")
        pause = FIRST_S if is_live else FIRST_LINE_S
        left = ""  # what empties the line, if there is one
        with suppress(OSError, ValueError):
            while not over.wait(pause):
                print(f"{begin}{what}: {self.line()}", end=end, file=sys.stderr, flush=True)
                left = begin
                pause = LIVE_S if is_live else time.monotonic() - self.begin
            if left:
                print(left, end="", file=sys.stderr, flush=True)


def solve(args: Namespace) -> Answer | int:
    policy(args.policy)
    find(args.solver)
    if args.write_model:
        check_format(args.write_model)
    if len(args.snapshots) == 1:
        return _one(args)
    for name, given in (("--log", args.log), ("--write-model", args.write_model)):
        if given:
            raise UsageError(f"{name} takes one snapshot, this is a batch")
    command = take(SolveCommand, args, limits=read_limits(args, log=False))
    return batch(args.snapshots, command, args.out, args.format, args.jobs)


def _one(args: Namespace) -> Answer:
    (folder,) = args.snapshots
    progress = Progress(is_valued=args.policy == "mip")
    limits = read_limits(args, log=bool(args.log), watch=progress)
    command = take(SolveCommand, args, limits=limits)
    if args.write_model:
        write_model(
            compile_round(command.problem(read_snapshot(folder), {})).model, args.write_model
        )
    with progress.shown("solve"):
        result = decide_folder(folder, command)
    warn(result.warnings)
    log = log_lines(result, progress.notes)
    tell_details(*log)
    if args.out:
        plans.write_plan(result, args.out)
    if args.log:
        path = Path(args.log)
        plans.write_files(path.parent, {path.name: "\n".join(log) + "\n"})
    return Answer(
        partial(plans.to_json, result),
        show_plan(result, args.reasons),
        partial(plans.to_csv, result),
    )
