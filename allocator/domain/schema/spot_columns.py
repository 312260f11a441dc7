"""Columns of the clusters that one job could be trained on (`allocator spot plan`)."""

from __future__ import annotations

from allocator.domain.schema.columns import (
    GPU_TYPE,
    MODEL,
    TableSchema,
    amount,
    choice,
    flag,
    integer,
    name,
    needed,
    number,
    positive,
    text,
)

CLUSTERS = TableSchema(
    "clusters.csv",
    "clusters that one job could be trained on; several rows of one cluster, of "
    "different servers, are a mixed one",
    (
        name("cluster", "name"),
        name("gpu_type", "of the servers of this row"),
        integer("workers", "number of them", required=True, low=1, high=100_000),
        positive("work_per_s", "measured speed of one of them alone", required=True),
        choice(
            "market",
            "spot servers may be taken back",
            default="on_demand",
            choices=("on_demand", "spot"),
        ),
        needed("price_per_hour", "US dollars for one of them; no empty cells"),
        amount("revocations_per_hour", "of one server, at every age"),
        text(
            "hazard_by_age",
            'the same by age instead, "0:0.08|1:0.02": from hour 0 on 0.08, from 1 on 0.02',
        ),
        positive(
            "lifetime_s", "a server is taken back after so long at the latest; default no limit"
        ),
        amount("startup_s", "until a new server works"),
        number("replace_s", "from a loss until the replacement works; default startup_s", low=0),
        amount(
            "servers_per_hour", "US dollars for machines besides the workers: parameter servers"
        ),
        positive("cap_per_s", "most work per second that these carry; default no limit"),
        positive(
            "cap_sharpness",
            "p of the soft corner (s^-p + C^-p)^(-1/p); default a sharp one, min(s, C)",
        ),
        positive(
            "measured_per_s",
            "measured speed of the whole cluster, instead of the sum below the cap",
        ),
        amount("checkpoint_s", "seconds a checkpoint takes"),
        positive(
            "checkpoint_every_s",
            "useful seconds between checkpoints; default the best interval where synchronous, "
            "no checkpoints where not",
        ),
        flag(
            "synchronous",
            "true: a lost server stops the job, which falls back to its last checkpoint; "
            "false: only its own share is lost until it is replaced",
            default=True,
        ),
        number("quality", "quality of the trained model, for --quality: top-1 accuracy", low=0),
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
        number("x", "size in MB, model FLOPs / GPU FLOPS ...", required=True),
        number("y", "seconds", required=True),
    ),
)
PLACE = (
    text("region", "where the server stands; empty: anywhere"),
    text("gpu_type", "of the server; empty: any"),
)
LIFETIMES = TableSchema(
    "lifetimes.csv",
    "how long servers lived",
    (
        needed("hours", "from its start until it was taken back or last seen"),
        flag(
            "revoked",
            "false: it was still there when last seen, or at its lifetime",
            required=True,
            default=None,
        ),
        *PLACE,
    ),
)
HAZARDS = TableSchema(
    "hazards.csv",
    "revocations of servers by region, type and age",
    (
        *PLACE,
        needed("from_h", "age at which the hazard begins, hours"),
        needed("per_hour", "revocations of one server per hour"),
        number("error", "its standard error", low=0),
        number("revoked", "servers that were revoked at such an age", low=0),
        number("server_hours", "hours that servers lived at such an age", low=0),
    ),
)
SPEEDS = TableSchema(
    "speeds.csv",
    "measured speed of numbers of workers",
    (
        integer("workers", "at work together", required=True, low=1),
        positive("work_per_s", "speed of all", required=True),
    ),
)
SERVER_SPEEDS = TableSchema(
    "servers.csv",
    "measured speed of workers with parameter servers, or without any",
    (
        MODEL,
        name("gpu_type", "of workers and servers"),
        integer("servers", "GPUs that are servers", required=True, low=0),
        *SPEEDS.columns,
    ),
)
FEATURES = TableSchema(
    "features.csv",
    "measured speeds, and features of what was measured and of what was not",
    (
        MODEL,
        GPU_TYPE,
        integer("gpus", "how many of them", default=1, low=1),
        positive("work_per_s", "measured speed; empty: to be predicted"),
    ),
)
