"""first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

Identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", Identity, nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("is_demo", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("audit_sequence", Identity, nullable=False),
        sa.Column("audit_head", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "marks",
        sa.Column("name", sa.String(length=48), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "master_keys",
        sa.Column("id", Identity, nullable=False),
        sa.Column("fingerprint", sa.String(length=16), nullable=False),
        sa.Column("public", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("fingerprint"),
    )
    op.create_table(
        "roles",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=True),
        sa.Column("permissions", sa.UnicodeText(), nullable=True),
        sa.Column("update_datetime", sa.DateTime(), server_default=sa.text("(CURRENT_TIMESTAMP)"), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "agents",
        sa.Column("id", Identity, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("model_id", sa.String(length=200), nullable=False),
        sa.Column("api_base", sa.String(length=500), nullable=True),
        sa.Column("api_key_env", sa.String(length=120), nullable=True),
        sa.Column("system_prompt", sa.Text(), nullable=True),
        sa.Column("reflection_prompt", sa.Text(), nullable=True),
        sa.Column("memory_reflection_prompt", sa.Text(), nullable=True),
        sa.Column("refinement_prompt", sa.Text(), nullable=True),
        sa.Column("refinement_threshold", sa.Integer(), nullable=True),
        sa.Column("core_token_budget", sa.Integer(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("last_refinement_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("core_token_usage", sa.Integer(), nullable=False),
        sa.Column("core_count", sa.Integer(), nullable=False),
        sa.Column("journal_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("audit_sequence", Identity, nullable=False),
        sa.Column("audit_head", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("account_id", "name"),
        sa.UniqueConstraint("uuid"),
    )
    with op.batch_alter_table("agents", schema=None) as batch_op:
        batch_op.create_index(
            "ix_agents_by_last_refinement",
            ["last_refinement_at", "id"],
            unique=False,
            sqlite_where=sa.text("active AND NOT paused"),
            postgresql_where=sa.text("active AND NOT paused"),
        )
        batch_op.create_index(
            "ix_agents_over_budget",
            ["id"],
            unique=False,
            sqlite_where=sa.text("active AND NOT paused AND core_token_usage > core_token_budget"),
            postgresql_where=sa.text("active AND NOT paused AND core_token_usage > core_token_budget"),
        )

    op.create_table(
        "users",
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("email", sa.String(length=255), nullable=False),
        sa.Column("username", sa.String(length=255), nullable=True),
        sa.Column("password", sa.String(length=255), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("fs_uniquifier", sa.String(length=64), nullable=False),
        sa.Column("confirmed_at", sa.DateTime(), nullable=True),
        sa.Column("last_login_at", sa.DateTime(), nullable=True),
        sa.Column("current_login_at", sa.DateTime(), nullable=True),
        sa.Column("last_login_ip", sa.String(length=64), nullable=True),
        sa.Column("current_login_ip", sa.String(length=64), nullable=True),
        sa.Column("login_count", sa.Integer(), nullable=True),
        sa.Column("tf_primary_method", sa.String(length=64), nullable=True),
        sa.Column("tf_totp_secret", sa.String(length=255), nullable=True),
        sa.Column("tf_phone_number", sa.String(length=128), nullable=True),
        sa.Column("us_totp_secrets", sa.Text(), nullable=True),
        sa.Column("us_phone_number", sa.String(length=128), nullable=True),
        sa.Column("fs_webauthn_user_handle", sa.String(length=64), nullable=True),
        sa.Column("mf_recovery_codes", sa.UnicodeText(), nullable=True),
        sa.Column("create_datetime", sa.DateTime(), server_default=sa.text("(CURRENT_TIMESTAMP)"), nullable=False),
        sa.Column("update_datetime", sa.DateTime(), server_default=sa.text("(CURRENT_TIMESTAMP)"), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("email"),
        sa.UniqueConstraint("fs_uniquifier"),
        sa.UniqueConstraint("fs_webauthn_user_handle"),
        sa.UniqueConstraint("us_phone_number"),
        sa.UniqueConstraint("username"),
    )
    with op.batch_alter_table("users", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_users_account_id"), ["account_id"], unique=False)

    op.create_table(
        "agent_keys",
        sa.Column("id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("purpose", sa.String(length=8), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("reader", sa.String(length=16), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("agent_id", "purpose", "version", "reader"),
    )
    op.create_table(
        "agent_tokens",
        sa.Column("id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("public_id", sa.String(length=16), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("public_id"),
    )
    with op.batch_alter_table("agent_tokens", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_agent_tokens_agent_id"), ["agent_id"], unique=False)

    op.create_table(
        "intakes",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("actor_kind", sa.String(length=8), nullable=False),
        sa.Column("actor_name", sa.String(length=300), nullable=False),
        sa.Column("actor_user_id", sa.Integer(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("imported", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.ForeignKeyConstraint(
            ["actor_user_id"],
            ["users.id"],
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("intakes", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_intakes_agent_id"), ["agent_id"], unique=False)

    op.create_table(
        "memories",
        sa.Column("id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("immutable", sa.Boolean(), nullable=False),
        sa.Column("entry_id", Identity, nullable=True),
        sa.Column("type", sa.String(length=8), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("token_estimate", sa.Integer(), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(), nullable=False),
        sa.Column("constitutional", sa.Boolean(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("origin_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("discarded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("memories", schema=None) as batch_op:
        batch_op.create_index(
            "ix_memories_active",
            ["agent_id", "type", "origin_at", "id"],
            unique=False,
            sqlite_where=sa.text("discarded_at IS NULL"),
            postgresql_where=sa.text("discarded_at IS NULL"),
        )
        batch_op.create_index(
            "ix_memories_changeable",
            ["agent_id"],
            unique=False,
            sqlite_where=sa.text("type = 'core' AND discarded_at IS NULL AND NOT constitutional AND NOT immutable"),
            postgresql_where=sa.text("type = 'core' AND discarded_at IS NULL AND NOT constitutional AND NOT immutable"),
        )
        batch_op.create_index(
            "ix_memories_duplicates",
            ["agent_id", "content_hash"],
            unique=False,
            sqlite_where=sa.text("type = 'core' AND discarded_at IS NULL"),
            postgresql_where=sa.text("type = 'core' AND discarded_at IS NULL"),
        )

    op.create_table(
        "passkeys",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("credential_id", sa.LargeBinary(length=1024), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("sign_count", sa.Integer(), nullable=True),
        sa.Column("transports", sa.UnicodeText(), nullable=True),
        sa.Column("backup_state", sa.Boolean(), nullable=False),
        sa.Column("device_type", sa.String(length=64), nullable=False),
        sa.Column("extensions", sa.String(length=255), nullable=True),
        sa.Column("create_datetime", sa.DateTime(), server_default=sa.text("(CURRENT_TIMESTAMP)"), nullable=False),
        sa.Column("lastuse_datetime", sa.DateTime(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("usage", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("passkeys", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_passkeys_credential_id"), ["credential_id"], unique=True)

    op.create_table(
        "refinements",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("trigger", sa.String(length=16), nullable=False),
        sa.Column("started_by", sa.String(length=300), nullable=False),
        sa.Column("mode", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("model_id", sa.String(length=200), nullable=False),
        sa.Column("threshold", sa.Integer(), nullable=False),
        sa.Column("cap", sa.Integer(), nullable=False),
        sa.Column("mass_before", sa.Integer(), nullable=True),
        sa.Column("kept_mass", sa.Integer(), nullable=True),
        sa.Column("mass_after", sa.Integer(), nullable=True),
        sa.Column("snapshot_entry_id", Identity, nullable=True),
        sa.Column("mutations", sa.Integer(), nullable=False),
        sa.Column("consolidated", sa.Integer(), nullable=False),
        sa.Column("updated", sa.Integer(), nullable=False),
        sa.Column("deleted", sa.Integer(), nullable=False),
        sa.Column("protected", sa.Integer(), nullable=False),
        sa.Column("deduplicated", sa.Integer(), nullable=False),
        sa.Column("deduplicated_tokens", sa.Integer(), nullable=False),
        sa.Column("turns", sa.Integer(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("note_to_admins", sa.String(length=280), nullable=True),
        sa.Column("summary", sa.LargeBinary(), nullable=True),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stop_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stop_requested_by", sa.String(length=300), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("mutations >= 0 AND mutations <= cap AND cap <= 10", name="ck_refinements_cap"),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("refinements", schema=None) as batch_op:
        batch_op.create_index("ix_refinements_account", ["account_id", "requested_at"], unique=False)
        batch_op.create_index("ix_refinements_status", ["account_id", "status", "requested_at"], unique=False)
        batch_op.create_index("ix_refinements_agent", ["agent_id", "requested_at"], unique=False)
        batch_op.create_index(
            "ix_refinements_open",
            ["heartbeat_at"],
            unique=False,
            sqlite_where=sa.text("status IN ('queued', 'asking', 'running')"),
            postgresql_where=sa.text("status IN ('queued', 'asking', 'running')"),
        )
        batch_op.create_index(
            "uq_refinements_one_open",
            ["agent_id"],
            unique=True,
            sqlite_where=sa.text("status IN ('queued', 'asking', 'running')"),
            postgresql_where=sa.text("status IN ('queued', 'asking', 'running')"),
        )

    op.create_table(
        "roles_users",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("role_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["role_id"],
            ["roles.id"],
        ),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
        ),
        sa.PrimaryKeyConstraint("user_id", "role_id"),
    )
    op.create_table(
        "access_grants",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("category", sa.String(length=16), nullable=False),
        sa.Column("purpose", sa.String(length=500), nullable=False),
        sa.Column("refinement_id", sa.String(length=36), nullable=True),
        sa.Column("minutes", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("requested_by", sa.String(length=300), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.ForeignKeyConstraint(
            ["refinement_id"],
            ["refinements.id"],
        ),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("access_grants", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_access_grants_account_id"), ["account_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_access_grants_agent_id"), ["agent_id"], unique=False)

    op.create_table(
        "audit_log",
        sa.Column("id", Identity, nullable=False),
        sa.Column("chain", sa.String(length=64), nullable=False),
        sa.Column("sequence", Identity, nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=True),
        sa.Column("actor_kind", sa.String(length=8), nullable=False),
        sa.Column("actor", sa.String(length=300), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("action", sa.String(length=48), nullable=False),
        sa.Column("subject", sa.String(length=120), nullable=False),
        sa.Column("refinement_id", sa.String(length=36), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("previous_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.ForeignKeyConstraint(
            ["refinement_id"],
            ["refinements.id"],
        ),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["users.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("chain", "sequence"),
    )
    with op.batch_alter_table("audit_log", schema=None) as batch_op:
        batch_op.create_index("ix_audit_log_account_id_id", ["account_id", "id"], unique=False)
        batch_op.create_index("ix_audit_log_agent_id_id", ["agent_id", "id"], unique=False)
        batch_op.create_index("ix_audit_log_refinement_id", ["refinement_id", "id"], unique=False)

    op.create_table(
        "events",
        sa.Column("id", Identity, nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=True),
        sa.Column("refinement_id", sa.String(length=36), nullable=True),
        sa.Column("kind", sa.String(length=48), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.ForeignKeyConstraint(
            ["refinement_id"],
            ["refinements.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index("ix_events_account_id_id", ["account_id", "id"], unique=False)
        batch_op.create_index("ix_events_refinement_id_id", ["refinement_id", "id"], unique=False)

    op.create_table(
        "consents",
        sa.Column("id", Identity, nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("refinement_id", sa.String(length=36), nullable=True),
        sa.Column("grant_id", sa.String(length=36), nullable=True),
        sa.Column("granted", sa.Boolean(), nullable=False),
        sa.Column("words", sa.LargeBinary(), nullable=True),
        sa.Column("note_to_admins", sa.String(length=280), nullable=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["account_id"],
            ["accounts.id"],
        ),
        sa.ForeignKeyConstraint(
            ["agent_id"],
            ["agents.id"],
        ),
        sa.ForeignKeyConstraint(
            ["grant_id"],
            ["access_grants.id"],
        ),
        sa.ForeignKeyConstraint(
            ["refinement_id"],
            ["refinements.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("consents", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_consents_agent_id"), ["agent_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_consents_grant_id"), ["grant_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_consents_refinement_id"), ["refinement_id"], unique=False)

    op.create_table(
        "memory_states",
        sa.Column("memory_id", Identity, autoincrement=False, nullable=False),
        sa.Column("entry_id", Identity, autoincrement=False, nullable=False),
        sa.Column("previous_entry_id", Identity, nullable=True),
        sa.Column("kept", sa.Integer(), nullable=True),
        sa.Column("type", sa.String(length=8), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("token_estimate", sa.Integer(), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(), nullable=False),
        sa.Column("constitutional", sa.Boolean(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("origin_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("discarded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["entry_id"],
            ["audit_log.id"],
        ),
        sa.ForeignKeyConstraint(
            ["memory_id"],
            ["memories.id"],
        ),
        sa.PrimaryKeyConstraint("memory_id", "entry_id"),
    )
    with op.batch_alter_table("memory_states", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_memory_states_entry_id"), ["entry_id"], unique=False)


def downgrade() -> None:
    raise NotImplementedError("The first tables are not taken down: restore a backup instead.")
