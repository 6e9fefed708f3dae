"""All tables of 0.2. Until its release edited in place: what 0.1 and earlier states of 0.2 hold is not carried over."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

Identity = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_GROWN = (
    "active AND NOT paused AND core_token_usage > core_token_budget"
    " AND core_token_usage - last_look_mass >= (core_token_budget + 9) / 10"
)

revision = "0020"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "accounts",
        sa.Column("id", Identity, nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("is_demo", sa.Boolean(), nullable=False),
        sa.Column("max_agents", sa.Integer(), nullable=True),
        sa.Column("max_refinements", sa.Integer(), nullable=True),
        sa.Column("max_monthly_cost", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("audit_sequence", Identity, nullable=False),
        sa.Column("audit_head", sa.LargeBinary(), nullable=False),
        sa.Column("logged_sequence", Identity, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_index(
        "ix_accounts_not_logged",
        "accounts",
        ["id"],
        unique=False,
        sqlite_where=sa.text("audit_sequence <> logged_sequence"),
        postgresql_where=sa.text("audit_sequence <> logged_sequence"),
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
        sa.Column("recall_probes", sa.Integer(), nullable=False),
        sa.Column("max_confirmed_losses", sa.Integer(), nullable=True),
        sa.Column("second_reader_model", sa.String(length=200), nullable=True),
        sa.Column("second_reader_api_base", sa.String(length=500), nullable=True),
        sa.Column("second_reader_api_key_env", sa.String(length=120), nullable=True),
        sa.Column("second_reader_action", sa.String(length=16), nullable=True),
        sa.Column("core_token_budget", sa.Integer(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("last_refinement_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_look_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_look_mass", sa.Integer(), nullable=True),
        sa.Column("declined_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failed_attempts", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_reflection_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reflection_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reflection_tries", sa.Integer(), nullable=False),
        sa.Column("core_token_usage", sa.Integer(), nullable=False),
        sa.Column("core_count", sa.Integer(), nullable=False),
        sa.Column("journal_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("forgotten_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stopped_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stopped_why", sa.String(length=300), nullable=True),
        sa.Column("audit_sequence", Identity, nullable=False),
        sa.Column("audit_head", sa.LargeBinary(), nullable=False),
        sa.Column("logged_sequence", Identity, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("account_id", "name"),
        sa.UniqueConstraint("uuid"),
    )
    op.create_index(
        "ix_agents_by_last_refinement",
        "agents",
        ["last_refinement_at", "id"],
        unique=False,
        sqlite_where=sa.text("active AND NOT paused"),
        postgresql_where=sa.text("active AND NOT paused"),
    )
    op.create_index(
        "ix_agents_not_logged",
        "agents",
        ["id"],
        unique=False,
        sqlite_where=sa.text("audit_sequence <> logged_sequence"),
        postgresql_where=sa.text("audit_sequence <> logged_sequence"),
    )
    op.create_index(
        "ix_agents_stopped",
        "agents",
        ["id"],
        unique=False,
        sqlite_where=sa.text("stopped_at IS NOT NULL"),
        postgresql_where=sa.text("stopped_at IS NOT NULL"),
    )
    op.create_index(
        "ix_agents_grown",
        "agents",
        ["last_attempt_at", "id"],
        unique=False,
        sqlite_where=sa.text(_GROWN),
        postgresql_where=sa.text(_GROWN),
    )
    op.create_index(
        "ix_agents_over_budget",
        "agents",
        ["last_look_at", "id"],
        unique=False,
        sqlite_where=sa.text("active AND NOT paused AND core_token_usage > core_token_budget"),
        postgresql_where=sa.text("active AND NOT paused AND core_token_usage > core_token_budget"),
    )
    op.create_index(
        "ix_agents_to_retry",
        "agents",
        ["retry_at", "id"],
        unique=False,
        sqlite_where=sa.text("active AND NOT paused AND retry_at IS NOT NULL"),
        postgresql_where=sa.text("active AND NOT paused AND retry_at IS NOT NULL"),
    )
    op.create_table(
        "users",
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("time_zone", sa.String(length=64), nullable=True),
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
        sa.Column("totp_step", sa.BigInteger(), nullable=True),
        sa.Column("create_datetime", sa.DateTime(), server_default=sa.text("(CURRENT_TIMESTAMP)"), nullable=False),
        sa.Column("update_datetime", sa.DateTime(), server_default=sa.text("(CURRENT_TIMESTAMP)"), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("email"),
        sa.UniqueConstraint("fs_uniquifier"),
        sa.UniqueConstraint("fs_webauthn_user_handle"),
        sa.UniqueConstraint("us_phone_number"),
        sa.UniqueConstraint("username"),
    )
    op.create_index(op.f("ix_users_account_id"), "users", ["account_id"], unique=False)
    op.create_table(
        "user_sessions",
        sa.Column("id", Identity, nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("browser", sa.String(length=200), nullable=False),
        sa.Column("signed_in_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_index(op.f("ix_user_sessions_user_id"), "user_sessions", ["user_id"], unique=False)
    op.create_table(
        "one_time_links",
        sa.Column("id", Identity, nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("email", sa.String(length=255), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=True),
        sa.Column("user_id", sa.Integer(), nullable=True),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_index(op.f("ix_one_time_links_account_id"), "one_time_links", ["account_id"], unique=False)
    op.create_table(
        "log_leaves",
        sa.Column("position", Identity, autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("agent_id", Identity, nullable=True),
        sa.Column("subject", sa.String(length=120), nullable=False),
        sa.Column("leaf", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("position"),
    )
    op.create_index("ix_log_leaves_agent", "log_leaves", ["agent_id", "position"], unique=False)
    op.create_index("ix_log_leaves_subject", "log_leaves", ["subject", "position"], unique=False)
    op.create_index(
        "ix_log_leaves_master",
        "log_leaves",
        ["position"],
        unique=False,
        sqlite_where=sa.text("kind = 'master-key'"),
        postgresql_where=sa.text("kind = 'master-key'"),
    )
    op.create_table(
        "signed_requests",
        sa.Column("id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("subject", sa.String(length=120), nullable=False),
        sa.Column("note", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("refused", sa.String(length=300), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "ix_signed_requests_waiting",
        "signed_requests",
        ["agent_id", "id"],
        unique=False,
        sqlite_where=sa.text("settled_at IS NULL"),
        postgresql_where=sa.text("settled_at IS NULL"),
    )
    op.create_table(
        "agent_keys",
        sa.Column("id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("purpose", sa.String(length=8), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("reader", sa.String(length=64), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
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
        sa.Column("signing_key", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("how", sa.String(length=16), nullable=False),
        sa.Column("shown_to", sa.String(length=254), nullable=False),
        sa.Column("request_id", sa.String(length=36), nullable=True),
        sa.Column("by_token", sa.String(length=16), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("rekeyed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("public_id"),
    )
    op.create_index(op.f("ix_agent_tokens_agent_id"), "agent_tokens", ["agent_id"], unique=False)
    op.create_index(
        "ix_agent_tokens_not_rekeyed",
        "agent_tokens",
        ["agent_id"],
        unique=False,
        sqlite_where=sa.text("revoked_at IS NOT NULL AND rekeyed_at IS NULL"),
        postgresql_where=sa.text("revoked_at IS NOT NULL AND rekeyed_at IS NULL"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=True),
        sa.Column("memory_id", Identity, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("agent_id", "key"),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"], unique=False)
    op.create_index("ix_idempotency_keys_memory_id", "idempotency_keys", ["memory_id"], unique=False)
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
        sa.Column("reader", sa.String(length=16), nullable=True),
        sa.Column("format", sa.String(length=16), nullable=True),
        sa.Column("name", sa.String(length=80), nullable=True),
        sa.Column("outcome", sa.JSON(), nullable=True),
        sa.Column("imported", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["actor_user_id"], ["users.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_intakes_agent_id"), "intakes", ["agent_id"], unique=False)
    op.create_table(
        "memories",
        sa.Column("id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("immutable", sa.Boolean(), nullable=False),
        sa.Column("entry_id", Identity, nullable=True),
        sa.Column("erased_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("type", sa.String(length=8), nullable=False),
        sa.Column("content_digest", sa.LargeBinary(), nullable=False),
        sa.Column("token_estimate", sa.Integer(), nullable=False),
        sa.Column("constitutional", sa.Boolean(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("origin_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("other_dates", sa.JSON(), nullable=False),
        sa.Column("merged_sources", sa.Integer(), nullable=False),
        sa.Column("merges", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("discarded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "ix_memories_active",
        "memories",
        ["agent_id", "type", "origin_at", "id"],
        unique=False,
        sqlite_where=sa.text("discarded_at IS NULL"),
        postgresql_where=sa.text("discarded_at IS NULL"),
    )
    op.create_index(
        "ix_memories_erased",
        "memories",
        ["agent_id"],
        unique=False,
        sqlite_where=sa.text("erased_at IS NOT NULL"),
        postgresql_where=sa.text("erased_at IS NOT NULL"),
    )
    op.create_index(
        "ix_memories_changeable",
        "memories",
        ["agent_id"],
        unique=False,
        sqlite_where=sa.text("type = 'core' AND discarded_at IS NULL AND NOT constitutional AND NOT immutable"),
        postgresql_where=sa.text("type = 'core' AND discarded_at IS NULL AND NOT constitutional AND NOT immutable"),
    )
    op.create_table(
        "content_keys",
        sa.Column("memory_id", Identity, autoincrement=False, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.id"]),
        sa.PrimaryKeyConstraint("memory_id"),
    )
    op.create_index(op.f("ix_content_keys_agent_id"), "content_keys", ["agent_id"], unique=False)
    op.create_table(
        "memory_texts",
        sa.Column("memory_id", Identity, autoincrement=False, nullable=False),
        sa.Column("content_digest", sa.LargeBinary(), nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.id"]),
        sa.PrimaryKeyConstraint("memory_id", "content_digest"),
    )
    op.create_index("ix_memory_texts_duplicates", "memory_texts", ["agent_id", "content_hash"], unique=False)
    op.create_table(
        "passkeys",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("credential_id", sa.LargeBinary(), nullable=False),
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
    op.create_index(op.f("ix_passkeys_credential_id"), "passkeys", ["credential_id"], unique=True)
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
        sa.Column("memories_merged", sa.Integer(), nullable=False),
        sa.Column("memories_before", sa.Integer(), nullable=True),
        sa.Column("memories_after", sa.Integer(), nullable=True),
        sa.Column("turns", sa.Integer(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("refused", sa.JSON(), nullable=False),
        sa.Column("specifics_checked", sa.Integer(), nullable=False),
        sa.Column("specifics_missing", sa.Integer(), nullable=False),
        sa.Column("specifics_restored", sa.Integer(), nullable=False),
        sa.Column("specifics_confirmed", sa.Integer(), nullable=False),
        sa.Column("confirmed_losses", sa.Integer(), nullable=False),
        sa.Column("max_confirmed_losses", sa.Integer(), nullable=False),
        sa.Column("reader_model", sa.String(length=200), nullable=True),
        sa.Column("reader_action", sa.String(length=16), nullable=True),
        sa.Column("ending", sa.String(length=16), nullable=True),
        sa.Column("second_reading", sa.JSON(), nullable=True),
        sa.Column("probes_asked", sa.Integer(), nullable=True),
        sa.Column("probes_kept", sa.Integer(), nullable=True),
        sa.Column("missing_named", sa.Integer(), nullable=True),
        sa.Column("missing_held", sa.Integer(), nullable=True),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.BigInteger(), nullable=False),
        sa.Column("erosion_floor", sa.Integer(), nullable=True),
        sa.Column("erosion_cut", sa.Integer(), nullable=True),
        sa.Column("erosion_base", sa.Integer(), nullable=True),
        sa.Column("undone_by", sa.String(length=36), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.Column("summary", sa.LargeBinary(), nullable=True),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stop_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stop_requested_by", sa.String(length=300), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("mutations >= 0 AND mutations <= cap AND cap <= 10", name="ck_refinements_cap"),
        sa.CheckConstraint("protected >= 0 AND protected <= 10", name="ck_refinements_protections"),
        sa.CheckConstraint(
            "confirmed_losses >= 0 AND confirmed_losses <= max_confirmed_losses AND max_confirmed_losses <= 10",
            name="ck_refinements_confirmed_losses",
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_refinements_account", "refinements", ["account_id", "requested_at"], unique=False)
    op.create_index("ix_refinements_agent", "refinements", ["agent_id", "requested_at"], unique=False)
    op.create_index(
        "ix_refinements_open",
        "refinements",
        ["heartbeat_at"],
        unique=False,
        sqlite_where=sa.text("status IN ('queued', 'asking', 'running')"),
        postgresql_where=sa.text("status IN ('queued', 'asking', 'running')"),
    )
    op.create_index("ix_refinements_status", "refinements", ["account_id", "status", "requested_at"], unique=False)
    op.create_index(
        "uq_refinements_one_open",
        "refinements",
        ["agent_id"],
        unique=True,
        sqlite_where=sa.text("status IN ('queued', 'asking', 'running')"),
        postgresql_where=sa.text("status IN ('queued', 'asking', 'running')"),
    )
    op.create_table(
        "recall_probes",
        sa.Column("refinement_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("memory_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("question", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("kept", sa.Boolean(), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.id"]),
        sa.ForeignKeyConstraint(["refinement_id"], ["refinements.id"]),
        sa.PrimaryKeyConstraint("refinement_id", "number"),
    )
    op.create_index(op.f("ix_recall_probes_agent_id"), "recall_probes", ["agent_id"], unique=False)
    op.create_index("ix_recall_probes_memory", "recall_probes", ["memory_id"], unique=False)
    op.create_table(
        "second_reading_words",
        sa.Column("refinement_id", sa.String(length=36), nullable=False),
        sa.Column("memory_id", Identity, autoincrement=False, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("words", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.id"]),
        sa.ForeignKeyConstraint(["refinement_id"], ["refinements.id"]),
        sa.PrimaryKeyConstraint("refinement_id", "memory_id"),
    )
    op.create_index(op.f("ix_second_reading_words_agent_id"), "second_reading_words", ["agent_id"], unique=False)
    op.create_index("ix_second_reading_words_memory", "second_reading_words", ["memory_id"], unique=False)
    op.create_table(
        "roles_users",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("role_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["role_id"], ["roles.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("user_id", "role_id"),
    )
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
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_by", sa.String(length=300), nullable=True),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("note", sa.LargeBinary(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "ix_setting_proposals_open",
        "setting_proposals",
        ["agent_id", "field"],
        unique=True,
        sqlite_where=sa.text("status IN ('reading', 'held')"),
        postgresql_where=sa.text("status IN ('reading', 'held')"),
    )
    op.create_table(
        "settings_requests",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("changes", sa.JSON(), nullable=False),
        sa.Column("about", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("requested_by", sa.String(length=300), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_by", sa.String(length=300), nullable=True),
        sa.Column("why", sa.String(length=300), nullable=True),
        sa.Column("reason", sa.LargeBinary(), nullable=True),
        sa.Column("note", sa.LargeBinary(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_settings_requests_agent", "settings_requests", ["agent_id", "requested_at"], unique=False)
    op.create_index(
        "ix_settings_requests_open",
        "settings_requests",
        ["requested_at"],
        unique=False,
        sqlite_where=sa.text("status IN ('pending', 'agreed')"),
        postgresql_where=sa.text("status IN ('pending', 'agreed')"),
    )
    op.create_table(
        "token_requests",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("public_id", sa.String(length=16), nullable=False),
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("signing_key", sa.LargeBinary(), nullable=False),
        sa.Column("replaces", sa.String(length=16), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("requested_by", sa.String(length=300), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_by", sa.String(length=300), nullable=True),
        sa.Column("reason", sa.LargeBinary(), nullable=True),
        sa.Column("note", sa.LargeBinary(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("public_id"),
    )
    op.create_index(op.f("ix_token_requests_account_id"), "token_requests", ["account_id"], unique=False)
    op.create_index(op.f("ix_token_requests_agent_id"), "token_requests", ["agent_id"], unique=False)
    op.create_index(
        "ix_token_requests_open",
        "token_requests",
        ["agent_id", "user_id"],
        unique=True,
        sqlite_where=sa.text("status = 'pending'"),
        postgresql_where=sa.text("status = 'pending'"),
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
        sa.Column("ended_by", sa.String(length=300), nullable=True),
        sa.Column("reason", sa.LargeBinary(), nullable=True),
        sa.Column("by_token", sa.String(length=16), nullable=True),
        sa.Column("note", sa.LargeBinary(), nullable=False),
        sa.Column("views", sa.Integer(), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["refinement_id"], ["refinements.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_access_grants_account_id"), "access_grants", ["account_id"], unique=False)
    op.create_index(op.f("ix_access_grants_agent_id"), "access_grants", ["agent_id"], unique=False)
    op.create_index(
        "ix_access_grants_open",
        "access_grants",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text("status IN ('pending', 'granted')"),
        postgresql_where=sa.text("status IN ('pending', 'granted')"),
    )
    op.create_index(
        "ix_access_grants_untold",
        "access_grants",
        ["agent_id"],
        unique=False,
        sqlite_where=sa.text("told_at IS NULL"),
        postgresql_where=sa.text("told_at IS NULL"),
    )
    op.create_index("ix_access_grants_user", "access_grants", ["user_id", "status"], unique=False)
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
        sa.Column("said", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("previous_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["refinement_id"], ["refinements.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("chain", "sequence"),
    )
    op.create_index("ix_audit_log_account_action_at", "audit_log", ["account_id", "action", "at", "id"], unique=False)
    op.create_index("ix_audit_log_account_at", "audit_log", ["account_id", "at", "id"], unique=False)
    op.create_index("ix_audit_log_agent_at", "audit_log", ["agent_id", "at", "id"], unique=False)
    op.create_index("ix_audit_log_refinement_id", "audit_log", ["refinement_id", "id"], unique=False)
    op.create_index(
        "ix_audit_log_user_at",
        "audit_log",
        ["user_id", "at", "id"],
        unique=False,
        sqlite_where=sa.text("user_id IS NOT NULL"),
        postgresql_where=sa.text("user_id IS NOT NULL"),
    )
    op.create_table(
        "events",
        sa.Column("id", Identity, nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=True),
        sa.Column("refinement_id", sa.String(length=36), nullable=True),
        sa.Column("kind", sa.String(length=48), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["refinement_id"], ["refinements.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_events_account_id_id", "events", ["account_id", "id"], unique=False)
    op.create_index("ix_events_refinement_id_id", "events", ["refinement_id", "id"], unique=False)
    op.create_table(
        "model_calls",
        sa.Column("id", Identity, nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("subject_id", sa.String(length=36), nullable=True),
        sa.Column("model_id", sa.String(length=200), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("total_tokens", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("outcome", sa.String(length=24), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_model_calls_account", "model_calls", ["account_id", "started_at"], unique=False)
    op.create_index("ix_model_calls_agent", "model_calls", ["agent_id", "started_at"], unique=False)
    op.create_index("ix_model_calls_subject_id", "model_calls", ["subject_id"], unique=False)
    op.create_table(
        "model_tests",
        sa.Column("agent_id", Identity, autoincrement=False, nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("requested_by", sa.String(length=300), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("model_id", sa.String(length=200), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=True),
        sa.Column("context_window", Identity, nullable=True),
        sa.Column("key_variable", sa.String(length=120), nullable=True),
        sa.Column("key_found", sa.Boolean(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.PrimaryKeyConstraint("agent_id"),
    )
    op.create_table(
        "asked_losses",
        sa.Column("refinement_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("memory_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("missing", sa.Integer(), nullable=False),
        sa.Column("restored", sa.Integer(), nullable=True),
        sa.Column("confirmed", sa.Integer(), nullable=True),
        sa.Column("entry_id", Identity, nullable=True),
        sa.Column("words", sa.LargeBinary(), nullable=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.id"]),
        sa.ForeignKeyConstraint(["refinement_id"], ["refinements.id"]),
        sa.PrimaryKeyConstraint("refinement_id", "number", "memory_id"),
    )
    op.create_index(op.f("ix_asked_losses_agent_id"), "asked_losses", ["agent_id"], unique=False)
    op.create_index("ix_asked_losses_memory", "asked_losses", ["memory_id"], unique=False)
    op.create_table(
        "access_views",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("grant_id", sa.String(length=36), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("reader", sa.LargeBinary(), nullable=False),
        sa.Column("wanted", sa.JSON(), nullable=False),
        sa.Column("note", sa.LargeBinary(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("seen", sa.Integer(), nullable=True),
        sa.Column("refused", sa.String(length=300), nullable=True),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["grant_id"], ["access_grants.id"]),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_access_views_grant_id", "access_views", ["grant_id", "requested_at"], unique=False)
    op.create_table(
        "consents",
        sa.Column("id", Identity, nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("refinement_id", sa.String(length=36), nullable=True),
        sa.Column("grant_id", sa.String(length=36), nullable=True),
        sa.Column("settings_request_id", sa.String(length=36), nullable=True),
        sa.Column("granted", sa.Boolean(), nullable=False),
        sa.Column("words", sa.LargeBinary(), nullable=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["grant_id"], ["access_grants.id"]),
        sa.ForeignKeyConstraint(["refinement_id"], ["refinements.id"]),
        sa.ForeignKeyConstraint(["settings_request_id"], ["settings_requests.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_consents_settings_request_id"), "consents", ["settings_request_id"], unique=False)
    op.create_index(op.f("ix_consents_agent_id"), "consents", ["agent_id"], unique=False)
    op.create_index(op.f("ix_consents_grant_id"), "consents", ["grant_id"], unique=False)
    op.create_index(op.f("ix_consents_refinement_id"), "consents", ["refinement_id"], unique=False)
    op.create_table(
        "attention_items",
        sa.Column("id", Identity, nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("entry_id", Identity, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("refinement_id", sa.String(length=36), nullable=True),
        sa.Column("grant_id", sa.String(length=36), nullable=True),
        sa.Column("settings_request_id", sa.String(length=36), nullable=True),
        sa.Column("text", sa.String(length=280), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_by", sa.String(length=300), nullable=True),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("settled_by", sa.String(length=36), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["entry_id"], ["audit_log.id"]),
        sa.ForeignKeyConstraint(["grant_id"], ["access_grants.id"]),
        sa.ForeignKeyConstraint(["refinement_id"], ["refinements.id"]),
        sa.ForeignKeyConstraint(["settings_request_id"], ["settings_requests.id"]),
        sa.ForeignKeyConstraint(["settled_by"], ["refinements.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("entry_id", "kind"),
    )
    op.create_index("ix_attention_items_settings_request_id", "attention_items", ["settings_request_id"], unique=False)
    op.create_index("ix_attention_items_account", "attention_items", ["account_id", "at", "id"], unique=False)
    op.create_index("ix_attention_items_agent", "attention_items", ["agent_id", "id"], unique=False)
    op.create_index(
        "ix_attention_items_agent_unseen",
        "attention_items",
        ["agent_id", "at", "id"],
        unique=False,
        sqlite_where=sa.text("seen_at IS NULL AND settled_by IS NULL"),
        postgresql_where=sa.text("seen_at IS NULL AND settled_by IS NULL"),
    )
    op.create_index("ix_attention_items_grant_id", "attention_items", ["grant_id"], unique=False)
    op.create_index("ix_attention_items_refinement_id", "attention_items", ["refinement_id"], unique=False)
    op.create_index(
        "ix_attention_items_unseen",
        "attention_items",
        ["account_id", "at", "id"],
        unique=False,
        sqlite_where=sa.text("seen_at IS NULL AND settled_by IS NULL"),
        postgresql_where=sa.text("seen_at IS NULL AND settled_by IS NULL"),
    )
    op.create_table(
        "human_acts",
        sa.Column("id", Identity, nullable=False),
        sa.Column("agent_id", Identity, nullable=False),
        sa.Column("entry_id", Identity, nullable=False),
        sa.Column("actor", sa.String(length=300), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("told_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"]),
        sa.ForeignKeyConstraint(["entry_id"], ["audit_log.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_human_acts_entry_id", "human_acts", ["entry_id"], unique=True)
    op.create_index("ix_human_acts_told", "human_acts", ["agent_id", "actor", "told_at"], unique=False)
    op.create_index(
        "ix_human_acts_untold",
        "human_acts",
        ["agent_id", "actor", "at"],
        unique=False,
        sqlite_where=sa.text("told_at IS NULL"),
        postgresql_where=sa.text("told_at IS NULL"),
    )
    op.create_table(
        "memory_states",
        sa.Column("memory_id", Identity, autoincrement=False, nullable=False),
        sa.Column("entry_id", Identity, autoincrement=False, nullable=False),
        sa.Column("previous_entry_id", Identity, nullable=True),
        sa.Column("restores_entry_id", Identity, nullable=True),
        sa.Column("kept", sa.Integer(), nullable=True),
        sa.Column("type", sa.String(length=8), nullable=False),
        sa.Column("content_digest", sa.LargeBinary(), nullable=False),
        sa.Column("token_estimate", sa.Integer(), nullable=False),
        sa.Column("constitutional", sa.Boolean(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("origin_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("other_dates", sa.JSON(), nullable=False),
        sa.Column("merged_sources", sa.Integer(), nullable=False),
        sa.Column("merges", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("discarded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["entry_id"], ["audit_log.id"]),
        sa.ForeignKeyConstraint(["memory_id"], ["memories.id"]),
        sa.PrimaryKeyConstraint("memory_id", "entry_id"),
    )
    op.create_index(op.f("ix_memory_states_entry_id"), "memory_states", ["entry_id"], unique=False)
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
        sa.ForeignKeyConstraint(["entry_id"], ["audit_log.id"]),
        sa.ForeignKeyConstraint(["refinement_id"], ["refinements.id"]),
        sa.ForeignKeyConstraint(["rollback_id"], ["rollbacks.id"]),
        sa.ForeignKeyConstraint(["target_entry_id"], ["audit_log.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_rollbacks_agent_id_at", "rollbacks", ["agent_id", "at"], unique=False)
    op.create_index("ix_rollbacks_entry_id", "rollbacks", ["entry_id"], unique=True)
    op.create_index("ix_rollbacks_refinement_id", "rollbacks", ["refinement_id"], unique=False)
    op.create_table(
        "notice_channels",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("shown", sa.String(length=254), nullable=False),
        sa.Column("kinds", sa.JSON(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("sealed_for_web", sa.LargeBinary(), nullable=True),
        sa.Column("reader", sa.String(length=16), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seen_event_id", Identity, nullable=False),
        sa.Column("digest_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_notice_channels_account", "notice_channels", ["account_id", "created_at"], unique=False)
    op.create_table(
        "notices",
        sa.Column("id", Identity, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("channel_id", sa.String(length=36), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("first_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["channel_id"], ["notice_channels.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("uuid"),
    )
    op.create_index("ix_notices_account", "notices", ["account_id", "id"], unique=False)
    op.create_index("ix_notices_channel", "notices", ["channel_id", "kind", "id"], unique=False)
    op.create_index(
        "ix_notices_waiting",
        "notices",
        ["due_at"],
        unique=False,
        sqlite_where=sa.text("status = 'waiting'"),
        postgresql_where=sa.text("status = 'waiting'"),
    )
    op.create_table(
        "notice_attempts",
        sa.Column("id", Identity, nullable=False),
        sa.Column("notice_id", Identity, nullable=False),
        sa.Column("account_id", Identity, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ok", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("words", sa.String(length=120), nullable=False),
        sa.Column("milliseconds", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"]),
        sa.ForeignKeyConstraint(["notice_id"], ["notices.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_notice_attempts_account", "notice_attempts", ["account_id", "at", "id"], unique=False)
    op.create_index(op.f("ix_notice_attempts_notice_id"), "notice_attempts", ["notice_id"], unique=False)


def downgrade() -> None:
    raise RuntimeError("There is no way back by a migration: restore the backup from before. Nothing was changed.")
