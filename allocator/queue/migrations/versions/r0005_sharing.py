"""Pools that allow colocation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("sharing", sa.Text, nullable=False, server_default=""))
