"""Exceptions: how they end, their views, and agents that were forgotten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

Identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name, kind in (
        ("ended_by", sa.String(length=300)),
        ("note_to_admins", sa.String(length=280)),
        ("asked_at", sa.DateTime(timezone=True)),
        ("told_at", sa.DateTime(timezone=True)),
    ):
        op.add_column("access_grants", sa.Column(name, kind, nullable=True))
    op.add_column("access_grants", sa.Column("views", sa.Integer(), nullable=False, server_default="0"))
    is_open = sa.text("status IN ('pending', 'granted')")
    is_untold = sa.text("told_at IS NULL")
    op.create_index(
        "ix_access_grants_open", "access_grants", ["expires_at"], sqlite_where=is_open, postgresql_where=is_open
    )
    op.create_index(
        "ix_access_grants_untold", "access_grants", ["agent_id"], sqlite_where=is_untold, postgresql_where=is_untold
    )
    op.create_index("ix_access_grants_user", "access_grants", ["user_id", "status"])
    op.create_table(
        "access_views",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("grant_id", sa.String(length=36), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("reader", sa.LargeBinary(length=32), nullable=False),
        sa.Column("wanted", sa.JSON(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("seen", sa.Integer(), nullable=True),
        sa.Column("refused", sa.String(length=300), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["grant_id"], ["access_grants.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_access_views_grant_id", "access_views", ["grant_id", "requested_at"])
    op.add_column("agents", sa.Column("forgotten_at", sa.DateTime(timezone=True), nullable=True))
