"""Decide rounds for a request, in a child process that is killed at its time limit.

Explanations and what-ifs decide the present round again, several times. So that no request waits
longer than stated, and no fault of a decision harms the service, a child does it: it gets the
snapshot and the question on standard input, and answers with JSON on standard output.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from allocator.controller import profiling, spending
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot
from allocator.errors import AllocatorError, NoPlanInTime, UsageError
from allocator.loop.live_rental import LiveRental
from allocator.market.books import RENTAL_TABLE as RENTAL
from allocator.queue import round_journal
from allocator.queue.snapshot import build_snapshot, pack_snapshot
from allocator.solvers.base import SolveLimits
from allocator.solvers.effort import GAP

SHARE = 0.15  # part of the limit of an answer that one decision may take
SEARCH = 0.4  # part of it in which a search for changes makes new decisions
ERRORS: Mapping[int, type[AllocatorError]] = {
    2: UsageError,
    3: UsageError,
    4: UsageError,
    NoPlanInTime.exit_code: NoPlanInTime,
}


@dataclass(frozen=True)
class Effort:
    """How rounds are decided: as the controller decided the last one, but with other limits.

    `limit_s` are the seconds that the whole answer may take.
    """

    policy: str
    solver: str
    gap: float
    seed: int
    limit_s: float

    @property
    def limits(self) -> SolveLimits:
        """The limits of one decision."""
        return SolveLimits(SHARE * self.limit_s, self.gap, 1, self.seed)

    @property
    def search_s(self) -> float:
        """The seconds in which a search for changes makes new decisions."""
        return SEARCH * self.limit_s


def ask_child(snapshot: Snapshot, effort: Effort, question: str, **arguments: Any) -> Any:
    """Return the answer of a child to a question about a snapshot, as plain data.

    `question` and `arguments` are those of a function of ANSWERS in advice.py.

    Raises
    ------
    NoPlanInTime
        If the child did not answer within the limit.
    UsageError
        If the question cannot be answered, with the reason.
    """
    head = {"ask": question, "arguments": arguments, "effort": vars(effort)}
    child = subprocess.Popen(
        [sys.executable, "-m", "allocator.server.views.advice"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a solver of its own dies with it
    )
    try:
        out, _ = child.communicate(
            json.dumps(head).encode() + b"\n" + pack_snapshot(snapshot), effort.limit_s
        )
    except subprocess.TimeoutExpired:
        raise NoPlanInTime(
            f"no answer within {effort.limit_s:g} s: the round is too large to be decided"
            " several times in that time"
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    try:
        answer: Any = json.loads(out)
    except ValueError:
        raise AllocatorError("the process that decides ended without an answer") from None
    if "error" in answer:
        raise ERRORS.get(answer["exit_code"], AllocatorError)(answer["error"])
    return answer["answer"]


def read_question(connection: Connection, now_s: float, limit_s: float) -> tuple[Snapshot, Effort]:
    """Return the present round of a queue, and how the controller decided the last one.

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
    options: Mapping[str, Any] = last[0].options if last else {}
    return snapshot, Effort(
        last[0].policy if last else "mip",
        options.get("solver", "auto"),
        options.get("gap", GAP),
        options.get("seed", 0),
        limit_s,
    )
