"""AuditLog: the append-only, hash-chained record; `record` is the one place that writes it.

An entry's hash is SHA-256 over the canonical JSON of everything it says, the states of the memories that it wrote (a
digest stands for the sealed text) and the previous entry's hash of the same chain: one chain an agent, one an account
for the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import JSON, ColumnElement, ForeignKey, Index, LargeBinary, String, UniqueConstraint, or_
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, now
from app.models.base import Identity, Lockable, Model, Moment, insert_row, insert_rows, insert_values, partial_index
from app.models.logged import Logged, Said, take_what_changed, take_what_changed_of
from app.plain_rows import make_row
from app.values.actor import COMMAND_LINE, Actor, ActorKind
from app.values.canonical import canonical_json

if TYPE_CHECKING:
    from app.models.memory import Memory
    from app.models.state import MemoryState, Restoration


class Action(StrEnum):
    """Everything that can stand in the audit log."""

    REFINEMENT_START = "memory_refinement_start"
    REFINEMENT_CONSENT = "memory_refinement_consent"
    REFINEMENT_SNAPSHOT = "memory_refinement_snapshot"
    REFINEMENT_CONSOLIDATE = "memory_refinement_consolidate"
    REFINEMENT_UPDATE = "memory_refinement_update"
    REFINEMENT_DELETE = "memory_refinement_delete"
    REFINEMENT_PROTECT = "memory_refinement_protect"
    REFINEMENT_COMPLETE = "memory_refinement_complete"
    REFINEMENT_ROLLBACK = "memory_refinement_rollback"
    REFINEMENT_STOP_REQUESTED = "memory_refinement_stop_requested"
    SECOND_READING = "memory_refinement_second_reading"
    REFINEMENT_END = "memory_refinement_end"
    NOTE_TO_ADMINS = "note_to_admins"
    ATTENTION_SEEN = "attention_seen"
    ATTENTION_UNSEEN = "attention_unseen"
    AGENT_TOLD = "agent_told"
    DEDUP = "memory_dedup"
    CREATE = "memory_create"
    IMPORT = "memory_import"
    PROMOTE = "memory_promote"
    REFLECTION_ASK = "memory_reflection_ask"
    REFLECTION = "memory_reflection"
    ROLLBACK = "memory_rollback"
    CONSTITUTIONAL_TOGGLE = "memory_constitutional_toggle"
    ERASE = "memory_erase"
    AGENT_CREATE = "agent_create"
    AGENT_SETTINGS_UPDATE = "agent_settings_update"
    AGENT_SETTING_HELD = "agent_setting_held"
    AGENT_SETTING_DISMISSED = "agent_setting_dismissed"
    AGENT_CHANGE_ASKED = "agent_change_asked"
    AGENT_CHANGE_AGREED = "agent_change_agreed"
    AGENT_CHANGE_APPLIED = "agent_change_applied"
    AGENT_CHANGE_DENIED = "agent_change_denied"
    AGENT_CHANGE_FAILED = "agent_change_failed"
    AGENT_CHANGE_SUPERSEDED = "agent_change_superseded"
    AGENT_CHANGE_WITHDRAWN = "agent_change_withdrawn"
    AGENT_PAUSE = "agent_pause"
    AGENT_RESUME = "agent_resume"
    TOKEN_CREATE = "agent_token_create"  # noqa: S105 - an action's name
    TOKEN_REVOKE = "agent_token_revoke"  # noqa: S105 - an action's name
    TOKEN_REQUESTED = "token_requested"  # noqa: S105 - an action's name
    TOKEN_GRANTED = "token_granted"  # noqa: S105 - an action's name
    TOKEN_DENIED = "token_denied"  # noqa: S105 - an action's name
    TOKEN_UNANSWERED = "token_unanswered"  # noqa: S105 - an action's name
    TOKEN_FAILED = "token_failed"  # noqa: S105 - an action's name
    TOKEN_WITHDRAWN = "token_withdrawn"  # noqa: S105 - an action's name
    ACCESS_REQUESTED = "access_requested"
    ACCESS_GRANTED = "access_granted"
    ACCESS_DENIED = "access_denied"
    ACCESS_VIEWED = "access_viewed"
    ACCESS_EXPIRED = "access_expired"
    ACCESS_REVOKED = "access_revoked"
    ACCESS_UNANSWERED = "access_unanswered"
    ACCESS_FAILED = "access_failed"
    AGENT_FORGET = "agent_forget"
    AGENT_KEY_ROTATE = "agent_key_rotate"
    MASTER_KEY_ROTATE = "master_key_rotate"
    MASTER_KEY_BACKUP = "master_key_backup"
    ACCOUNT_CREATE = "account_create"
    ACCOUNT_RENAME = "account_rename"
    ACCOUNT_LIMITS = "account_limits"
    ACCOUNT_ENTER = "account_enter"
    ACCOUNT_LEAVE = "account_leave"
    USER_CREATE = "user_create"
    USER_INVITE = "user_invite"
    USER_ROLE = "user_role"
    USER_DEACTIVATE = "user_deactivate"
    USER_REACTIVATE = "user_reactivate"
    USER_PASSWORD = "user_password"  # noqa: S105 - an action's name
    PASSWORD_LINK = "password_link"  # noqa: S105 - an action's name
    LINK_REVOKE = "link_revoke"
    SECOND_FACTOR_ON = "second_factor_on"
    SECOND_FACTOR_OFF = "second_factor_off"
    SECOND_FACTOR_RESET = "second_factor_reset"
    PASSKEY_ADD = "passkey_add"
    PASSKEY_REMOVE = "passkey_remove"
    RECOVERY_CODES_RENEW = "recovery_codes_renew"
    RECOVERY_CODE_USE = "recovery_code_use"
    USER_TIME_ZONE = "user_time_zone"
    SESSIONS_END = "sessions_end"
    NOTICE_CHANNEL_CREATE = "notice_channel_create"
    NOTICE_CHANNEL_UPDATE = "notice_channel_update"
    NOTICE_CHANNEL_PAUSE = "notice_channel_pause"
    NOTICE_CHANNEL_RESUME = "notice_channel_resume"
    NOTICE_CHANNEL_REMOVE = "notice_channel_remove"
    NOTICE_CHANNEL_RESTORE = "notice_channel_restore"
    SIGN_IN = "sign_in"
    SIGN_IN_FAILED = "sign_in_failed"
    SIGN_OUT = "sign_out"


OPERATIONS = (
    Action.REFINEMENT_CONSOLIDATE,
    Action.REFINEMENT_UPDATE,
    Action.REFINEMENT_DELETE,
    Action.REFINEMENT_PROTECT,
)
"""What the Knife does to memories: steps of a refinement's timeline, and what a guard reverses when it trips."""


class AuditLog(Model):
    """One entry. `data` is open: numbers, ids, settings; never content. `said` is what logged rows became."""

    __tablename__ = "audit_log"
    __table_args__ = (
        UniqueConstraint("chain", "sequence"),
        Index("ix_audit_log_account_at", "account_id", "at", "id"),
        Index("ix_audit_log_account_action_at", "account_id", "action", "at", "id"),
        Index("ix_audit_log_agent_at", "agent_id", "at", "id"),
        Index("ix_audit_log_refinement_id", "refinement_id", "id"),
        partial_index("ix_audit_log_user_at", "user_id", "at", "id", where="user_id IS NOT NULL"),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    chain: Mapped[str] = mapped_column(String(64))
    sequence: Mapped[int] = mapped_column(Identity)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int | None] = mapped_column(ForeignKey("agents.id"))
    actor_kind: Mapped[ActorKind] = mapped_column(String(8))
    actor: Mapped[str] = mapped_column(String(300))
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    action: Mapped[Action] = mapped_column(String(48))
    subject: Mapped[str] = mapped_column(String(120))
    refinement_id: Mapped[str | None] = mapped_column(ForeignKey("refinements.id"))
    data: Mapped[dict[str, Any]]
    said: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    at: Mapped[Moment]
    previous_hash: Mapped[bytes] = mapped_column(LargeBinary(32))
    hash: Mapped[bytes] = mapped_column(LargeBinary(32))

    def digest(self, states: Iterable[MemoryState | Restoration]) -> bytes:
        """What `hash` must be, given the states that the entry wrote, in the order of their memories' ids."""
        return _digest_entry({name: getattr(self, name) for name in _HASHED}, states)


_HASHED = tuple(name for name in AuditLog.__table__.columns.keys() if name not in ("id", "hash"))  # noqa: SIM118


NOT_LOGGED_YET = "audit_sequence <> logged_sequence"
"""The condition of the partial index that finds chains that moved since the log of statements took their head."""


class Chained(Logged, Lockable):
    """What has an audit chain of its own: an agent, or an account for all that concerns no agent.

    `logged_sequence` is the entry whose hash the log of statements holds (`app/statements/checkpointing`).
    """

    NOT_AUDITED: ClassVar[Mapping[str, str]] = {"logged_sequence": "compared with the log of statements"}

    audit_sequence: Mapped[int] = mapped_column(Identity, default=0)
    audit_head: Mapped[bytes] = mapped_column(LargeBinary(32), default=b"")
    logged_sequence: Mapped[int] = mapped_column(Identity, default=0)

    @property
    def chain(self) -> str:
        return f"{self.NOUN}:{self.log_key}"

    @property
    def audited_as(self) -> tuple[int, int | None]:
        """The ids of account and agent."""
        raise NotImplementedError


def record(
    action: Action,
    *,
    actor: Actor,
    of: Chained,
    subject: str = "",
    refinement_id: str | None = None,
    data: Mapping[str, Any] | None = None,
    memories: Sequence[Memory] = (),
    kept: Mapping[int, int] | None = None,
    restored: Sequence[Restoration] = (),
    rows: Sequence[Logged] = (),
) -> AuditLog:
    """Append an entry to the chain of `of`, whose row the caller has locked in this transaction.

    `memories` are the changed rows, as they are after the change; their states are kept with the entry. `kept` gives,
    by memory id, what is left of the weight that it had when its refinement began. `restored` are other
    memories' ways back, which the caller carries out next (`models/restoring`). Logged rows that changed are said by
    themselves; `rows` are those that were changed past the session.
    """
    said = take_what_changed(of.logged_for, rows)
    states = [memory.state(kept=(kept or {}).get(memory.id)) for memory in memories]
    written: list[MemoryState | Restoration] = sorted([*states, *restored], key=attrgetter("memory_id"))
    entry = make_row(AuditLog, _next_entry(of, action, actor, subject, data, said, refinement_id, states=written))
    _store_entry(entry, memories, states, must_flush=bool(restored))
    return entry


def record_each(action: Action, *, actor: Actor, of: Sequence[Chained], data: Mapping[str, Any] | None = None) -> None:
    """Append the same entry to the chain of each of these rows, about the row itself, all in one statement.

    The caller has locked them in this transaction; they are written with the entries.
    """
    said_of = zip(of, take_what_changed_of([each.logged_for for each in of]), strict=True)
    entries = [_next_entry(each, action, actor, each.subject, data, said) for each, said in said_of]
    db.session.flush()
    insert_values(AuditLog, entries)


def _next_entry(
    of: Chained,
    action: Action,
    actor: Actor,
    subject: str,
    data: Mapping[str, Any] | None,
    said: dict[str, dict[str, Said]] | None,
    refinement_id: str | None = None,
    states: Iterable[MemoryState | Restoration] = (),
) -> dict[str, Any]:
    """Its columns but the id; the chain's head is its hash now."""
    account_id, agent_id = of.audited_as
    entry: dict[str, Any] = {
        "chain": of.chain,
        "sequence": of.audit_sequence + 1,
        "account_id": account_id,
        "agent_id": agent_id,
        "actor_kind": actor.kind,
        "actor": str(actor),
        "user_id": actor.user_id,
        "action": action,
        "subject": subject,
        "refinement_id": refinement_id,
        "data": dict(data or {}),
        "said": said,
        "at": now(),
        "previous_hash": of.audit_head,
    }
    entry["hash"] = _digest_entry(entry, states)
    of.audit_sequence, of.audit_head = entry["sequence"], entry["hash"]
    return entry


def _digest_entry(entry: Mapping[str, Any], states: Iterable[MemoryState | Restoration]) -> bytes:
    """Of an entry's columns by their names."""
    said = {
        "format": 1,
        "chain": entry["chain"],
        "sequence": entry["sequence"],
        "at": entry["at"].isoformat(),
        "actor": entry["actor"],
        "actor_kind": str(entry["actor_kind"]),
        "user": entry["user_id"],
        "action": str(entry["action"]),
        "account": entry["account_id"],
        "agent": entry["agent_id"],
        "refinement": entry["refinement_id"],
        "subject": entry["subject"],
        "data": entry["data"],
        "said": entry["said"],
        "states": _digest_states(states),
        "previous": entry["previous_hash"].hex(),
    }
    return hashlib.sha256(canonical_json(said).encode()).digest()


def _store_entry(
    entry: AuditLog, memories: Sequence[Memory], states: Sequence[MemoryState], *, must_flush: bool
) -> None:
    """Three statements in the order that the foreign keys want: the entry, the rows that changed, their states.

    Where only rows changed that nothing more is written of, they wait for the next flush: a transaction with two
    entries writes their chain's row once.
    """
    entry.id = insert_row(entry)
    for memory in memories:
        memory.entry_id = entry.id
    for state in states:
        state.entry_id = entry.id
    session = db.session()
    if must_flush or memories or session.new or session.deleted:
        session.flush()
    insert_rows(states)


def _digest_states(states: Iterable[MemoryState | Restoration]) -> str:
    """Of a line of JSON for each."""
    return hashlib.sha256("".join([f"{state.recorded_json()}\n" for state in states]).encode()).hexdigest()


TOLD_ACTIONS = (Action.ROLLBACK, Action.CONSTITUTIONAL_TOGGLE, Action.IMPORT, Action.ERASE)
"""Those that change memories and that a human can do."""


class HumanAct(Model):
    """What a human did to an agent's memories, until the agent's journal has told it: `told_at`.

    The web process holds no key of the journal: the act leaves this row, and a worker writes the note
    (`history/telling`). `entry_id` is the act's audit entry, `actor` who did it.
    """

    __tablename__ = "human_acts"
    __table_args__ = (
        partial_index("ix_human_acts_untold", "agent_id", "actor", "at", where="told_at IS NULL"),
        Index("ix_human_acts_told", "agent_id", "actor", "told_at"),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    entry_id: Mapped[int] = mapped_column(ForeignKey("audit_log.id"), index=True, unique=True)
    actor: Mapped[str] = mapped_column(String(300))
    at: Mapped[Moment]
    told_at: Mapped[Moment | None]


def is_human_act(entry: AuditLog) -> bool:
    """Whether a human changed memories by it, in the browser or at the command line."""
    is_human = entry.actor_kind == ActorKind.USER or entry.actor == str(COMMAND_LINE)
    return is_human and entry.action in TOLD_ACTIONS


def is_by_human() -> ColumnElement[bool]:
    """The same of the actor alone, for a query."""
    return or_(AuditLog.actor_kind == ActorKind.USER, AuditLog.actor == str(COMMAND_LINE))


def queue_note_to_agent(entry: AuditLog) -> None:
    """Have the agent told of a human's act, in the transaction of its entry; of others' acts, nothing is kept."""
    if is_human_act(entry):
        about = {"agent_id": entry.agent_id, "entry_id": entry.id, "actor": entry.actor, "at": entry.at}
        insert_values(HumanAct, [about])
