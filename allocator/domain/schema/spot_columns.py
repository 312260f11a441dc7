"""Columns of the clusters that one job could be trained on (`allocator spot plan`)."""

from __future__ import annotations

from typing import Any

from allocator.domain.schema.columns import Column, ColumnKind, TableSchema


def _number(name: str, doc: str, **more: Any) -> Column:
    return Column(name, ColumnKind.NUMBER, doc, **more)


CLUSTERS = TableSchema(
    "clusters.csv",
    "clusters that one job could be trained on; several rows of one cluster, of "
    "different servers, are a mixed one",
    (
        Column("cluster", ColumnKind.TEXT, "name", required=True),
        Column("gpu_type", ColumnKind.TEXT, "of the servers of this row", required=True),
        Column("workers", ColumnKind.INTEGER, "number of them", required=True, low=1, high=100_000),
        _number("work_per_s", "measured speed of one of them alone", required=True, above=0),
        Column(
            "market",
            ColumnKind.CHOICE,
            "spot servers may be taken back",
            default="on_demand",
            choices=("on_demand", "spot"),
        ),
        _number(
            "price_per_hour", "US dollars for one of them; no empty cells", required=True, low=0
        ),
        _number("revocations_per_hour", "of one server, at every age", default=0.0, low=0),
        Column(
            "hazard_by_age",
            ColumnKind.TEXT,
            'the same by age instead, "0:0.08|1:0.02": from hour 0 on 0.08, from 1 on 0.02',
        ),
        _number(
            "lifetime_s",
            "a server is taken back after so long at the latest; default no limit",
            above=0,
        ),
        _number("startup_s", "until a new server works", default=0.0, low=0),
        _number("replace_s", "from a loss until the replacement works; default startup_s", low=0),
        _number(
            "servers_per_hour",
            "US dollars for machines besides the workers: parameter servers",
            default=0.0,
            low=0,
        ),
        _number("cap_per_s", "most work per second that these carry; default no limit", above=0),
        _number(
            "cap_sharpness",
            "p of the soft corner (s^-p + C^-p)^(-1/p); default a sharp one, min(s, C)",
            above=0,
        ),
        _number(
            "measured_per_s",
            "measured speed of the whole cluster, instead of the sum below the cap",
            above=0,
        ),
        _number("checkpoint_s", "seconds a checkpoint takes", default=0.0, low=0),
        _number(
            "checkpoint_every_s",
            "useful seconds between checkpoints; default the best interval where synchronous, "
            "no checkpoints where not",
            above=0,
        ),
        Column(
            "synchronous",
            ColumnKind.BOOLEAN,
            "true: a lost server stops the job, which falls back to its last checkpoint; "
            "false: only its own share is lost until it is replaced",
            default=True,
        ),
        _number("quality", "quality of the trained model, for --quality: top-1 accuracy", low=0),
    ),
)
OF_CLUSTER = (
    "servers_per_hour",
    "cap_per_s",
    "cap_sharpness",
    "measured_per_s",
    "checkpoint_s",
    "checkpoint_every_s",
    "synchronous",
    "quality",
)
"""Columns that belong to the cluster: its rows may leave them empty, but not differ."""

POINTS = TableSchema(
    "points.csv",
    "measurements of a line",
    (
        _number("x", "size in MB, model FLOPs / GPU FLOPS ...", required=True),
        _number("y", "seconds", required=True),
    ),
)
PLACE = (
    Column("region", ColumnKind.TEXT, "where the server stands; empty: anywhere"),
    Column("gpu_type", ColumnKind.TEXT, "of the server; empty: any"),
)
LIFETIMES = TableSchema(
    "lifetimes.csv",
    "how long servers lived",
    (
        _number(
            "hours", "from its start until it was taken back or last seen", required=True, low=0
        ),
        Column(
            "revoked",
            ColumnKind.BOOLEAN,
            "false: it was still there when last seen, or at its lifetime",
            required=True,
        ),
        *PLACE,
    ),
)
HAZARDS = TableSchema(
    "hazards.csv",
    "revocations of servers by region, type and age",
    (
        *PLACE,
        _number("from_h", "age at which the hazard begins, hours", required=True, low=0),
        _number("per_hour", "revocations of one server per hour", required=True, low=0),
        _number("error", "its standard error", low=0),
        _number("revoked", "servers that were revoked at such an age", low=0),
        _number("server_hours", "hours that servers lived at such an age", low=0),
    ),
)
SPEEDS = TableSchema(
    "speeds.csv",
    "measured speed of numbers of workers",
    (
        Column("workers", ColumnKind.INTEGER, "at work together", required=True, low=1),
        _number("work_per_s", "speed of all", required=True, above=0),
    ),
)
SERVER_SPEEDS = TableSchema(
    "servers.csv",
    "measured speed of workers with parameter servers, or without any",
    (
        Column("model", ColumnKind.TEXT, "as in jobs.csv", required=True),
        Column("gpu_type", ColumnKind.TEXT, "of workers and servers", required=True),
        Column("servers", ColumnKind.INTEGER, "GPUs that are servers", required=True, low=0),
        *SPEEDS.columns,
    ),
)
FEATURES = TableSchema(
    "features.csv",
    "measured speeds, and features of what was measured and of what was not",
    (
        Column("model", ColumnKind.TEXT, "as in jobs.csv", required=True),
        Column("gpu_type", ColumnKind.TEXT, "as in pools.csv", required=True),
        Column("gpus", ColumnKind.INTEGER, "how many of them", default=1, low=1),
        _number("work_per_s", "measured speed; empty: to be predicted", above=0),
    ),
)
