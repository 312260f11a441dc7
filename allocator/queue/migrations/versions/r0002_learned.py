"""Rates that were learned from observations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "learned",
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("gpu_type", sa.Text, nullable=False),
        sa.Column("gpus", sa.Integer, nullable=False),
        sa.Column("work_per_s", sa.Double),
        sa.Column("state", sa.Text, nullable=False, server_default="{}"),
        sa.Column("updated_s", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("model", "gpu_type", "gpus", name="learned_key"),
        sa.CheckConstraint("gpus > 0", name="learned_gpus"),
    )
