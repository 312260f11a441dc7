"""Nodes of pools, and the nodes that allocations have and that rounds want."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def _text(name: str, default: str = "") -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=False, server_default=default)


def upgrade() -> None:
    op.add_column("jobs", _text("want_nodes"))
    op.add_column("allocations", _text("nodes"))
    op.create_table(
        "nodes",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        _text("pool"),
        sa.Column("gpus", sa.BigInteger),
        _text("state"),
        _text("rack"),
        sa.Column("cpus", sa.Double),
        sa.Column("host_memory_gb", sa.Double),
        _text("labels", "{}"),
        sa.CheckConstraint("gpus >= 0", name="nodes_gpus"),
        sa.CheckConstraint("state IN ('up', 'drain', 'down')", name="nodes_state"),
    )
