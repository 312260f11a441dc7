"""`allocator report`: the page and pictures of a simulation, of a benchmark or of a queue."""

from __future__ import annotations

import argparse
from pathlib import Path

from allocator.cli.output import has_progress, note, show_result
from allocator.cli.parsing import command, folder_or_queue, option, parse_integer

EXAMPLES = """
allocator report results                         of `allocator simulate WORKLOAD --out results`
allocator report results --out week-47.html      elsewhere
allocator report cluster.db --last 200           the last 200 rounds of a queue
"""
ABOUT = """\
Write a report as one HTML file, report.html, which needs neither a network nor scripts. Its
pictures are also written as SVG files to the folder `pictures` beside it. The path of the report
goes to standard output.

DIR is the folder that `allocator simulate`, `allocator bench policies` or `allocator bench solvers`
wrote with --out. The report of a queue (path or database URL) shows its overview, rounds, tenants
and jobs, and is written to the folder QUEUE.report. If DIR is a plan on nodes, written by
`allocator solve --out DIR`, the report shows which job has which GPUs; --snapshot names the
snapshot of the plan."""


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
