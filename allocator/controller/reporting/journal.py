"""The replay of recorded rounds.

A replay decides a recorded round again. From the same snapshot, policy, effort and prices it gets
the same plan, byte by byte. It reports the exceptions: a search that a time limit ended, another
version of a solver, and a round whose snapshot is no longer kept.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import zip_longest

from allocator.controller import guarded_decision
from allocator.domain.rules.snapshot_rules import validate
from allocator.domain.snapshot import Snapshot
from allocator.engine.decision import decide_round
from allocator.errors import UsageError
from allocator.io.plans import read_plan_text
from allocator.objects import Json
from allocator.queue import round_journal, snapshot as snapshots
from allocator.queue.database.connection import QueueDatabase
from allocator.solvers.base import SolveLimits

# how a plan was found and proven, which another version of a solver may do in another way
SEARCH_FIELDS = ("solver", "solver_version", "solver_choice", "status", "bound", "gap", "bound_by")


@dataclass(frozen=True)
class Replay:
    """A round of the journal that was decided again.

    Attributes
    ----------
    number : int
        Number of the round.
    is_digest_valid : bool
        The kept snapshot has the digest that the journal gives.
    same : bool or None
        The plan equals that of the journal byte by byte; None: the journal has no plan.
    first : tuple of (str, str)
        The first lines that differ, of the journal and of now.
    snapshot : Snapshot
        What was decided.
    plan : str
        The plan as decided now: plan.json without timings.
    note : str
        Why a difference is expected; "" if it is not.
    """

    number: int
    is_digest_valid: bool
    same: bool | None
    first: tuple[str, str] | None
    snapshot: Snapshot
    plan: str
    note: str


def replay(store: QueueDatabase, number: int | None = None) -> Replay:
    """Decide a round again; number None: the last round.

    Raises
    ------
    UsageError
        If the snapshot of the round is no longer kept, or it never had one.
    AllocatorError
        Whatever the decision raises, as it did then.
    """
    with store.read() as connection:
        entry = round_journal.read(connection, number)
    if entry.snapshot is None:
        why = (
            "it is not kept so long"
            if entry.snapshot_digest
            else f"it failed before there was one: {entry.detail}"
        )
        raise UsageError(f"round {entry.number} has no snapshot to decide: {why}")
    snapshot = snapshots.unpack_snapshot(entry.snapshot)
    options = entry.options
    # a round that no time limit ended is decided without one, so that a slow machine finds the
    # same plan
    limit = math.inf if entry.plan is not None else options["time_limit_s"] or math.inf
    problem = validate(snapshot)
    decision = decide_round(
        problem,
        policy=entry.policy,
        solver=options["solver"],
        limits=SolveLimits(limit, options["gap"], options["threads"], options["seed"]),
        memory=guarded_decision.memory_from_json(options["memory"]),
    )
    before = None if entry.plan is None else read_plan_text(entry.plan)
    plan = guarded_decision.format_plan(problem, decision, entry.policy, options["seed"])
    first = None if before is None or before == plan else _first_difference(before, plan)
    note = ""
    if first is not None and before is not None:
        if '"termination": "time_limit"' in before:
            note = "the search of the journal's plan was ended by its time limit"
        elif _drop_search(before) == _drop_search(plan):
            note = "the decision is the same; it was found or proven in another way"
    return Replay(
        entry.number,
        snapshot.digest == entry.snapshot_digest,
        None if before is None else first is None,
        first,
        snapshot,
        plan,
        note,
    )


def _drop_search(plan: str) -> Json:
    """Return a plan without what says how it was found and proven."""
    fields = json.loads(plan)
    return {name: fields[name] for name in fields if name not in SEARCH_FIELDS}


def _first_difference(before: str, now: str) -> tuple[str, str]:
    """Return the first lines that differ."""
    lines = zip_longest(before.splitlines(), now.splitlines(), fillvalue="")
    return next((pair for pair in lines if pair[0] != pair[1]), ("", ""))


def write(replayed: Replay, folder: str) -> None:
    """Write the snapshot of the round for `allocator solve`, and the plan as decided now."""
    from pathlib import Path

    from allocator.io.plans import PLAN_JSON, write_files
    from allocator.io.snapshots import write_snapshot

    path = write_snapshot(replayed.snapshot, Path(folder))
    write_files(path, {PLAN_JSON: replayed.plan})
