"""Columns of rentable pools, and of the classes of jobs that GPUs are rented for.

The rules are those of docs/reference/rules.md, R54.
"""

from dataclasses import replace

from allocator.domain.schema.columns import POOLS, read_tables

CLASSES = read_tables("rental")["classes.csv"]
KINDS = CLASSES.column("kind").choices
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
