"""Pauses by size, GPUs that are kept for interactive jobs, and periodic jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = {
    "pauses": "model from_gpus to_gpus pause_s gpu_type",
    "interactive": (
        "pool headroom_gpus sessions_per_hour session_s session_gpus late_share shrinkable_share"
    ),
}
CELLS = ("interactive", "shrinkable", "every_s", "times", "series")


def upgrade() -> None:
    for table, names in TABLES.items():
        op.create_table(
            table,
            sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
            *(
                sa.Column(name, sa.Text, nullable=False, server_default="")
                for name in names.split()
            ),
        )
    for name in CELLS:
        op.add_column("jobs", sa.Column(name, sa.Text, nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("number", sa.Integer, nullable=False, server_default="1"))
    op.add_column("jobs", sa.Column("next_s", sa.Double))
    op.create_index("jobs_by_next", "jobs", ["next_s"])
