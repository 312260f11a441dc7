"""Columns of jobs.csv as options of the queue's command line."""

from __future__ import annotations

from collections.abc import Iterator

from allocator.cli.parsing import Add, option
from allocator.domain.schema.columns import JOBS, RULE, ColumnKind
from allocator.domain.schema.workload_columns import CELLS, RECORDED, WORKLOAD

NAMES = tuple(c.name for c in WORKLOAD.columns if c not in (*CELLS, *RECORDED))
"""Those that `allocator queue submit` sets."""
WORDS = {
    "job_id": "unique name (default: made of the model and a number; then give a --key)",
    "deadline_s": "by which it should be done: 2h from now, a date, or unix seconds",
    "submitted_s": "from which on it counts, as for the deadline (default: now)",
    "total_work": "whole work of the job, in the model's unit",
}
METAVARS = {
    ColumnKind.INTEGER: "N",
    ColumnKind.BOOLEAN: "BOOL",
    ColumnKind.INTEGERS: "N|N",
    ColumnKind.TEXTS: "NAME|NAME",
}


def job_options(*names: str) -> Iterator[Add]:
    """Yield options for columns of jobs, whose help is what the schema says of them."""
    for name in names:
        column = JOBS.column(name)
        number = "TIME" if name.endswith("_s") else "X"
        metavar = number if column.kind is ColumnKind.NUMBER else METAVARS.get(column.kind, "NAME")
        words = WORDS.get(name, column.doc).replace("%", "%%")
        if column.default not in (None, "", RULE) and "default" not in words:
            words += f" (default: {str(column.default).lower().removesuffix('.0')})"
        yield option(f"--{name.replace('_', '-')} {metavar}", words)


PROGRESS_OPTIONS = (
    option(
        "--progress-log REGEX",
        "finds its progress in what it logs: (?P<work>...) or (?P<step>...)",
    ),
    option("--progress-url URL", "its metrics as text of Prometheus"),
    option("--progress-metric NAME", "metric there that counts its work"),
)
"""How its progress is seen."""
