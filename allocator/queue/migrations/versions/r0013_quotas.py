"""The tenant above each tenant, and quotas by GPU type or pool."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

NAMES = ("tenant", "gpu_type", "pool")
GPUS = ("guaranteed_gpus", "max_gpus", "lend_gpus")


def upgrade() -> None:
    op.add_column("tenants", _name("parent"))
    op.create_table(
        "quotas",
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        *(_name(name) for name in NAMES),
        *(sa.Column(name, sa.BigInteger) for name in GPUS),
    )


def _name(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default="")
