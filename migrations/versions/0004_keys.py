"""Intakes: the master key that each is sealed to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("intakes", sa.Column("reader", sa.String(length=16), nullable=True))
    newest = "SELECT fingerprint FROM master_keys WHERE retired_at IS NULL ORDER BY id DESC LIMIT 1"
    op.execute(f"UPDATE intakes SET reader = ({newest}) WHERE sealed IS NOT NULL")
