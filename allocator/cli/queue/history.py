"""`allocator history`, `allocator replay` and `allocator status`: look at a running queue."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from allocator.cli.output import note, print_json, print_lines, show_result, warn
from allocator.cli.parsing import QUEUE, command, flag, formats, option, parse_integer
from allocator.cli.tables import Table, percent, show

if TYPE_CHECKING:
    from allocator.controller.reporting.expected import Outcome

EXAMPLES = """
allocator history cluster.db                     the last rounds
allocator history cluster.db --format json --last 1000
allocator history cluster.db --estimates         what was expected of jobs, and what happened
"""
REPLAY_EXAMPLES = """
allocator replay cluster.db 17                   decide round 17 again and compare
allocator replay cluster.db 17 --out round17     and write its snapshot and plan
"""
STATUS_EXAMPLES = """
allocator status cluster.db                      the leading controller, jobs, pools, the last round
allocator status cluster.db --format json
"""


ROUND = (
    *("number", "at_s", "token", "snapshot_digest", "policy", "status", "outcome"),
    *("value", "bound", "gap", "seconds", "detail"),
)


@command(
    "history",
    "the journal of rounds",
    "Print the journal of a queue, oldest round first.",
    EXAMPLES,
    QUEUE,
    option("--last", "N", "so many rounds (default: 20)", parse_integer(1), 20),
    flag(
        "--estimates",
        "compare the expected starts and ends of each round with what happened",
    ),
    formats("table", "json"),
)
def history(args: argparse.Namespace) -> int:
    from allocator.controller.reporting.expected import measure_estimates
    from allocator.domain.times import format_time
    from allocator.queue.queue import Queue

    with Queue(args.queue) as queue:
        rounds = queue.rounds(limit=args.last)
        with queue.store.read() as connection:
            measured = measure_estimates(connection, args.last) if args.estimates else {}
    if args.format == "json":
        for one in rounds:
            told = {name: asdict(found) for name, found in measured.get(one.number, {}).items()}
            more = {"estimates": told} if args.estimates else {}
            print_json({name: getattr(one, name) for name in ROUND} | more)
        return 0
    ends = ("start", "done") if args.estimates else ()
    rows = [
        (
            r.number,
            format_time(r.at_s),
            *(r.policy, r.status, r.outcome, r.value, r.bound),
            "-" if r.gap is None else percent(r.gap),
            r.seconds.get("decide"),
            *(_describe_outcome(measured.get(r.number, {}).get(name)) for name in ends),
            r.detail,
        )
        for r in rounds
    ]
    told_ends = ("starts as told", "ends as told") if args.estimates else ()
    what = (">round", "at (UTC)", "policy", "status", "outcome", ">value", ">bound", ">gap")
    show([Table("rounds", (*what, ">decided in s", *told_ends, "detail"), rows)])
    return 0


def _describe_outcome(found: Outcome | None) -> str:
    """Return how many outcomes were in the range of 90 %, and the median error."""
    if found is None or found.error is None:
        return "-"
    return f"{found.covered} of {found.number} in range, error {100 * found.error:.0f} %"


@command(
    "replay",
    "decide a round of the journal again",
    "Decide a round again from its snapshot and compare the plans byte by byte. Exit code 1: they"
    " differ.",
    REPLAY_EXAMPLES,
    QUEUE,
    option("round", "ROUND", "its number (default: the last)", parse_integer(1), nargs="?"),
    option("--out", "DIR", "write the snapshot and plan.json there"),
)
def replay(args: argparse.Namespace) -> int:
    from allocator.controller.reporting.replay import replay as decide_again, write
    from allocator.queue.database.connection import open_queue

    store = open_queue(args.queue)
    try:
        found = decide_again(store, args.round)
        if args.out:
            write(store, found, args.out)
    finally:
        store.close()
    said = (
        "the journal has no plan to compare with"
        if found.same is None
        else "the same plan, byte by byte"
        if found.same
        else "the plans differ"
    )
    document = {
        "number": found.number,
        "same": found.same,
        "is_digest_valid": found.is_digest_valid,
        "first_difference": found.first,
        "note": found.note,
    }
    show_result(args.format, document, lambda: print(f"round {found.number}: {said}"))
    if not found.is_digest_valid:
        warn(["the kept snapshot does not have the digest of the journal"])
    if found.first is not None:
        note(f"journal: {found.first[0].strip()}", f"now:     {found.first[1].strip()}")
    if found.note:
        note(found.note)
    return 0 if found.is_digest_valid and found.same is not False else 1


@command(
    "status",
    "what a queue and its controller do",
    "The leading controller, jobs by state, pools, the last round, stuck and parked jobs, corrected"
    " rates.",
    STATUS_EXAMPLES,
    QUEUE,
    formats("table", "json"),
)
def status(args: argparse.Namespace) -> int:
    from allocator.controller.reporting.status import format_status, status as read_status
    from allocator.queue.queue import Queue

    with Queue(args.queue) as queue:
        found = read_status(queue)
    show_result(args.format, found, lambda: print_lines(format_status(found)))
    return 0
