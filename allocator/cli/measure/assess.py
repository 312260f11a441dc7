"""`allocator assess`: a site's past replayed, to see what this allocator would change."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.cli.output import note, progress_bar, show_result, warn
from allocator.cli.parsing import (
    command,
    duration,
    flag,
    many,
    number,
    option,
    parse_integer,
    take,
)
from allocator.cli.tables import Table, show

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES = """
allocator assess data/examples/history
allocator assess data/examples/history --elastic-share 0.5 --out answer
"""
ABOUT = """\
HISTORY is a workload whose workload.csv says when jobs started and ended (recorded_start_s,
recorded_end_s), as `allocator import` writes it. The site's own scheduler (policy easy, or slurm
where there are nodes) is simulated and compared with the record; then this allocator gets the same
jobs, rigid, or elastic as far as you say. Every figure comes with what it assumes. With --out,
DIR/report.html has the table and a picture, DIR/assessment.json all numbers."""


def _shares(text: str) -> tuple[float, ...]:
    found = many(number())(text)
    if any(share > 1 for share in found):
        raise argparse.ArgumentTypeError(f"{text}: a share is a number from 0 to 1")
    return tuple(share for share in found if share > 0)


def _range(text: str) -> tuple[float, float]:
    try:
        low, high = map(number(), text.split(".."))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not LOW..HIGH") from None
    if not low <= 1 <= high:
        raise argparse.ArgumentTypeError(f"{text} does not hold 1, the size asked for")
    return low, high


@command(
    "assess",
    "your cluster's past, replayed: what would change",
    ABOUT,
    EXAMPLES,
    option("history", "HISTORY", "folder with workload.csv, pools.csv ..."),
    option(
        "--elastic-share",
        "A,B",
        "shares of the jobs, from 0 to 1, that may use other sizes than they asked for",
        _shares,
        (),
        dest="shares",
    ),
    option(
        "--elastic-range",
        "LOW..HIGH",
        "their sizes, as multiples of the GPUs asked for (default: 0.5..2)",
        _range,
        (0.5, 2.0),
        dest="span",
    ),
    option(
        "--elastic-curves",
        "A,B",
        "their speed on k GPUs is k / (1 + c (k - 1)) for each c given, which makes the figures"
        " a range (default: 0.005,0.15, the best and the worst published)",
        many(number()),
        dest="curves",
    ),
    option(
        "--react",
        "TIME",
        "this allocator decides TIME after an arrival or a completion (default: 60)",
        duration(1e-3),
        60.0,
        dest="react_s",
    ),
    option(
        "--every",
        "TIME",
        "time between its rounds (default: as the history says)",
        duration(1e-3),
        dest="every_s",
    ),
    flag(
        "--no-progress",
        "jobs that are never stopped do not report to it what they have done",
        dest="progress",
        action="store_false",
        default=True,
    ),
    option("--seed", "N", "which jobs are elastic", parse_integer(0), 0),
    option("--out", "DIR", "folder of the page"),
)
def call(args: argparse.Namespace) -> int:
    from allocator import read_workload
    from allocator.bench.assess.assessing import Question, assess
    from allocator.cli.measure.assess_words import COLUMNS, intervals, rows, sentences
    from allocator.io.plans import dumps, write_files

    workload = read_workload(args.history)
    warn(workload.problem.warnings)
    with progress_bar(is_counted=False) as bar:
        row = bar.add_task("", total=1.0)
        found = assess(
            workload,
            take(Question, args),
            lambda what, share: bar.update(row, description=what, completed=share),
        )
    said = [*sentences(found), intervals(found)]
    if args.out:
        from allocator.report.assessment import Answer, write_assessment

        each = zip(rows(found), found["cases"], strict=True)
        table = [(*row, "; ".join(case["assuming"])) for row, case in each]
        page = write_assessment(found, Answer(said, (*COLUMNS, "assuming"), table), Path(args.out))
        write_files(page.parent, {"assessment.json": dumps(found)})
        note(f"written to {args.out}: {page.name}, assessment.json")
    show_result(args.format, found, lambda: _show(found, said))
    return 0


def _show(found: Mapping[str, Any], said: list[str]) -> None:
    from allocator.cli.measure.assess_words import COLUMNS, rows

    names, *lines = zip(*rows(found), strict=True)
    table = Table(
        f"{found['history']}: {found['jobs']:,} jobs, {found['gpus']:,} GPUs",
        ("", *(f">{name}" for name in names)),
        [(column, *line) for column, line in zip(COLUMNS[1:], lines, strict=True)],
    )
    show([table], said)
    print()
    for case in found["cases"]:
        print(f"{case['name']} assumes: {'; '.join(case['assuming'])}")
