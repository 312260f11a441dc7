"""The memory that an allocation pays for: GB of each GPU that the plan wanted of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # what runs by then was ordered without: it pays for its GPUs alone until it starts again
    for table, name in (("jobs", "want_memory_gb"), ("allocations", "memory_gb")):
        op.add_column(table, sa.Column(name, sa.Double, nullable=False, server_default="0"))
