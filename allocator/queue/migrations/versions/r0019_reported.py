"""What a job reports besides its work: its gradient noise, its loss. The price of memory."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("price_per_gb_hour", sa.Double))
    for table in ("allocations", "observations"):
        op.add_column(table, sa.Column("reported", sa.Text, nullable=False, server_default=""))
