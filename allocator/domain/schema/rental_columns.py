"""Columns of rentable pools, and of the classes of jobs that GPUs are rented for.

The rules are those of docs/reference/rules.md, R54.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from allocator.domain.schema.columns import MOST_GPUS, POOLS, Column, ColumnKind, TableSchema

KINDS = ("amdahl", "power", "table")


def _number(name: str, doc: str, **more: Any) -> Column:
    return Column(name, ColumnKind.NUMBER, doc, **more)


CLASSES = TableSchema(
    "classes.csv",
    "classes of jobs that GPUs are rented for; a class that can run on several GPU "
    "types has a row for each",
    (
        Column("class_id", ColumnKind.TEXT, "name", required=True),
        _number("arrivals_per_hour", "jobs of the class, in the long run", required=True, above=0),
        _number(
            "mean_work_gpu_hours",
            "mean hours of a job on one GPU, at relative_speed 1",
            required=True,
            above=0,
        ),
        Column("kind", ColumnKind.CHOICE, "form of the speed-up", required=True, choices=KINDS),
        _number("parameter", "amdahl: the parallel fraction; power: the exponent", low=0, high=1),
        Column(
            "points",
            ColumnKind.TEXT,
            'table: GPUs and speed-up, "1:1|2:1.9|4:3.4"; straight lines between',
        ),
        _number("weight", "scales the waiting of its jobs", default=1.0, above=0),
        Column("gpu_type", ColumnKind.TEXT, "the row's GPU type, as in the pools; empty: any"),
        _number(
            "relative_speed",
            "speed of one GPU of the row's type; 1: the type that the work is counted on",
            default=1.0,
            above=0,
        ),
        Column(
            "max_gpus", ColumnKind.INTEGER, "largest width; default no limit", low=1, high=MOST_GPUS
        ),
    ),
    key=("class_id", "gpu_type"),
)
OF_CLASS = ("arrivals_per_hour", "mean_work_gpu_hours", "weight")
"""Columns that belong to the class: its rows must not differ in them."""

RENTED_POOLS = replace(
    POOLS,
    required=False,
    columns=tuple(
        replace(
            c,
            required=c.name in ("pool", "gpu_type", "price_per_gpu_hour"),
            default=None if c.name == "gpus" else c.default,
        )
        for c in POOLS.columns
    ),
)
