"""Decide rounds for a request, in a child process that is killed at its time limit.

Explanations and what-ifs decide the present round again, several times. So that no request waits
longer than stated, and no fault of a decision harms the service, a child does it: it gets the
snapshot and the question on standard input, and answers with JSON on standard output.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from allocator.controller import profiling, spending
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot
from allocator.errors import AllocatorError, NoPlanInTime, UsageError
from allocator.loop.live_rental import LiveRental
from allocator.market.books import RENTAL_TABLE as RENTAL
from allocator.queue import round_journal
from allocator.queue.errors import QueueUnavailable
from allocator.queue.snapshot import build_snapshot, pack_snapshot
from allocator.solvers.base import SolveLimits
from allocator.solvers.effort import GAP

LIMIT_S = 20.0  # seconds that a child may take
SHARE = 0.15  # part of it that one decision may take
SEARCH = 0.4  # part of it in which a search for changes makes new decisions
MOST = 2  # children at a time
ERRORS: Mapping[int, type[AllocatorError]] = {2: UsageError, 3: UsageError, 4: UsageError}


@dataclass(frozen=True)
class Effort:
    """How rounds are decided: as the controller decided the last one, but with other limits."""

    policy: str
    solver: str
    time_s: float
    gap: float
    seed: int
    search_s: float

    @property
    def limits(self) -> SolveLimits:
        """The limits of one decision."""
        return SolveLimits(self.time_s, self.gap, 1, self.seed)


@dataclass(frozen=True)
class Deciders:
    """The children of one service: how long each may take, and how many there are at a time."""

    limit_s: float = LIMIT_S
    most: int = MOST
    _free: threading.BoundedSemaphore = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_free", threading.BoundedSemaphore(self.most))

    def ask(self, snapshot: Snapshot, effort: Effort, question: Mapping[str, Any]) -> Any:
        """Return the answer of a child to a question about a snapshot.

        Raises
        ------
        QueueUnavailable
            If all children are busy.
        NoPlanInTime
            If the child did not answer within the limit.
        UsageError
            If the question cannot be answered, with the reason.
        """
        if not self._free.acquire(blocking=False):
            raise QueueUnavailable(
                f"{self.most} other questions are being decided; ask again in a moment"
            )
        try:
            return self._ask_child(snapshot, effort, question)
        finally:
            self._free.release()

    def _ask_child(self, snapshot: Snapshot, effort: Effort, question: Mapping[str, Any]) -> Any:
        head = {**question, "effort": vars(effort), "limit_s": self.limit_s}
        child = subprocess.Popen(
            [sys.executable, "-m", "allocator.server.views.decider"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a solver of its own dies with it
        )
        try:
            out, _ = child.communicate(
                json.dumps(head).encode() + b"\n" + pack_snapshot(snapshot), self.limit_s
            )
        except subprocess.TimeoutExpired:
            raise NoPlanInTime(
                f"no answer within {self.limit_s:g} s: the round is too large to be decided"
                " several times in that time"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        try:
            answer = json.loads(out)
        except ValueError:
            raise AllocatorError("the process that decides ended without an answer") from None
        if "error" in answer:
            kind = ERRORS.get(answer["exit_code"], AllocatorError)
            if answer["exit_code"] == NoPlanInTime.exit_code:
                kind = NoPlanInTime
            raise kind(answer["error"])
        return answer["result"]


def read_question(connection: Connection, now_s: float, limit_s: float) -> tuple[Snapshot, Effort]:
    """Return the present round of a queue, and how the controller decided the last one.

    The prices and limits of long-run budgets, and the speeds that trials have shown, are those that
    the controller would take now.
    """
    snapshot = build_snapshot(connection, now_s)
    if profiling.is_enabled(snapshot.config):
        snapshot = profiling.use_fits(snapshot, profiling.read(connection))
    if "average_per_hour" in snapshot.config.get(RENTAL, {}) or spending.report(connection):
        problem = validate(snapshot)
        snapshot, _, _ = spending.apply_budgets(connection, snapshot, problem, LiveRental())
    last = round_journal.history(connection, limit=1)
    options: Mapping[str, Any] = last[0].options if last else {}
    return snapshot, Effort(
        last[0].policy if last else "mip",
        options.get("solver", "auto"),
        SHARE * limit_s,
        options.get("gap", GAP),
        options.get("seed", 0),
        SEARCH * limit_s,
    )
