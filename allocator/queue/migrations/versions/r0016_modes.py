"""Ways to keep the workers of a job in step, and how uneven the workers of a pool are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("modes", sa.Text))
    op.add_column("pools", sa.Column("straggler_cv", sa.Double))
