"""Rollbacks, the erosion guard's account, and an audit log that is read by time from any side."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

Identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "rollbacks",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("refinement_id", sa.String(length=36), nullable=True),
        sa.Column("target_entry_id", Identity, nullable=True),
        sa.Column("rollback_id", sa.String(length=36), nullable=True),
        sa.Column("entry_id", Identity, nullable=False),
        sa.Column("requested_by", sa.String(length=300), nullable=False),
        sa.Column("reversed", sa.Integer(), nullable=False),
        sa.Column("mass_before", sa.Integer(), nullable=False),
        sa.Column("mass_after", sa.Integer(), nullable=False),
        sa.Column("undid", sa.JSON(), nullable=False),
        sa.Column("redid", sa.JSON(), nullable=False),
        sa.Column("undone_by", sa.String(length=36), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["refinement_id"], ["refinements.id"]),
        sa.ForeignKeyConstraint(["target_entry_id"], ["audit_log.id"]),
        sa.ForeignKeyConstraint(["rollback_id"], ["rollbacks.id"]),
        sa.ForeignKeyConstraint(["entry_id"], ["audit_log.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_rollbacks_agent_id_at", "rollbacks", ["agent_id", "at"])
    op.create_index("ix_rollbacks_entry_id", "rollbacks", ["entry_id"], unique=True)
    op.create_index("ix_rollbacks_refinement_id", "rollbacks", ["refinement_id"])
    for name, kind in (
        ("erosion_floor", sa.Integer()),
        ("erosion_cut", sa.Integer()),
        ("erosion_base", sa.Integer()),
        ("undone_by", sa.String(length=36)),
    ):
        op.add_column("refinements", sa.Column(name, kind, nullable=True))
    op.add_column("memory_states", sa.Column("restores_entry_id", Identity, nullable=True))
    op.drop_index("ix_audit_log_account_id_id", "audit_log")
    op.drop_index("ix_audit_log_agent_id_id", "audit_log")
    op.create_index("ix_audit_log_account_at", "audit_log", ["account_id", "at", "id"])
    op.create_index("ix_audit_log_account_action_at", "audit_log", ["account_id", "action", "at", "id"])
    op.create_index("ix_audit_log_agent_at", "audit_log", ["agent_id", "at", "id"])
    by_user = sa.text("user_id IS NOT NULL")
    op.create_index(
        "ix_audit_log_user_at", "audit_log", ["user_id", "at", "id"], sqlite_where=by_user, postgresql_where=by_user
    )
