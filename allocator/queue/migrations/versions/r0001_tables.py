"""The first schema.

It is written out and not derived from schema.py, because a migration must not change after queues
were made with it.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

OPEN = sa.text("phase IN ('ordered', 'running', 'stopping')")


def cells(names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False, server_default="") for name in names.split()]


def whole(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False, server_default="0")


def real(name: str) -> sa.Column[float]:
    return sa.Column(name, sa.Double, nullable=False, server_default="0")


def must(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def upgrade() -> None:
    op.create_table("meta", sa.Column("key", sa.Text, primary_key=True), must("value", sa.Text))
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.Text, primary_key=True),
        must("seq", sa.BigInteger),
        sa.Column("submission_key", sa.Text),
        must("content", sa.Text),
        *cells(
            "model total_work tenant min_gpus max_gpus requested_gpus sizes gpu_types weight"
            " deadline_s preemptible restart_s resizes_left memory_gb checkpoint_s"
            " checkpoint_every_s after"
        ),
        sa.Column("command", sa.Text, nullable=False, server_default="[]"),
        sa.Column("environment", sa.Text, nullable=False, server_default="{}"),
        *cells("workdir"),
        sa.Column("state", sa.Text, nullable=False, server_default="queued"),
        *cells("request"),
        sa.Column("version", sa.BigInteger, nullable=False, server_default="1"),
        must("remaining_work", sa.Double),
        whole("generation"),
        *cells("want_pool"),
        whole("want_gpus"),
        real("attained_gpu_s"),
        whole("restarts"),
        whole("resizes"),
        whole("largest_gpus"),
        sa.Column("received", sa.Text, nullable=False, server_default="{}"),
        must("submitted_s", sa.Double),
        sa.Column("first_started_s", sa.Double),
        sa.Column("finished_s", sa.Double),
        whole("failures"),
        sa.Column("retry_at_s", sa.Double),
        *cells("park_reason"),
        must("updated_s", sa.Double),
        sa.UniqueConstraint("seq", name="jobs_seq"),
        sa.UniqueConstraint("submission_key", name="jobs_submission_key"),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'paused', 'held', 'done', 'cancelled', 'failed')",
            name="jobs_state",
        ),
        sa.CheckConstraint("request IN ('', 'hold', 'cancel')", name="jobs_request"),
        sa.CheckConstraint("request = '' OR state = 'running'", name="jobs_request_of_running"),
        sa.CheckConstraint(
            "(want_pool = '') = (want_gpus = 0) AND want_gpus >= 0", name="jobs_want"
        ),
        sa.CheckConstraint("remaining_work >= 0", name="jobs_remaining_work"),
        sa.CheckConstraint(
            "(state IN ('done', 'cancelled')) = (finished_s IS NOT NULL)", name="jobs_finished_s"
        ),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "seq"])
    op.create_table(
        "allocations",
        must("job_id", sa.Text),
        must("generation", sa.Integer),
        must("pool", sa.Text),
        must("gpus", sa.Integer),
        must("gpu_type", sa.Text),
        must("phase", sa.Text),
        must("ordered_s", sa.Double),
        *(
            sa.Column(name, sa.Double)
            for name in ("running_s", "stop_ordered_s", "ended_s", "observed_s")
        ),
        must("work_at_start", sa.Double),
        real("work_done"),
        *cells("detail"),
        sa.PrimaryKeyConstraint("job_id", "generation", name="allocations_key"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.job_id"], name="allocations_job"),
        sa.CheckConstraint(
            "phase IN ('ordered', 'running', 'stopping', 'stopped', 'finished', 'failed', 'lost')",
            name="allocations_phase",
        ),
        sa.CheckConstraint("gpus > 0", name="allocations_gpus"),
        sa.CheckConstraint(
            "(phase IN ('ordered', 'running', 'stopping')) = (ended_s IS NULL)",
            name="allocations_ended",
        ),
    )
    op.create_index(
        "allocations_one_open",
        "allocations",
        ["job_id"],
        unique=True,
        sqlite_where=OPEN,
        postgresql_where=OPEN,
    )
    op.create_index(
        "allocations_open_by_pool",
        "allocations",
        ["pool"],
        sqlite_where=OPEN,
        postgresql_where=OPEN,
    )
    op.create_table(
        "observations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        must("job_id", sa.Text),
        must("generation", sa.Integer),
        must("at_s", sa.Double),
        must("work_done", sa.Double),
        must("kind", sa.Text),
        *cells("detail"),
        sa.ForeignKeyConstraint(
            ["job_id", "generation"],
            ["allocations.job_id", "allocations.generation"],
            name="observations_allocation",
        ),
        sa.CheckConstraint(
            "kind IN ('running', 'stopped', 'finished', 'failed', 'lost')", name="observations_kind"
        ),
    )
    op.create_index("observations_by_allocation", "observations", ["job_id", "generation", "id"])
    op.create_table(
        "pools",
        sa.Column("pool", sa.Text, primary_key=True),
        must("position", sa.Integer),
        must("gpus", sa.Integer),
        *cells(
            "gpu_type gpus_per_node market price_per_gpu_hour region startup_s"
            " revocations_per_gpu_hour memory_gb"
        ),
        sa.CheckConstraint("gpus >= 0", name="pools_gpus"),
    )
    for name, columns in (
        ("tenants", "tenant weight max_gpus guaranteed_gpus budget_per_hour"),
        (
            "rates",
            (
                "model gpu_type gpus work_per_s batch_size accumulation memory_gb spread variant"
                " efficiency"
            ),
        ),
        ("curves", "model gpu_type kind parameters"),
        ("sharing", "model_a model_b gpu_type gpus slowdown_a slowdown_b"),
    ):
        op.create_table(
            name,
            sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
            *cells(columns),
        )
    op.create_table(
        "rounds",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        must("at_s", sa.Double),
        must("token", sa.BigInteger),
        must("snapshot_digest", sa.Text),
        sa.Column("snapshot", sa.LargeBinary),
        must("policy", sa.Text),
        sa.Column("options", sa.Text, nullable=False, server_default="{}"),
        must("status", sa.Text),
        *(sa.Column(name, sa.Double) for name in ("value", "bound", "gap")),
        sa.Column("plan", sa.LargeBinary),
        sa.Column("seconds", sa.Text, nullable=False, server_default="{}"),
        must("outcome", sa.Text),
        *cells("detail"),
        sa.CheckConstraint("number > 0", name="rounds_number"),
        sa.CheckConstraint("outcome IN ('decided', 'applied', 'failed')", name="rounds_outcome"),
    )
    op.create_table(
        "lease",
        sa.Column("name", sa.Text, primary_key=True),
        must("holder", sa.Text),
        must("token", sa.BigInteger),
        must("ttl_s", sa.Double),
        must("expires_s", sa.Double),
    )
