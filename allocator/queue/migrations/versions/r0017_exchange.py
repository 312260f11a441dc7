"""What workers exchange and how it is compressed, and how fast the links of a pool are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("pools", sa.Column("link_gb_s", sa.Double))
    for name in ("compute_s", "codec_s", "volume_gb", "ratio"):
        op.add_column("rates", sa.Column(name, sa.Double))
