"""`allocator report`: the page and pictures of a simulation or of a benchmark."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """
allocator report results                         of `allocator simulate WORKLOAD --out results`, or of a benchmark
allocator report results --out week-47.html      elsewhere; pictures go to the folder `pictures` beside it
"""
ABOUT = """\
Write DIR/report.html, one file that needs neither network nor scripts, and its pictures as PNG and SVG in
DIR/pictures. DIR is what `allocator simulate`, `allocator bench policies` or `allocator bench solvers` left with --out
DIR. The path of the page goes to standard output."""


def add(commands: Any) -> None:
    parser = commands.add_parser("report", examples=EXAMPLES, help="page and pictures of a simulation or benchmark",
                                 description=ABOUT)
    parser.add_argument("folder", metavar="DIR", help="folder of the results")
    parser.add_argument("--out", metavar="FILE", help="the HTML file (default: DIR/report.html)")
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> int:
    from allocator.report.folders import write_report

    print(write_report(args.folder, args.out))
    return 0
