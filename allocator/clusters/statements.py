"""What a job of a cluster says of itself: columns of jobs.csv, and the source of its progress."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from allocator.domain.findings import did_you_mean
from allocator.domain.schema.columns import JOBS, Column, ColumnKind

KEY = "allocator"  # of the JSON object in which a job states its fields
JOB_FIELDS = (  # columns of jobs.csv that a job may state
    "model",
    "total_work",
    "remaining_work",
    "min_gpus",
    "max_gpus",
    "sizes",
    "weight",
    "deadline_s",
    "preemptible",
    "restart_s",
    "resizes_left",
    "memory_gb",
    "checkpoint_s",
    "checkpoint_every_s",
    "synchronous",
    "placement",
)


def find_faults(fields: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with columns of jobs.csv that a job or a partition states."""
    faults = []
    for name, value in fields.items():
        if name not in JOB_FIELDS:
            faults.append(f'no parameter "{name}"{did_you_mean(name, JOB_FIELDS)}')
        elif not _fits(JOBS.column(name), value):
            faults.append(f"{name} cannot be {json.dumps(value)[:40]}")
    low, high = fields.get("min_gpus", 1), fields.get("max_gpus", math.inf)
    if not faults and low > high:
        faults.append(f"min_gpus {low} is above max_gpus {high}")
    return faults


def _fits(column: Column, value: Any) -> bool:
    if column.kind is ColumnKind.TEXT:
        return isinstance(value, str) and bool(value.strip())
    if column.kind is ColumnKind.BOOLEAN:
        return isinstance(value, bool)
    if column.kind is ColumnKind.INTEGERS:
        return isinstance(value, list) and bool(value) and all(_is_in(column, v) for v in value)
    return _is_in(column, value) and (column.kind is ColumnKind.NUMBER or isinstance(value, int))


def _is_in(column: Column, value: Any) -> bool:
    """Return whether this is a number within the bounds of a column."""
    if not is_number(value):
        return False
    low = -math.inf if column.low is None else column.low
    high = math.inf if column.high is None else column.high
    above = -math.inf if column.above is None else column.above
    return bool(low <= value <= high and value > above)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
