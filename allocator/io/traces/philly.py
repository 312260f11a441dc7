"""philly: one row per job, `timestamp,duration,num_gpus,gpu_time,cluster`, plain or gzip.

The table has no end state, no queueing time and no user. The virtual cluster of a job becomes its
tenant. Rows that repeat another row exactly are dropped. Jobs longer than a week are cut to a week,
unless the options say otherwise: the longest job of the public table is half as long as the trace.

Source of the format: the filtered table of GPU jobs that several schedulers use, derived from the
traces of Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training
Workloads", ATC 2019.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from allocator.io.traces import assemble, curves
from allocator.io.traces.base import Trace, TraceOptions, trace_jobs
from allocator.io.traces.text import csv_rows, integer, missing_columns, number, parse_seconds, text

COLUMNS = (
    text("timestamp"),
    number("duration"),
    integer("num_gpus"),
    text("cluster", required=False),
)
GPUS = 1000
WEEK_H = 168.0

workload = assemble.workload


def recognise(source: Path) -> str:
    """Return "" if the first line has the columns of this table, else what is missing."""
    return missing_columns(source, ("timestamp", "duration", "num_gpus", "cluster"))


def read(source: Path, options: TraceOptions) -> Trace:
    """Read all jobs with GPUs and a duration, on one pool. Raises InvalidInput.

    Seconds count from the first submission.
    """
    rows = csv_rows(source, COLUMNS)
    when, dated = parse_seconds(rows, "timestamp")
    gpus = rows["num_gpus"]
    duration = rows["duration"]
    whole = list(
        zip(rows["timestamp"], duration.tolist(), gpus.tolist(), rows["cluster"], strict=True)
    )
    first = np.zeros(len(rows), dtype=bool)
    first[list({row: i for i, row in reversed(list(enumerate(whole)))}.values())] = True
    works = (gpus >= 1) & (duration > 0)
    keep = np.flatnonzero(first & works)
    origin = float(when[keep].min()) if len(keep) else 0.0
    index = keep.tolist()
    jobs = trace_jobs(
        [f"philly-{rows.lines[i]}" for i in index],
        when[keep] - origin,
        duration[keep],
        gpus[keep],
        curves.draw_curves(len(index), options),
        tenant=[rows["cluster"][i] for i in index],
    )
    dropped = {
        "repeat another row": int((~first).sum()),
        "have no GPU or no duration": int((first & ~works).sum()),
    }
    return Trace(
        jobs,
        assemble.one_pool(options, "GPU", GPUS),
        len(rows),
        dropped,
        origin_s=origin if dated else np.nan,
        max_hours=WEEK_H,
    )
