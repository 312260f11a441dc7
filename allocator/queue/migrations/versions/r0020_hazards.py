"""Add the column of the revocations of a pool by the age of its GPUs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("hazard_by_age", sa.Text, nullable=False, server_default=""))
