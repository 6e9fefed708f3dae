"""Outcomes: a reflection that got no answer is asked for again, and agents are told what became of their prompts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agents", sa.Column("reflection_asked_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("agents", sa.Column("reflection_tries", sa.Integer(), nullable=False, server_default="0"))
    op.execute("UPDATE agents SET reflection_asked_at = last_reflection_at WHERE last_reflection_at IS NOT NULL")
    op.add_column("setting_proposals", sa.Column("told_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE setting_proposals SET told_at = decided_at WHERE status NOT IN ('reading', 'held')")
