"""`allocator report`: the page and pictures of a simulation, of a benchmark or of a queue."""

from __future__ import annotations

import argparse
from pathlib import Path

from allocator.cli.output import has_progress, note, show_result
from allocator.cli.parsing import command, folder_or_queue, option, parse_integer

EXAMPLES = """
allocator report results                         of `allocator simulate WORKLOAD --out results`, \
or of a benchmark
allocator report results --out week-47.html      elsewhere; pictures go to the folder `pictures` \
next to it
allocator report cluster.db --last 200           the last 200 rounds of a queue that `allocator \
run` runs
"""
ABOUT = """\
Write DIR/report.html, one file that needs neither network nor scripts, and its pictures as SVG
in DIR/pictures. DIR is what `allocator simulate`, `allocator bench policies` or `allocator
bench solvers` left with --out DIR. Of a queue (path or database URL) the page shows its journal,
who held which GPUs, and its jobs; it is written to QUEUE.report. Of a plan on nodes (DIR of
`allocator solve --out DIR`, and --snapshot) it shows which job gets which GPUs. The path of
the page goes to standard output."""


@command(
    "report",
    "page and pictures of results or of a queue",
    ABOUT,
    EXAMPLES,
    folder_or_queue("DIR|QUEUE", "folder of the results"),
    option(
        "--out",
        "OUT",
        "the page NAME.html, or the folder for report.html (default: DIR, QUEUE.report)",
    ),
    option("--last", "N", "rounds of a queue to show (default: 1000)", parse_integer(1)),
    option(
        "--snapshot",
        "SNAPSHOT",
        "of a plan: the snapshot that was decided (default: in the folder of the plan)",
    ),
)
def call(args: argparse.Namespace) -> int:
    from allocator.errors import UsageError
    from allocator.report.folders import write_report

    source = args.folder_or_queue
    if has_progress():
        note(f"drawing the report of {source}: seconds, minutes for a large benchmark")
    if "://" in source or Path(source).is_file():
        from allocator.server.pages.written import LAST, write_queue_report

        page = write_queue_report(source, args.out, args.last or LAST)
    elif args.last is not None:
        raise UsageError(f'"{source}" is a folder; only queues have a last round')
    else:
        page = write_report(source, args.out, args.snapshot)
    show_result(args.format, {"report": str(page)}, lambda: print(page))
    return 0
