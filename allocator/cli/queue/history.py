"""`allocator history`, `allocator replay` and `allocator status`: look at a running queue."""

from argparse import Namespace
from dataclasses import asdict

from allocator import Queue
from allocator.cli.output import Answer, Columns, Table, Values, note, percent, pick, text_of, warn
from allocator.controller.reporting.expected import measure_estimates
from allocator.domain.times import format_time
from allocator.queue.database.connection import open_queue

ROUND = (
    *("number", "at_s", "token", "snapshot_digest", "policy", "status", "outcome"),
    *("value", "bound", "gap", "seconds", "detail"),
)


def history(args: Namespace) -> Answer:
    with Queue(args.queue) as queue:
        rounds = queue.rounds(limit=args.last)
        with queue.store.read() as connection:
            measured = measure_estimates(connection, args.last) if args.estimates else {}
    rows = [pick(round_, *ROUND) for round_ in rounds]
    columns: Columns = {
        ">round": "number",
        "at (UTC)": lambda row: format_time(row["at_s"]),
        **{name: name for name in ("policy", "status", "outcome")},
        ">value": "value",
        ">bound": "bound",
        ">gap": lambda row: "-" if row["gap"] is None else percent(row["gap"]),
        ">decided in s": lambda row: row["seconds"].get("decide"),
    }
    if args.estimates:
        for row in rows:
            outcomes = measured.get(row["number"], {})
            row["estimates"] = {name: asdict(outcome) for name, outcome in outcomes.items()}
        columns |= {
            "starts as told": lambda row: _describe_outcome(row["estimates"].get("start")),
            "ends as told": lambda row: _describe_outcome(row["estimates"].get("done")),
        }
    return Answer(rows, [Table.of("rounds", rows, columns | {"detail": "detail"})])


def _describe_outcome(tally: Values | None) -> str:
    """Return how many outcomes were in the range of 90 %, and the median error."""
    if tally is None or tally["error"] is None:
        return "-"
    return f"{tally['covered']} of {tally['number']} in range, error {100 * tally['error']:.0f} %"


def replay(args: Namespace) -> Answer:
    from allocator.controller.reporting import journal as replaying

    store = open_queue(args.queue)
    try:
        replayed = replaying.replay(store, args.round)
        if args.out:
            replaying.write(replayed, args.out)
    finally:
        store.close()
    verdict = (
        "the journal has no plan to compare with"
        if replayed.same is None
        else "the same plan, byte by byte"
        if replayed.same
        else "the plans differ"
    )
    document = {
        **pick(replayed, "number", "same", "is_digest_valid"),
        "first_difference": replayed.first,
        "note": replayed.note,
    }
    if not replayed.is_digest_valid:
        warn(["the kept snapshot does not have the digest of the journal"])
    if replayed.first is not None:
        note(f"journal: {replayed.first[0].strip()}", f"now:     {replayed.first[1].strip()}")
    return Answer(
        document,
        f"round {replayed.number}: {verdict}\n",
        exit_code=0 if replayed.is_digest_valid and replayed.same is not False else 1,
        notes=[replayed.note] if replayed.note else [],
    )


def status(args: Namespace) -> Answer:
    from allocator.controller.reporting.status import format_status, status as read_status

    with Queue(args.queue) as queue:
        report = read_status(queue)
    return Answer(report, text_of(format_status(report)))
