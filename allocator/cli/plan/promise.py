"""`allocator promise`: which deadlines can still be promised together."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from allocator.cli.models.sources import read_problem
from allocator.cli.output import SCHEMA_VERSION, format_csv, note, show_result
from allocator.cli.parsing import SNAPSHOT, command, formats, option
from allocator.cli.tables import Table, show, text

EXAMPLES = """
allocator promise data/examples/deadlines                   which deadlines can be kept, and why \
the others cannot
allocator promise my-cluster --format csv > promises.csv    every job, with the earliest deadline \
to offer
allocator promise my-cluster --out answers                  promises.csv and promises.json
"""


@command(
    "promise",
    "which deadlines can still be promised, all together",
    "Promises deadlines to running jobs first, then by submission, each as long as all"
    " promises can be kept together by one plan; tells why the others cannot, and the"
    " earliest deadline that could be promised to them or to jobs without one. The table"
    " shows jobs with deadlines; csv and json all.",
    EXAMPLES,
    SNAPSHOT,
    option("--out", "DIR", "write promises.csv and promises.json there"),
    formats("table", "json", "csv"),
)
def call(args: argparse.Namespace) -> int:
    from allocator.engine.promises import promises
    from allocator.io.plans import dumps, write_files

    problem = read_problem(args.snapshot)
    found = promises(problem)
    document = {
        "schema_version": SCHEMA_VERSION,
        "now_s": problem.now_s,
        "wanted": found.wanted,
        "kept": found.kept,
        "most": found.most,
        "jobs": [a.to_dict() for a in found.jobs],
    }
    rows = format_csv([a.to_dict() for a in found.jobs], 10)
    if args.out:
        files = {"promises.csv": rows, "promises.json": dumps(document) + "\n"}
        write_files(Path(args.out), files)
        note(f"written to {args.out}: {', '.join(files)}")
    show_result(args.format, document, lambda: _table(found, problem.now_s), lambda: rows)
    return 0


def _table(found: Any, now_s: float) -> None:
    def hours(at: float | None) -> str:
        return text(None if at is None else (at - now_s) / 3600.0)

    if not found.wanted:
        print(
            "no job has a deadline (column deadline_s of jobs.csv); --format csv has the earliest"
            " to offer to each"
        )
        return
    rows = [
        (
            a.job_id,
            "yes" if a.promised else "no",
            *(hours(at) for at in (a.due_s, a.done_s, a.earliest_s)),
            *(a.pool, a.gpus_now, a.most_gpus),
            a.reason or "-",
        )
        for a in sorted(found.jobs, key=lambda a: (a.due_s or 0.0, a.job_id))
        if a.promised is not None
    ]
    what = ("job", "promised", ">due in h", ">done in h", ">could be in h", "pool", ">GPUs now")
    show(
        [Table("deadlines", (*what, ">most", "reason"), rows)],
        [
            f"{found.kept} of {found.wanted} deadlines can be promised together; no plan keeps more"
            f" than {found.most}"
        ],
    )
