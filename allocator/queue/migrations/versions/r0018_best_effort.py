"""Jobs without a guarantee, and how well a pool isolates others from them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("best_effort", sa.Boolean))
    op.add_column("pools", sa.Column("isolation", sa.Double))
