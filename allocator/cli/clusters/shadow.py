"""`allocator shadow`: what would have been decided beside a live cluster, and its worth."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from allocator.cli.clusters.observe import LOOK, read_request
from allocator.cli.output import format_csv, note, show_result
from allocator.cli.parsing import (
    POLICY,
    CommandGroup,
    command,
    duration,
    formats,
    option,
    parse_integer,
)
from allocator.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.bench.shadow.record import Look

WATCHING = """
allocator shadow watch slurm shadow.db --every 60s               until it is stopped
allocator shadow watch data/snapshots/demo shadow.db --rounds 1
"""
REPORTING = """
allocator shadow report shadow.db --out shadow.html
"""
EXAMPLES = WATCHING + REPORTING.lstrip()
ABOUT = """\
Beside a live cluster: look at it again and again, decide as `allocator run` would, and record what
the cluster did and what would have been decided. Nothing on the cluster is changed. RECORD is one
file, which a look is added to as a whole, and which holds all that there is to delete."""
WATCH = """\
CLUSTER is a kind of cluster as of `allocator observe`, or a snapshot folder that somebody else
writes again and again. A cluster that does not answer is a gap in the record, not an end. The watch
may be killed at any time and started again with the same record; SIGTERM ends it in order."""
REPORT = """\
Idle GPUs that waiting jobs could have used, jobs that waited while others of lower value ran,
dollars, and the regret of each round. Each figure comes with what it assumes. It may be asked for
while the watch goes on."""


RECORD = option("record", "RECORD", "file of the record, such as shadow.db")


@command(
    "watch",
    "look, decide and record",
    WATCH,
    WATCHING,
    option(
        "cluster",
        "CLUSTER",
        "kind of the cluster, or a snapshot folder; an unknown name lists all kinds",
    ),
    *LOOK,
    RECORD,
    option(
        "--every",
        "TIME",
        "seconds between looks, and length of each round (default: 300)",
        duration(0.05),
        300.0,
    ),
    POLICY,
    option("--rounds", "N", "stop after N looks (default: never)", parse_integer(1)),
)
def watch(args: argparse.Namespace) -> int:
    from allocator.bench.shadow.record import Record
    from allocator.bench.shadow.watching import Watch, observer
    from allocator.cli.queue.run import stop_on_signals
    from allocator.controller.clock import WallClock

    observe = observer(args.cluster, read_request(args), [Path(name) for name in args.add])
    clock, said = WallClock(), set[str]()

    def tell(look: Look, notes: Sequence[str]) -> None:
        note(*(f"note: {line}" for line in notes if line not in said), _describe(look))
        said.update(notes)

    going = Watch(
        Record(Path(args.record)), args.cluster, observe, clock, args.every, args.policy, tell
    )
    with stop_on_signals(going, clock.wake):
        decided = going.run(args.rounds)
    return 0 if decided or going.stopping else 1


def _describe(look: Look) -> str:
    from allocator.bench.shadow.record import ROUND
    from allocator.domain.times import format_time

    begin = f"{format_time(look.at_s)} {look.kind} {look.number}: "
    if look.kind != ROUND:
        return f"{begin}{look.said}"
    figures = look.said
    return (
        f"{begin}value {figures['value']:.6g}, at most {figures['bound']:.6g}, the cluster"
        f" {figures['cluster_value']:.6g}; {figures['usable']} idle GPUs could be used"
    )


@command(
    "report",
    "what a record adds up to",
    REPORT,
    REPORTING,
    RECORD,
    option("--out", "FILE", "write a page, too, such as shadow.html"),
    formats("text", "json", "csv", about="csv has a row for each look"),
)
def report(args: argparse.Namespace) -> int:
    from allocator.bench.shadow.record import Record
    from allocator.bench.shadow.summary import summarise
    from allocator.cli.clusters.shadow_words import COLUMNS, rows, sentences
    from allocator.cli.tables import Table, show

    path = Path(args.record)
    if not path.exists():
        raise UsageError(f'there is no record "{path}"; "allocator shadow watch" makes one')
    found = summarise(Record(path).looks())
    said, table = sentences(found), rows(found)
    if args.out:
        from allocator.report.assessment import Answer, write_shadow

        answer = Answer(said, COLUMNS, table)
        note(f"written to {write_shadow(found, answer, Path(args.out))}")
    show_result(
        args.format,
        found,
        lambda: show([Table(f"beside {found['cluster']}", COLUMNS, table)], said),
        lambda: format_csv(found["looks"]),
    )
    return 0


call = CommandGroup(
    "shadow",
    "beside a live cluster: what it did, and what would have been decided",
    ABOUT,
    EXAMPLES,
    (watch, report),
)
