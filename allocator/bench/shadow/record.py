"""The record of a shadow: one SQLite file, to which each look is added by one transaction.

A process that is killed loses at most the look under way. What a look saw is kept, so that it can
be decided again.
"""

import json
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from allocator.bench.shadow.judging import SAME
from allocator.errors import AllocatorError, UsageError
from allocator.objects import Json

ROUND, GAP, FAULT = "round", "gap", "fault"
WAIT_S = 30.0  # for somebody else who reads or writes
TABLE = """CREATE TABLE IF NOT EXISTS shadow_looks (
    number INTEGER PRIMARY KEY, cluster TEXT NOT NULL, at_s REAL NOT NULL, every_s REAL NOT NULL,
    kind TEXT NOT NULL, said TEXT NOT NULL, seconds REAL NOT NULL, snapshot BLOB, plan BLOB
)"""
INSERT = """INSERT INTO shadow_looks VALUES (
    NULL, :cluster, :at_s, :every_s, :kind, :said, :seconds, :snapshot, :plan
)"""
LONGEST = 2.0  # intervals that a look stands for at most
NAMED = 5  # jobs that are named
HOUR_S = 3600.0


@dataclass(frozen=True)
class Look:
    """One look at a cluster.

    Attributes
    ----------
    cluster : str
        Name of its adapter, or its folder.
    at_s, every_s : float
        When it was, in unix seconds, and the seconds between two looks.
    kind : str
        ROUND; GAP: the cluster did not answer; FAULT: what it answered could not be decided.
    said : mapping or str
        The figures of a round (`judge`); of a gap or a fault why.
    seconds : float
        How long observing and deciding took.
    snapshot : bytes, optional
        What was seen (`pack_snapshot`); None: nothing was, or it was not asked for.
    plan : str
        plan.json of a round.
    number : int
        Its place in the record; 0: it is not there yet.
    """

    cluster: str
    at_s: float
    every_s: float
    kind: str
    said: Any
    seconds: float = 0.0
    snapshot: bytes | None = None
    plan: str = ""
    number: int = 0


class Record:
    """The looks of a file.

    Parameters
    ----------
    path : Path
        The file; the first look that is added makes it. Raises UsageError if it is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists():
            with self._open() as connection:
                tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
            # without a table: whoever made it was killed before the end of the first look
            if tables not in ([], [("shadow_looks",)]):
                raise UsageError(f'"{path}" is no record of allocator shadow')

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Give a connection, whose changes are one transaction. Raises AllocatorError."""
        try:
            connection = sqlite3.connect(self.path, timeout=WAIT_S)
            try:
                with connection:
                    yield connection
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise AllocatorError(f'the record "{self.path}" cannot be used: {error}') from error

    def add(self, look: Look) -> Look:
        """Add a look; return it with its number.

        Raises
        ------
        AllocatorError
            If it cannot be written; the looks before it are not harmed.
        """
        said, plan = json.dumps(look.said), zlib.compress(look.plan.encode())
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(TABLE)
            row = {**vars(look), "said": said, "plan": plan}
            number = connection.execute(INSERT, row).lastrowid
        return replace(look, number=number or 0)

    def looks(self, whole: bool = False) -> Iterator[Look]:
        """Yield the looks in their order; what was seen and planned only with `whole`."""
        if not self.path.exists():
            return
        columns = "*" if whole else "number, cluster, at_s, every_s, kind, said, seconds"
        with self._open() as connection:
            if not connection.execute("SELECT name FROM sqlite_master").fetchall():
                return
            connection.row_factory = sqlite3.Row
            for row in connection.execute(f"SELECT {columns} FROM shadow_looks ORDER BY number"):
                plan = {"plan": zlib.decompress(row["plan"]).decode()} if whole else {}
                yield Look(**{**row, **plan, "said": json.loads(row["said"])})


def summarise(looks: Iterable[Look]) -> Json:
    """Return what the looks add up to, as JSON values. Raises UsageError if there are none.

    Each look stands for the time until the next one, at most LONGEST intervals, the last one for
    its interval. `rounds`, `gaps` and `faults` count looks; hours are those of rounds.
    """
    seen = list(looks)
    if not seen:
        raise UsageError("the record has no look yet")
    after = [look.at_s for look in seen[1:]] + [seen[-1].at_s + seen[-1].every_s]
    rows = [
        _row(look, max(0.0, min(until - look.at_s, LONGEST * look.every_s)) / HOUR_S)
        for look, until in zip(seen, after, strict=True)
    ]
    kinds = Counter(look.kind for look in seen)
    rounds = [row for row in rows if row["kind"] == ROUND]
    regretted = [r for r in rounds if r["regret"] > SAME * abs(r["value"])]
    waited: Counter[str] = Counter()
    for row in rounds:
        waited.update(dict.fromkeys(row["passed_over"], row["hours"]))

    def add_up(name: str, by_hours: bool = False) -> float:
        """Return the sum of a figure over all rounds, as it is or for the hours that it stood."""
        chosen = (row for row in rounds if row[name])
        return float(sum(row[name] * (row["hours"] if by_hours else 1) for row in chosen))

    def percent_above(name: str) -> float | None:
        """Return by how much a sum is above that of the cluster; None if that is not above 0."""
        worth = add_up("cluster_value")
        return 100.0 * (add_up(name) - worth) / worth if worth > 0 else None

    hours, jobs = add_up("hours"), max(1, add_up("jobs"))
    has_price = any(row["usable_per_hour"] is not None for row in rounds)
    return {
        "cluster": seen[0].cluster,
        "from_s": seen[0].at_s,
        "to_s": after[-1],
        "every_s": seen[-1].every_s,
        "rounds": kinds[ROUND],
        "gaps": kinds[GAP],
        "faults": kinds[FAULT],
        "hours": hours,
        "unseen_hours": max(0.0, round((after[-1] - seen[0].at_s) / HOUR_S - hours, 9)),
        **{f"{name}_gpu_hours": add_up(name, True) for name in ("gpus", "used", "usable")},
        "usable_dollars": add_up("usable_per_hour", True) if has_price else None,
        "passed_over": len(waited),
        "passed_over_hours": sum(waited.values()),
        "longest_passed_over": dict(waited.most_common(NAMED)),
        "regretted": len(regretted),
        "regret_percent": percent_above("value"),
        "bound_percent": percent_above("bound"),
        "broken": sum(bool(row["broken"]) for row in rounds),
        "rigid_percent": 100.0 * add_up("rigid") / jobs,
        "assumed_percent": 100.0 * add_up("assumed") / jobs,
        "policies": sorted({f"{row['policy']}, objective {row['objective']}" for row in rounds}),
        "looks": rows,
    }


def _row(look: Look, hours: float) -> Json:
    """Return a look with the hours that it stands for; a round with its figures and its regret."""
    row: Json = {
        "number": look.number,
        "at_s": look.at_s,
        "kind": look.kind,
        "hours": hours,
    }
    if look.kind != ROUND:
        return row | {"why": look.said}
    value, bound = (look.said[name] - look.said["cluster_value"] for name in ("value", "bound"))
    return {**row, **look.said, "regret": value, "regret_bound": bound}
