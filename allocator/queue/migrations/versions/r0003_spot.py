"""Spot pools: revocations, billing, and limits of jobs and tenants."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

CELLS = {
    "jobs": ("max_spot_gpus", "synchronous"),
    "pools": ("lifetime_s", "availability", "min_billing_s"),
    "tenants": ("max_spot_gpus", "max_spot_share", "dollar_price"),
}


def upgrade() -> None:
    for table, names in CELLS.items():
        for name in names:
            op.add_column(table, sa.Column(name, sa.Text, nullable=False, server_default=""))
