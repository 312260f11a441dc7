"""Colocation: the primary job of an allocation, and when it changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

WANTED = sa.text("want_host <> ''")
GUEST = sa.text("phase IN ('ordered', 'running', 'stopping') AND host <> ''")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("want_host", sa.Text, nullable=False, server_default=""))
    op.add_column(
        "jobs", sa.Column("want_generation", sa.Integer, nullable=False, server_default="0")
    )
    op.add_column("allocations", sa.Column("host", sa.Text, nullable=False, server_default=""))
    op.add_column("allocations", sa.Column("since_s", sa.Double))
    op.create_index(
        "jobs_by_want_host", "jobs", ["want_host"], sqlite_where=WANTED, postgresql_where=WANTED
    )
    op.create_index(
        "allocations_one_guest",
        "allocations",
        ["host"],
        unique=True,
        sqlite_where=GUEST,
        postgresql_where=GUEST,
    )
    op.create_table(
        "turns",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("job_id", sa.Text, nullable=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("host", sa.Text, nullable=False, server_default=""),
        sa.ForeignKeyConstraint(
            ["job_id", "generation"],
            ["allocations.job_id", "allocations.generation"],
            name="turns_allocation",
        ),
    )
    op.create_index("turns_by_allocation", "turns", ["job_id", "generation", "id"])
