"""Files and columns of a workload folder, derived from those of a snapshot (columns.py).

The rules are those of docs/reference/rules.md, R50. A job of a workload has not started. So there
are no columns for what a job holds, has left, or has had so far.
"""

from collections.abc import Mapping
from dataclasses import replace

from allocator.domain.schema.columns import (
    CONFIG,
    DECLARED,
    JOBS,
    NODES,
    OVER_TIME,
    PLACEMENTS,
    PRICES,
    RECEIVED,
    TABLES,
    Column,
    TableSchema,
    read_columns,
)
from allocator.objects import Record

UNDER_WAY = (
    "remaining_work",
    "state",
    "pool",
    "gpus",
    "attained_gpu_s",
    "restarts",
    "largest_gpus",
    "shared_with",
    "loss_work",
    "loss_error",
)
"""Columns of jobs.csv that only a job which has started can have."""
FIRST = ("job_id", "submitted_s", "model", "total_work", "requested_gpus", "min_gpus", "max_gpus")
DOCS = {
    "submitted_s": "time of submission, seconds on the clock of the workload",
    "total_work": "whole work of the job, in the model's unit",
    "after": "starts when these jobs of the workload are done",
}


def _column(name: str) -> Column:
    column = JOBS.column(name)
    return replace(
        column,
        doc=DOCS.get(name, column.doc),
        required=column.required or name == "total_work",
        default=None if name == "total_work" else column.default,
    )


CELLS = read_columns(DECLARED["sessions"])
RECORDED = read_columns(DECLARED["recorded"])
CHANGEABLE = ("weight", "min_gpus", "max_gpus", "requested_gpus", "sizes", "deadline_s")
"""Columns of a job that its owner may change while the job is in a queue."""
FILTERS = ("model", "tenant", "cluster")
"""Columns of a job by which lists of jobs are filtered."""

WORKLOAD = TableSchema(
    "workload.csv",
    "every job that is ever submitted, in any order",
    (
        *map(_column, FIRST),
        *(_column(c.name) for c in JOBS.columns if c.name not in (*FIRST, *UNDER_WAY)),
        *CELLS,
        *RECORDED,
    ),
    key=("job_id",),
    required=True,
)

CAPACITY = TableSchema(
    "capacity.csv",
    "machines that come and go; at the same time it wins over gpus of prices.csv",
    (*(PRICES.column(name) for name in PRICES.key), replace(PRICES.column("gpus"), required=True)),
    key=PRICES.key,
)


NODE_EVENTS = TableSchema(
    "node_events.csv",
    "states of nodes over time",
    (
        PRICES.column("at_s"),
        PLACEMENTS.column("node"),
        replace(NODES.column("state"), doc="its state from this time on", required=True),
        replace(
            NODES.column("leaves_s"),
            name="announced_s",
            doc="from when on rounds know of it; default never",
        ),
    ),
    key=("at_s", "node"),
)

NOT_STARTED = {table.file: table for table in (PLACEMENTS, RECEIVED)}
"""Tables of a snapshot that a workload leaves empty."""
OF_WORKLOADS = {JOBS: (WORKLOAD,), PRICES: (PRICES, CAPACITY), NODES: (NODES, NODE_EVENTS)}
"""Tables of a workload in place of a table of a snapshot."""
WORKLOAD_TABLES: Mapping[str, TableSchema] = {
    # in words that fit a workload
    t.file: replace(
        t,
        columns=tuple(replace(c, doc=c.doc.replace(JOBS.file, WORKLOAD.file)) for c in t.columns),
    )
    for table in TABLES.values()
    if table.file not in NOT_STARTED
    for t in OF_WORKLOADS.get(table, (table,))
}

START = "when the workload starts; default, and at the latest, the earliest submitted_s"
_OTHERWISE: Mapping[str, Record] = {
    "now_s": {"doc": START},
    # a simulation has to know how fast jobs run, unless its user says that it need not
    "unknown_models": {
        "doc": "a job of a model without any rate: assume, it runs at requested_gpus at an assumed"
        " speed; refuse, it is a fault",
        "default": "refuse",
    },
    **{name: {"default": value} for name, value in OVER_TIME.items()},
}
WORKLOAD_CONFIG: tuple[Column, ...] = (
    *(replace(c, **_OTHERWISE.get(c.name, {})) for c in CONFIG),
    *read_columns(DECLARED["workload_config"]),
)
