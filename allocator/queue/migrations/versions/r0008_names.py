"""Purged names, so that a new job of the same name goes on counting generations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "forgotten",
        sa.Column("job_id", sa.Text, primary_key=True),
        sa.Column("generation", sa.Integer, nullable=False),
    )
    op.add_column(
        "jobs", sa.Column("first_generation", sa.Integer, nullable=False, server_default="1")
    )
