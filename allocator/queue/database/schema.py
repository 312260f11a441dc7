"""The tables of a queue.

Columns that the CSV files of a snapshot have follow the schema of those files
(domain/schema/columns.py), with the types of values.py. NULL or "" is an empty cell, so a snapshot
that is built from them has what its owner gave. Times are seconds on one clock (unix time, unless a
test has another clock).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from allocator.domain.schema.columns import (
    INTERACTIVE,
    JOBS,
    MODELS,
    NODES,
    PAUSES,
    POOLS,
    QUOTAS,
    RATES,
    SHARING,
    TENANTS,
    TableSchema,
)
from allocator.queue.database.values import sql_column

SCHEMA = "r0001"  # revision of these tables
SCHEMA_KEY = "schema"  # the row of `meta` that has the revision

DEFAULT_TENANT = "default"  # tenant of jobs that name no tenant
STATES = ("queued", "running", "paused", "held", "done", "cancelled", "failed")
ACTIVE = ("queued", "running", "paused", "held")
PHASES = ("ordered", "running", "stopping", "stopped", "finished", "failed", "lost")
OPEN = ("ordered", "running", "stopping")
ROLES = ("viewer", "member", "operator")
OWNED = (
    "model",
    "total_work",
    "tenant",
    "min_gpus",
    "max_gpus",
    "requested_gpus",
    "sizes",
    "gpu_types",
    "weight",
    "deadline_s",
    "preemptible",
    "restart_s",
    "resizes_left",
    "memory_gb",
    "checkpoint_s",
    "checkpoint_every_s",
    "after",
    "max_spot_gpus",
    "synchronous",
    "modes",
    "interactive",
    "shrinkable",
    "best_effort",
    "every_s",
    "times",
    "cpus_per_gpu",
    "host_memory_gb_per_gpu",
    "gpu_fraction",
    "placement",
    "target_loss",
)
"""Columns of jobs.csv that the owner of a job sets, besides job_id and submitted_s."""

metadata = MetaData()


def _in(column: str, words: tuple[str, ...], name: str) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(w) for w in words)})", name=name)


def _cell(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default="")


def _whole(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default="0")


def _real(name: str) -> Column[float]:
    return Column(name, Double, nullable=False, server_default="0")


meta = Table(
    "meta", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False)
)

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),  # number in the order of submission
    Column("submission_key", Text),
    # digest of what was submitted; after a change "~" and a number follow
    Column("content", Text, nullable=False),
    *(sql_column(JOBS.column(name)) for name in OWNED),
    Column("command", Text, nullable=False, server_default="[]"),  # JSON list: argv
    Column("environment", Text, nullable=False, server_default="{}"),  # JSON object
    _cell("workdir"),
    Column("state", Text, nullable=False, server_default="queued"),
    # what the owner asked for; it takes effect when the open allocation ends
    Column("request", Text, nullable=False, server_default=""),
    Column("version", BigInteger, nullable=False, server_default="1"),
    # at the start of the open allocation; its work_done is not yet subtracted
    Column("remaining_work", Double, nullable=False),
    _whole("generation"),
    _cell("want_pool"),
    _whole("want_gpus"),
    _real("attained_gpu_s"),
    _whole("restarts"),
    # number of changes of pool or size while it ran
    _whole("resizes"),
    _whole("largest_gpus"),
    # JSON object: seconds held by GPU type
    Column("received", Text, nullable=False, server_default="{}"),
    Column("submitted_s", Double, nullable=False),
    Column("first_started_s", Double),
    Column("finished_s", Double),
    _whole("failures"),
    Column("retry_at_s", Double),
    _cell("park_reason"),
    # first job of the series of a periodic job; empty: this job
    _cell("series"),
    Column("number", Integer, nullable=False, server_default="1"),
    # when the next job of its series is due; NULL: never
    Column("next_s", Double),
    # primary jobs that are wanted for it, as shared_with of jobs.csv; empty: its own GPUs
    _cell("want_host"),
    # nodes that are wanted for it, as allocations.nodes; empty: the pool has no nodes
    _cell("want_nodes"),
    # JSON object of variables that tell it how it is wanted to run; empty: none
    _cell("want_environment"),
    # open allocations of an earlier generation are not wanted
    _whole("want_generation"),
    # GB of each GPU that are wanted for it; 0: the pool has no price of memory
    _real("want_memory_gb"),
    # earlier generations were of another job of this name
    Column("first_generation", Integer, nullable=False, server_default="1"),
    Column("updated_s", Double, nullable=False),
    UniqueConstraint("seq", name="jobs_seq"),
    UniqueConstraint("submission_key", name="jobs_submission_key"),
    _in("state", STATES, "jobs_state"),
    _in("request", ("", "hold", "cancel"), "jobs_request"),
    CheckConstraint("request = '' OR state = 'running'", name="jobs_request_of_running"),
    CheckConstraint("(want_pool = '') = (want_gpus = 0) AND want_gpus >= 0", name="jobs_want"),
    CheckConstraint("remaining_work >= 0", name="jobs_remaining_work"),
    CheckConstraint(
        "(state IN ('done', 'cancelled')) = (finished_s IS NOT NULL)", name="jobs_finished_s"
    ),
    Index("jobs_by_state", "state", "seq"),
    Index("jobs_by_next", "next_s"),
    Index(
        "jobs_by_want_host",
        "want_host",
        sqlite_where=text("want_host <> ''"),
        postgresql_where=text("want_host <> ''"),
    ),
    Index(
        "jobs_done_by_model",
        "model",
        "finished_s",
        "total_work",
        sqlite_where=text("state = 'done'"),
        postgresql_where=text("state = 'done'"),
    ),
)

allocations = Table(
    "allocations",
    metadata,
    Column("job_id", Text, ForeignKey("jobs.job_id", name="allocations_job"), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("pool", Text, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("gpu_type", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("ordered_s", Double, nullable=False),
    Column("running_s", Double),
    Column("stop_ordered_s", Double),
    Column("ended_s", Double),
    Column("observed_s", Double),  # time of the latest observation
    Column("work_at_start", Double, nullable=False),
    _real("work_done"),
    _cell("detail"),
    # primary jobs on whose GPUs it runs, as shared_with of jobs.csv; empty: it holds its own GPUs
    _cell("host"),
    # of its GPUs those that it holds itself: all but those of its primary jobs
    _whole("held_gpus"),
    # GB of each of its GPUs that it pays for
    _real("memory_gb"),
    # credited up to here; NULL: not credited yet, count from running_s
    Column("since_s", Double),
    # JSON list as `nodes` of a job in plan.json, sorted; empty: the pool has no nodes, or unknown
    _cell("nodes"),
    # JSON object: what it reported last besides its work (REPORTED of loop/executor.py)
    _cell("reported"),
    PrimaryKeyConstraint("job_id", "generation", name="allocations_key"),
    _in("phase", PHASES, "allocations_phase"),
    CheckConstraint("gpus > 0", name="allocations_gpus"),
    CheckConstraint(
        "(phase IN ('ordered', 'running', 'stopping')) = (ended_s IS NULL)",
        name="allocations_ended",
    ),
    Index(
        "allocations_one_open",
        "job_id",
        unique=True,
        sqlite_where=text("phase IN ('ordered', 'running', 'stopping')"),
        postgresql_where=text("phase IN ('ordered', 'running', 'stopping')"),
    ),
    Index("allocations_by_end", "ended_s"),
    Index(
        "allocations_open_by_pool",
        "pool",
        sqlite_where=text("phase IN ('ordered', 'running', 'stopping')"),
        postgresql_where=text("phase IN ('ordered', 'running', 'stopping')"),
    ),
    Index(
        "allocations_one_guest",
        "host",
        unique=True,
        sqlite_where=text("phase IN ('ordered', 'running', 'stopping') AND host <> ''"),
        postgresql_where=text("phase IN ('ordered', 'running', 'stopping') AND host <> ''"),
    ),
)

losses = Table(  # of jobs with target_loss that have reported a loss
    "losses",
    metadata,
    Column("job_id", Text, ForeignKey("jobs.job_id", name="losses_job"), primary_key=True),
    # JSON list of [work, loss], ascending: performance/fit/loss_curves.py
    Column("points", Text, nullable=False),
    # as in jobs.csv; NULL: its losses say nothing
    Column("loss_work", Double),
    Column("loss_error", Double),
)

IS_OPEN = text(f"allocations.phase IN {OPEN}")
"""Condition of allocations that hold GPUs. The phases are written out and not bound, because only
then the databases use the indexes of open allocations. So a poll takes no longer after years."""

observations = Table(
    "observations",
    metadata,
    Column(
        "id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    ),
    Column("job_id", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("at_s", Double, nullable=False),
    Column("work_done", Double, nullable=False),
    Column("kind", Text, nullable=False),
    _cell("detail"),
    _cell("reported"),  # as in allocations
    ForeignKeyConstraint(
        ["job_id", "generation"],
        ["allocations.job_id", "allocations.generation"],
        name="observations_allocation",
    ),
    _in("kind", ("running", "stopped", "finished", "failed", "lost"), "observations_kind"),
    Index("observations_by_allocation", "job_id", "generation", "id"),
)

forgotten = Table(  # names that no job of the queue has now
    "forgotten",
    metadata,
    Column("job_id", Text, primary_key=True),
    # last generation that a job of this name was given
    Column("generation", Integer, nullable=False),
)

turns = Table(  # when colocated allocations changed their primary jobs
    "turns",
    metadata,
    Column(
        "id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    ),
    Column("job_id", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("at_s", Double, nullable=False),
    _cell("host"),  # primary jobs from at_s on; empty: the job holds the GPUs
    _whole("held_gpus"),  # GPUs that the job holds itself from at_s on
    ForeignKeyConstraint(
        ["job_id", "generation"],
        ["allocations.job_id", "allocations.generation"],
        name="turns_allocation",
    ),
    Index("turns_by_allocation", "job_id", "generation", "id"),
)

pools = Table(
    "pools",
    metadata,
    Column("pool", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("gpus", Integer, nullable=False),
    *(
        sql_column(POOLS.column(name))
        for name in (
            "gpu_type",
            "gpus_per_node",
            "market",
            "price_per_gpu_hour",
            "region",
            "startup_s",
            "revocations_per_gpu_hour",
            "memory_gb",
            "lifetime_s",
            "availability",
            "min_billing_s",
            "sharing",
            "straggler_cv",
            "link_gb_s",
            "isolation",
            "price_per_gb_hour",
            "hazard_by_age",
        )
    ),
    CheckConstraint("gpus >= 0", name="pools_gpus"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("node", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    *(sql_column(column) for column in NODES.columns if column.name != "node"),
    # JSON object: labels of levels of the topology besides `rack`
    Column("labels", Text, nullable=False, server_default="{}"),
    CheckConstraint("gpus >= 0", name="nodes_gpus"),
    _in("state", ("up", "drain", "down"), "nodes_state"),
)


def _rows(name: str, file: TableSchema, *without: str) -> Table:
    """Declare the table of one file of a snapshot: its rows in order, all columns but some."""
    return Table(
        name,
        metadata,
        Column("position", Integer, primary_key=True, autoincrement=False),
        *(sql_column(column) for column in file.columns if column.name not in without),
    )


tenants = _rows("tenants", TENANTS)
quotas = _rows("quotas", QUOTAS)
rates = _rows("rates", RATES, "observed")
curves = _rows("curves", MODELS)
pauses = _rows("pauses", PAUSES)
interactive = _rows("interactive", INTERACTIVE)
sharing = _rows("sharing", SHARING)

rounds = Table(
    "rounds",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("at_s", Double, nullable=False),
    Column("token", BigInteger, nullable=False),
    Column("snapshot_digest", Text, nullable=False),
    Column("snapshot", LargeBinary),  # NULL: older than what is kept
    Column("policy", Text, nullable=False),
    Column("options", Text, nullable=False, server_default="{}"),
    Column("status", Text, nullable=False),
    Column("value", Double),
    Column("bound", Double),
    Column("gap", Double),
    Column("plan", LargeBinary),
    Column("seconds", Text, nullable=False, server_default="{}"),
    Column("outcome", Text, nullable=False),
    _cell("detail"),
    CheckConstraint("number > 0", name="rounds_number"),
    _in("outcome", ("decided", "applied", "failed"), "rounds_outcome"),
)

lease = Table(
    "lease",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),  # empty: released
    Column("token", BigInteger, nullable=False),
    Column("ttl_s", Double, nullable=False),
    Column("expires_s", Double, nullable=False),
)

learned = Table(
    "learned",
    metadata,
    Column("model", Text, nullable=False),
    Column("gpu_type", Text, nullable=False),
    Column("gpus", Integer, nullable=False),
    # NULL: not enough is known to correct the rate
    Column("work_per_s", Double),
    # JSON object: what the estimator remembers
    Column("state", Text, nullable=False, server_default="{}"),
    Column("updated_s", Double, nullable=False),
    PrimaryKeyConstraint("model", "gpu_type", "gpus", name="learned_key"),
    CheckConstraint("gpus > 0", name="learned_gpus"),
)

tokens = Table(
    "tokens",
    metadata,
    Column(
        "id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    ),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),  # SHA-256 of the token
    Column("role", Text, nullable=False),
    _cell("tenant"),  # of a member
    Column("created_s", Double, nullable=False),
    Column("expires_s", Double),  # NULL: never
    Column("revoked_s", Double),
    UniqueConstraint("digest", name="tokens_digest"),
    _in("role", ROLES, "tokens_role"),
    CheckConstraint("(role = 'member') = (tenant <> '')", name="tokens_tenant"),
)
