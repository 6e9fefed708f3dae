"""The agents' door: idempotency keys, imports by format, conversations, reflections, and settings that wait."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

Identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agents", sa.Column("last_reflection_at", sa.DateTime(timezone=True), nullable=True))
    for column in (
        sa.Column("format", sa.String(length=16), nullable=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.JSON(), nullable=True),
    ):
        op.add_column("intakes", column)
    op.create_table(
        "idempotency_keys",
        sa.Column("id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(length=32), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("agent_id", "key"),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])
    op.create_table(
        "setting_proposals",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("field", sa.String(length=40), nullable=False),
        sa.Column("value", sa.Text(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("why", sa.String(length=300), nullable=True),
        sa.Column("proposed_by", sa.String(length=300), nullable=False),
        sa.Column("proposed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_by", sa.String(length=300), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    is_open = sa.text("status IN ('reading', 'held')")
    op.create_index(
        "ix_setting_proposals_open",
        "setting_proposals",
        ["agent_id", "field"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
