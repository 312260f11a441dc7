"""Two jobs on the same GPUs: which pools let them, who shall run beside whom, and who does."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

CELLS = {"jobs": "want_host", "allocations": "host", "pools": "sharing"}


def upgrade() -> None:
    for table, name in CELLS.items():
        op.add_column(table, sa.Column(name, sa.Text, nullable=False, server_default=""))
