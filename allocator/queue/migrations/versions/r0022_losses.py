"""A target loss of jobs, the losses that they report, and what these say of their whole work."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("target_loss", sa.Double))
    op.create_table(
        "losses",
        sa.Column(
            "job_id", sa.Text, sa.ForeignKey("jobs.job_id", name="losses_job"), primary_key=True
        ),
        sa.Column("points", sa.Text, nullable=False),
        sa.Column("loss_work", sa.Double),
        sa.Column("loss_error", sa.Double),
    )
