"""philly: one row per job, `timestamp,duration,num_gpus,gpu_time,cluster`, plain or gzip.

The table has no end state, no queueing time and no user. The virtual cluster of a job becomes its
tenant. Rows that repeat another row exactly are dropped. Jobs longer than a week are cut to a week,
unless the options say otherwise: the longest job of the public table is half as long as the trace.

Source of the format: the filtered table of GPU jobs that several schedulers use, derived from the
traces of Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", ATC 2019.
"""

from pathlib import Path

import numpy as np

from allocator.io.traces import assemble
from allocator.io.traces.base import Trace, TraceOptions, sort_out, trace_jobs
from allocator.io.traces.text import csv_rows, integer, missing_columns, number, parse_seconds, text

COLUMNS = (
    text("timestamp"),
    number("duration"),
    integer("num_gpus"),
    text("cluster", required=False),
)
GPUS = 1000
WEEK_H = 168.0


def recognise(source: Path) -> str:
    """Return "" if the first line has the columns of this table, else what is missing."""
    return missing_columns(source, ("timestamp", "duration", "num_gpus", "cluster"))


def read(source: Path, options: TraceOptions) -> Trace:
    """Read all jobs with GPUs and a duration, on one pool. Raises InvalidInput.

    Seconds count from the first submission.
    """
    rows = csv_rows(source, COLUMNS)
    when, dated = parse_seconds(rows, "timestamp")
    first: dict[tuple[object, ...], int] = {}
    for i, row in enumerate(zip(*(rows[column.name] for column in COLUMNS), strict=True)):
        first.setdefault(row, i)
    repeats = np.ones(len(rows), dtype=bool)
    repeats[list(first.values())] = False
    dropped, keep = sort_out(
        {
            "repeat another row": repeats,
            "have no GPU or no duration": (rows["num_gpus"] < 1) | (rows["duration"] <= 0),
        }
    )
    names = [f"philly-{line}" for line in rows.lines]
    whole = trace_jobs(names, when, rows["duration"], rows["num_gpus"], tenant=rows["cluster"])
    jobs, origin = whole.select(keep).begin_at_first()
    return Trace(
        jobs,
        assemble.one_pool(options, "GPU", GPUS),
        len(rows),
        dropped,
        origin_s=origin if dated else np.nan,
        max_hours=WEEK_H,
    )
