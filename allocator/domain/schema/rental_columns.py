"""Columns of rentable pools, and of the classes of jobs that GPUs are rented for.

The rules are those of docs/reference/rules.md, R54.
"""

from __future__ import annotations

from dataclasses import replace

from allocator.domain.schema.columns import (
    POOLS,
    TableSchema,
    choice,
    gpus,
    name,
    positive,
    share,
    text,
)

KINDS = ("amdahl", "power", "table")


CLASSES = TableSchema(
    "classes.csv",
    "classes of jobs that GPUs are rented for; a class that can run on several GPU "
    "types has a row for each",
    (
        name("class_id", "name"),
        positive("arrivals_per_hour", "jobs of the class, in the long run", required=True),
        positive(
            "mean_work_gpu_hours",
            "mean hours of a job on one GPU, at relative_speed 1",
            required=True,
        ),
        choice("kind", "form of the speed-up", required=True, choices=KINDS),
        share("parameter", "amdahl: the parallel fraction; power: the exponent"),
        text(
            "points",
            'table: GPUs and speed-up, "1:1|2:1.9|4:3.4"; straight lines between',
        ),
        positive("weight", "scales the waiting of its jobs", default=1.0),
        text("gpu_type", "the row's GPU type, as in the pools; empty: any"),
        positive(
            "relative_speed",
            "speed of one GPU of the row's type; 1: the type that the work is counted on",
            default=1.0,
        ),
        gpus("max_gpus", "largest width; default no limit"),
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
