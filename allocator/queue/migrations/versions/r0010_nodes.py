"""What a job needs of a node for each of its GPUs, its share of a GPU, and where it may run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

NUMBERS = ("cpus_per_gpu", "host_memory_gb_per_gpu", "gpu_fraction")


def upgrade() -> None:
    for name in NUMBERS:
        op.add_column("jobs", sa.Column(name, sa.Double))
    op.add_column("jobs", sa.Column("placement", sa.Text, nullable=False, server_default=""))
