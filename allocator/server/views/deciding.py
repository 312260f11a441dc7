"""Decide rounds for a request, in a child process that is killed at its time limit.

Explanations and what-ifs decide the present round again, several times. So that no request waits
longer than stated, and no fault of a decision harms the service, a child does it: it gets the
function, the snapshot and what else it asks for on standard input, and answers on standard output.
"""

import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from sqlalchemy import Connection

from allocator.controller import profiling, spending
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot
from allocator.engine.advice.trials import SolveCommand
from allocator.errors import AllocatorError, NoPlanInTime, UsageError
from allocator.loop.live_rental import LiveRental
from allocator.market.books import RENTAL_TABLE as RENTAL
from allocator.objects import Record
from allocator.queue import round_journal
from allocator.queue.snapshot import build_snapshot
from allocator.solvers.base import SolveLimits
from allocator.solvers.effort import GAP

T = TypeVar("T")
SHARE = 0.15  # part of the limit of an answer that one decision may take
ERRORS: Mapping[int, type[AllocatorError]] = {
    2: UsageError,
    3: UsageError,
    4: UsageError,
    NoPlanInTime.exit_code: NoPlanInTime,
}


def ask_child(
    answer: Callable[[Snapshot, SolveCommand, float, Any], T],
    snapshot: Snapshot,
    command: SolveCommand,
    limit_s: float,
    about: Any,
) -> T:
    """Return what a function of another module answers, in a child.

    Raises
    ------
    NoPlanInTime
        If the child did not answer within the limit.
    UsageError
        If the question cannot be answered, with the reason.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import answer_parent; answer_parent()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a solver of its own dies with it
    )
    try:
        question = pickle.dumps((answer, snapshot, command, limit_s, about))
        out, _ = child.communicate(question, limit_s)
    except subprocess.TimeoutExpired:
        raise NoPlanInTime(
            f"no answer within {limit_s:g} s: the round is too large to be decided"
            " several times in that time"
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if not out:
        raise AllocatorError("the process that decides ended without an answer")
    found: T | AllocatorError = pickle.loads(out)
    if isinstance(found, AllocatorError):
        raise found
    return found


def answer_parent() -> None:
    """Answer the question of `ask_child`, in the child."""
    answer, snapshot, command, limit_s, about = pickle.load(sys.stdin.buffer)
    seconds = int(limit_s) + 2  # of CPU: the child ends even if nobody kills it
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    try:
        found = answer(snapshot, command, limit_s, about)
    except AllocatorError as error:
        found = ERRORS.get(error.exit_code, AllocatorError)(str(error))
    pickle.dump(found, sys.stdout.buffer)


def read_question(
    connection: Connection, now_s: float, limit_s: float
) -> tuple[Snapshot, SolveCommand]:
    """Return the present round of a queue, and how the controller decided the last one.

    `limit_s` are the seconds that the whole answer may take, of which one decision gets a share.
    The prices and limits of long-run budgets, and the speeds that trials have shown, are those that
    the controller would take now.
    """
    snapshot = build_snapshot(connection, now_s)
    if profiling.is_enabled(snapshot.config):
        snapshot = profiling.use_fits(snapshot, profiling.read(connection))
    has_books = spending.report(connection) or spending.report_months(connection)
    if has_books or "average_per_hour" in snapshot.config.get(RENTAL, {}):
        problem = validate(snapshot)
        snapshot, _, _ = spending.apply_budgets(connection, snapshot, problem, LiveRental())
    last = round_journal.history(connection, limit=1)
    options: Record = last[0].options if last else {}
    return snapshot, SolveCommand(
        last[0].policy if last else "mip",
        solver=options.get("solver", "auto"),
        limits=SolveLimits(SHARE * limit_s, options.get("gap", GAP), 1, options.get("seed", 0)),
    )
