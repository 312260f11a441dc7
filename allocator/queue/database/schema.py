"""The tables of a queue.

Columns that the CSV files of a snapshot have follow the schema of those files
(domain/schema/columns.py), with the types of rows.py. NULL or "" is an empty cell, so a snapshot
that is built from them has what its owner gave. Times are seconds on one clock (unix time, unless a
test has another clock).
"""

from __future__ import annotations

from typing import Any

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
    RESERVATIONS,
    SHARING,
    TENANTS,
    TableSchema,
)
from allocator.queue.database.rows import sql_column

SCHEMA = "r0001"  # revision of these tables
SCHEMA_KEY = "schema"  # the row of `meta` that has the revision

DEFAULT_TENANT = "default"  # tenant of jobs that name no tenant
STATES = ("queued", "running", "paused", "held", "done", "cancelled", "failed")
ACTIVE = ("queued", "running", "paused", "held")
PHASES = ("ordered", "running", "stopping", "stopped", "finished", "failed", "lost")
OPEN = ("ordered", "running", "stopping")
# written out in statements and not bound, because only then the databases use the indexes of open
# allocations, so that a poll takes no longer after years
_IS_OPEN = f"phase IN {OPEN}"
ROLES = ("viewer", "member", "operator")
OF_QUEUE = (
    "state",
    "pool",
    "gpus",
    "shared_with",
    "remaining_work",
    "attained_gpu_s",
    "restarts",
    "largest_gpus",
    "loss_work",
    "loss_error",
)
"""Columns of jobs.csv that the queue determines itself."""
OWNED = tuple(c.name for c in JOBS.columns if c.name not in ("job_id", "submitted_s", *OF_QUEUE))
"""Columns of jobs.csv that the owner of a job sets, besides job_id and submitted_s."""

metadata = MetaData()


def _in(column: str, words: tuple[str, ...], name: str) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(w) for w in words)})", name=name)


def _given(name: str, kind: Any = Text, default: str | None = None) -> Column[Any]:
    """Declare a column that always has a value."""
    return Column(name, kind, nullable=False, server_default=default)


def _cell(name: str) -> Column[str]:
    return _given(name, Text, "")


def _whole(name: str, default: str = "0") -> Column[int]:
    return _given(name, Integer, default)


def _real(name: str) -> Column[float]:
    return _given(name, Double, "0")


def _counted() -> Column[int]:
    """Declare a number that the database counts up."""
    return Column(
        "id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    )


def _some(name: str, condition: str, *columns: str, unique: bool = False) -> Index:
    """Declare an index of the rows that meet a condition."""
    where = text(condition)
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def _of_allocation(name: str) -> tuple[Any, ...]:
    """Declare the columns that name an allocation, by which the table is indexed."""
    key = ("job_id", "generation")
    return (
        _given("job_id"),
        _given("generation", Integer),
        ForeignKeyConstraint(
            key, [f"allocations.{column}" for column in key], name=f"{name}_allocation"
        ),
        Index(f"{name}_by_allocation", *key, "id"),
    )


meta = Table("meta", metadata, Column("key", Text, primary_key=True), _given("value"))

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", Text, primary_key=True),
    _given("seq", BigInteger),  # number in the order of submission
    Column("submission_key", Text),
    # digest of what was submitted; after a change "~" and a number follow
    _given("content"),
    *(sql_column(JOBS.column(name)) for name in OWNED),
    _given("command", Text, "[]"),  # JSON list: argv
    _given("environment", Text, "{}"),  # JSON object
    _cell("workdir"),
    _given("state", Text, "queued"),
    # what the owner asked for; it takes effect when the open allocation ends
    _cell("request"),
    _given("version", BigInteger, "1"),
    # at the start of the open allocation; its work_done is not yet subtracted
    _given("remaining_work", Double),
    _whole("generation"),
    _cell("want_pool"),
    _whole("want_gpus"),
    _real("attained_gpu_s"),
    _whole("restarts"),
    # number of changes of pool or size while it ran
    _whole("resizes"),
    _whole("largest_gpus"),
    # JSON object: seconds held by GPU type
    _given("received", Text, "{}"),
    _given("submitted_s", Double),
    Column("first_started_s", Double),
    Column("finished_s", Double),
    _whole("failures"),
    Column("retry_at_s", Double),
    _cell("park_reason"),
    # first job of the series of a periodic job; empty: this job
    _cell("series"),
    _whole("number", "1"),
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
    _whole("first_generation", "1"),
    _given("updated_s", Double),
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
    _some("jobs_by_want_host", "want_host <> ''", "want_host"),
    _some("jobs_done_by_model", "state = 'done'", "model", "finished_s", "total_work"),
)

allocations = Table(
    "allocations",
    metadata,
    Column("job_id", Text, ForeignKey("jobs.job_id", name="allocations_job"), nullable=False),
    _given("generation", Integer),
    _given("pool"),
    _given("gpus", Integer),
    _given("gpu_type"),
    _given("phase"),
    _given("ordered_s", Double),
    Column("running_s", Double),
    Column("stop_ordered_s", Double),
    Column("ended_s", Double),
    Column("observed_s", Double),  # time of the latest observation
    _given("work_at_start", Double),
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
    CheckConstraint(f"({_IS_OPEN}) = (ended_s IS NULL)", name="allocations_ended"),
    _some("allocations_one_open", _IS_OPEN, "job_id", unique=True),
    Index("allocations_by_end", "ended_s"),
    _some("allocations_open_by_pool", _IS_OPEN, "pool"),
    _some("allocations_one_guest", f"{_IS_OPEN} AND host <> ''", "host", unique=True),
)

losses = Table(  # of jobs with target_loss that have reported a loss
    "losses",
    metadata,
    Column("job_id", Text, ForeignKey("jobs.job_id", name="losses_job"), primary_key=True),
    # JSON list of [work, loss], ascending: performance/fit/loss_curves.py
    _given("points"),
    # as in jobs.csv; NULL: its losses say nothing
    Column("loss_work", Double),
    Column("loss_error", Double),
)

observations = Table(
    "observations",
    metadata,
    _counted(),
    *_of_allocation("observations"),
    _given("at_s", Double),
    _given("work_done", Double),
    _given("kind"),
    _cell("detail"),
    _cell("reported"),  # as in allocations
    _in("kind", ("running", "stopped", "finished", "failed", "lost"), "observations_kind"),
)

forgotten = Table(  # names that no job of the queue has now
    "forgotten",
    metadata,
    Column("job_id", Text, primary_key=True),
    # last generation that a job of this name was given
    _given("generation", Integer),
)

turns = Table(  # when colocated allocations changed their primary jobs
    "turns",
    metadata,
    _counted(),
    *_of_allocation("turns"),
    _given("at_s", Double),
    _cell("host"),  # primary jobs from at_s on; empty: the job holds the GPUs
    _whole("held_gpus"),  # GPUs that the job holds itself from at_s on
)

pools = Table(
    "pools",
    metadata,
    Column("pool", Text, primary_key=True),
    _given("position", Integer),
    _given("gpus", Integer),
    *(sql_column(column) for column in POOLS.columns if column.name not in ("pool", "gpus")),
    CheckConstraint("gpus >= 0", name="pools_gpus"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("node", Text, primary_key=True),
    _given("position", Integer),
    *(sql_column(column) for column in NODES.columns if column.name != "node"),
    # JSON object: labels of levels of the topology besides `rack`
    _given("labels", Text, "{}"),
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
reservations = _rows("reservations", RESERVATIONS)
sharing = _rows("sharing", SHARING)

rounds = Table(
    "rounds",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    _given("at_s", Double),
    _given("token", BigInteger),
    _given("snapshot_digest"),
    Column("snapshot", LargeBinary),  # NULL: older than what is kept
    _given("policy"),
    _given("options", Text, "{}"),
    _given("status"),
    Column("value", Double),
    Column("bound", Double),
    Column("gap", Double),
    Column("plan", LargeBinary),
    _given("seconds", Text, "{}"),
    _given("outcome"),
    _cell("detail"),
    CheckConstraint("number > 0", name="rounds_number"),
    _in("outcome", ("decided", "applied", "failed"), "rounds_outcome"),
)

lease = Table(
    "lease",
    metadata,
    Column("name", Text, primary_key=True),
    _given("holder"),  # empty: released
    _given("token", BigInteger),
    _given("ttl_s", Double),
    _given("expires_s", Double),
)

learned = Table(
    "learned",
    metadata,
    _given("model"),
    _given("gpu_type"),
    _given("gpus", Integer),
    # NULL: not enough is known to correct the rate
    Column("work_per_s", Double),
    # JSON object: what the estimator remembers
    _given("state", Text, "{}"),
    _given("updated_s", Double),
    PrimaryKeyConstraint("model", "gpu_type", "gpus", name="learned_key"),
    CheckConstraint("gpus > 0", name="learned_gpus"),
)

tokens = Table(
    "tokens",
    metadata,
    _counted(),
    _given("name"),
    _given("digest"),  # SHA-256 of the token
    _given("role"),
    _cell("tenant"),  # of a member
    _given("created_s", Double),
    Column("expires_s", Double),  # NULL: never
    Column("revoked_s", Double),
    UniqueConstraint("digest", name="tokens_digest"),
    _in("role", ROLES, "tokens_role"),
    CheckConstraint("(role = 'member') = (tenant <> '')", name="tokens_tenant"),
)
