"""An index of the jobs that are done by model, from which the sizes of others are learned."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    done = sa.text("state = 'done'")
    op.create_index(
        "jobs_done_by_model",
        "jobs",
        ["model", "finished_s", "total_work"],
        sqlite_where=done,
        postgresql_where=done,
    )
