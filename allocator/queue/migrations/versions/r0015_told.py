"""What the plan says of how a job runs, as variables of its environment."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("want_environment", sa.Text, nullable=False, server_default=""))
