"""Long-run budgets of tenants, and an index of allocations by their end.

The index lets the books find what a period of time cost.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

CELLS = ("average_per_hour", "amount", "until_s")


def upgrade() -> None:
    for name in CELLS:
        op.add_column("tenants", sa.Column(name, sa.Text, nullable=False, server_default=""))
    op.create_index("allocations_by_end", "allocations", ["ended_s"])
