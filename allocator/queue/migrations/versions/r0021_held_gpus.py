"""Add the GPUs that a job holds itself, next to those of its primary jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("allocations", "turns"):
        op.add_column(table, sa.Column("held_gpus", sa.Integer, nullable=False, server_default="0"))
    # before, a job had one primary job of as many GPUs, or held all of its GPUs
    op.execute("UPDATE allocations SET held_gpus = gpus WHERE host = ''")
    op.execute(
        "UPDATE turns SET held_gpus = (SELECT a.gpus FROM allocations a WHERE a.job_id ="
        " turns.job_id AND a.generation = turns.generation) WHERE host = ''"
    )
