"""Tokens of the HTTP service."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False, server_default=""),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("expires_s", sa.Double),
        sa.Column("revoked_s", sa.Double),
        sa.UniqueConstraint("digest", name="tokens_digest"),
        sa.CheckConstraint("role IN ('viewer', 'member', 'operator')", name="tokens_role"),
        sa.CheckConstraint("(role = 'member') = (tenant <> '')", name="tokens_tenant"),
    )
