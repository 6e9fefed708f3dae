"""Agent: a named model with a system prompt, a token budget and memories; it knows when it is due."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, Protocol

from sqlalchemy import ColumnElement, ForeignKey, String, Text, UniqueConstraint, exists, func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, mapped_column

from app.config import OFFLINE_MODEL
from app.errors import Invalid, Refused
from app.extensions import db, now
from app.models.agent_settings import (
    CONFIGURATION,
    ENDPOINT,
    PROMPTS,
    SECOND_READER,
    STATED_SETTINGS,
    as_json,
    check_listed_models,
    clean_settings,
    operator_settings,
)
from app.models.agent_standing import AgentStanding
from app.models.audit import NOT_LOGGED_YET, Action, Chained, record, record_each
from app.models.base import ExactRatio, Identity, Model, Moment, partial_index, require_row
from app.models.declaring import declare
from app.models.event import announce, announce_each
from app.models.grant import AccessGrant
from app.models.proposal import SettingProposal
from app.models.schedule import SCHEDULE_INDEXES
from app.models.settings_request import SettingsRequest
from app.models.state import MemoryType
from app.models.statement import StatementKind
from app.models.user import Account
from app.silo import TokenKey
from app.values.actor import Actor, ActorKind
from app.values.plural import count_nouns
from app.values.text import clean_name, is_row_id

MAX_FOUND = 300
"""Characters of what was found where an agent is stopped."""

_TOLD = "tells people what a worker found when it compared the rows with the log of statements, which it does anew"


class AgentForgotten(Refused):
    """The agent was forgotten: its keys are destroyed, and no new ones are ever made for it."""

    code = "agent_forgotten"


class Weighed(Protocol):
    """A memory, or a state of one."""

    @property
    def is_active(self) -> bool: ...

    @property
    def type(self) -> str: ...

    @property
    def token_estimate(self) -> int: ...


class TooManyAgents(Refused):
    """The account has as many agents as its operator allows."""

    code = "too_many_agents"


class AgentNameTaken(Refused):
    """Another agent of the account has this name."""


class Agent(Chained, AgentStanding, Model):
    """`core_token_usage` (tokens) and the counts are running totals, true at every commit.

    `forgotten_at` is when its keys were destroyed: what it remembered is unreadable for ever, its record stays.
    `stopped_at` and `stopped_why` tell people since when and why it is stopped, and decide nothing: before each use the
    rows themselves are compared with the log of statements.
    """

    __tablename__ = "agents"
    NOUN = "agent"
    LOG_KEY = "uuid"
    OWNER = ("agent", "id")
    CHECKED_ELSEWHERE = frozenset(
        {"id", "paused", "core_token_usage", "core_count", "journal_count", "audit_sequence", "audit_head"}
    ) | {*CONFIGURATION}
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {**Chained.NOT_AUDITED, "stopped_at": _TOLD, "stopped_why": _TOLD}
    __table_args__ = (
        UniqueConstraint("account_id", "name"),
        *SCHEDULE_INDEXES,
        partial_index("ix_agents_not_logged", "id", where=NOT_LOGGED_YET),
        partial_index("ix_agents_stopped", "id", where="stopped_at IS NOT NULL"),
        partial_index("ix_agents_newest", "account_id", "id", where="forgotten_at IS NULL"),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    uuid: Mapped[str] = mapped_column(String(36), unique=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    name: Mapped[str] = mapped_column(String(80))
    model_id: Mapped[str] = mapped_column(String(200))
    api_base: Mapped[str | None] = mapped_column(String(500))
    api_key_env: Mapped[str | None] = mapped_column(String(120))
    system_prompt: Mapped[str | None] = mapped_column(Text)
    reflection_prompt: Mapped[str | None] = mapped_column(Text)
    memory_reflection_prompt: Mapped[str | None] = mapped_column(Text)
    refinement_prompt: Mapped[str | None] = mapped_column(Text)
    refinement_threshold: Mapped[Decimal | None] = mapped_column(ExactRatio)
    recall_probes: Mapped[int] = mapped_column(default=0)
    max_confirmed_losses: Mapped[int | None]
    second_reader_model: Mapped[str | None] = mapped_column(String(200))
    second_reader_api_base: Mapped[str | None] = mapped_column(String(500))
    second_reader_api_key_env: Mapped[str | None] = mapped_column(String(120))
    second_reader_action: Mapped[str | None] = mapped_column(String(16))
    last_reflection_at: Mapped[Moment | None]
    reflection_asked_at: Mapped[Moment | None]
    reflection_tries: Mapped[int] = mapped_column(default=0)
    core_count: Mapped[int] = mapped_column(default=0)
    journal_count: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[Moment]
    forgotten_at: Mapped[Moment | None]
    stopped_at: Mapped[Moment | None]
    stopped_why: Mapped[str | None] = mapped_column(String(MAX_FOUND))

    @classmethod
    def create(cls, account_id: int, *, name: str, model_id: str, by: Actor, **fields: Any) -> Agent:
        """A new agent of the account, whose row is locked. Raises Invalid, TooManyAgents, or AgentNameTaken."""
        _require_room(account_id)
        agent = cls(
            uuid=str(uuid.uuid4()),
            account_id=account_id,
            name=_free_name(account_id, name),
            created_at=now(),
            **clean_settings({"model_id": model_id, "core_token_budget": operator_settings().default_budget, **fields}),
        )
        check_listed_models(agent.configuration(), STATED_SETTINGS)
        db.session.add(agent)
        db.session.flush()
        record(Action.AGENT_CREATE, actor=by, of=agent, subject=agent.subject, data={"settings": agent.configuration()})
        agent.state_model(by=by)
        return agent

    @classmethod
    def named(cls, account_id: int, name: str) -> Agent:
        """The account's agent of that name. Raises NotFound."""
        return require_row(
            db.session.scalar(select(cls).where(cls.account_id == account_id, cls.name == name)),
            f"There is no agent named {name!r} in this account. `./whetstone agents list` names them all.",
        )

    @classmethod
    def find_id(cls, account_id: int, typed: str) -> int:
        """The id of the account's agent that somebody named, by its name or else by its number. Raises Invalid."""
        mine = select(cls.id).where(cls.account_id == account_id)
        found = db.session.scalar(mine.where(cls.name == typed))
        if found is None and is_row_id(typed):
            found = db.session.scalar(mine.where(cls.id == int(typed)))
        if found is None:
            raise Invalid(f"There is no agent {typed!r} in this account.")
        return found

    @hybrid_property
    def has_language_model(self) -> bool:
        """Whether there is one to ask what it thinks: in Python, and as a condition of a query."""
        return self.model_id != OFFLINE_MODEL

    def check_not_forgotten(self) -> None:
        """Raises AgentForgotten: what would need its keys, or make new ones, is over for good."""
        if self.forgotten_at is not None:
            raise AgentForgotten(
                f"{self.name} was forgotten on {self.forgotten_at:%Y-%m-%d}: its keys are destroyed, and no new ones "
                "are ever made for it.",
                "Nothing was written.",
            )

    @property
    def audited_as(self) -> tuple[int, int | None]:
        return self.account_id, self.id

    @property
    def subject(self) -> str:
        return f"agent:{self.id}"

    @property
    def as_actor(self) -> Actor:
        """The agent, as the one who acts."""
        return Actor(ActorKind.AGENT, self.name)

    @property
    def effective_max_confirmed_losses(self) -> int:
        """Calls a refinement: its own number, or the operator's where that is smaller."""
        bound = operator_settings().max_confirmed_losses
        return bound if self.max_confirmed_losses is None else min(self.max_confirmed_losses, bound)

    def configuration(self) -> dict[str, Any]:
        """The settings that admins see, as plain JSON."""
        return {field: as_json(getattr(self, field)) for field in CONFIGURATION}

    def stated_model(self) -> dict[str, Any]:
        """Whom the agent's memories are sent to and with which prompts: what a statement has to say, word for word."""
        prompts = {name: _digest_text(getattr(self, name)) for name in PROMPTS}
        return {name: getattr(self, name) for name in (*ENDPOINT, *SECOND_READER)} | {"prompts": prompts}

    def state_model(
        self, *, by: Actor, signer: TokenKey | None = None, only: Collection[str] = STATED_SETTINGS
    ) -> None:
        """Sign models, addresses and prompts, of a change `only` what it changed: a row that somebody else has altered
        is not signed along. Until that is done nothing of the agent's is sent.
        """
        whole = self.stated_model()
        said = {name: whole[name] for name in (*ENDPOINT, *SECOND_READER) if name in only}
        prompts = {name: digest for name, digest in whole["prompts"].items() if name in only}
        said |= {"prompts": prompts} if prompts else {}
        declare(StatementKind.MODEL, self, f"agent:{self.uuid}", said | {"by": str(by)}, signer=signer)

    def change(
        self, *, by: Actor, about: Mapping[str, Any] | None = None, signer: TokenKey | None = None, **fields: Any
    ) -> list[str]:
        """Set settings and record what they were and are; returns the names of those that changed.

        `about` is recorded beside that. `signer` is the agent's token where that changes them. What was proposed or
        asked for about these settings waits no more.
        Raises Invalid, Refused, or AgentForgotten for one that is to be active again.
        """
        if fields.get("active"):
            self.check_not_forgotten()
        if "name" in fields and fields["name"] != self.name:
            fields["name"] = _free_name(self.account_id, fields["name"])
        cleaned = clean_settings(fields)
        changed = [field for field, value in cleaned.items() if getattr(self, field) != value]
        check_listed_models(self.configuration() | cleaned, changed)
        before = {field: as_json(getattr(self, field)) for field in changed}
        for field in changed:
            setattr(self, field, cleaned[field])
        if "name" in changed:
            _claim_name(self)
        if changed:
            after = {field: as_json(getattr(self, field)) for field in changed}
            data = {**(about or {}), "before": before, "after": after}
            record(Action.AGENT_SETTINGS_UPDATE, actor=by, of=self, subject=self.subject, data=data)
            if {*STATED_SETTINGS} & {*changed}:
                self.state_model(by=by, signer=signer, only=changed)
            SettingProposal.close(self, changed, by=by, why="the setting was changed meanwhile")
            SettingsRequest.close(self, changed, by=by, why="the setting was changed meanwhile")
            if {"model_id", "api_base"} & set(changed):
                AccessGrant.revoke_all(self, by=by, why="the agent's model or endpoint changed")
            self.announce("changed")
        return changed

    def pause(self, *, by: Actor, act: str = "") -> None:
        """No automatic start until resumed; a running refinement goes on. `act` names what is done to many at once."""
        if not self.paused:
            self.paused = True
            record(Action.AGENT_PAUSE, actor=by, of=self, subject=self.subject, data={"act": act} if act else None)
            self.announce("paused")

    def resume(self, *, by: Actor, act: str = "") -> None:
        """Raises AgentForgotten."""
        self.check_not_forgotten()
        if self.paused:
            self.paused = False
            record(Action.AGENT_RESUME, actor=by, of=self, subject=self.subject, data={"act": act} if act else None)
            self.announce("resumed")

    @classmethod
    def set_paused(cls, account_id: int, agents: Sequence[Agent], paused: bool, *, by: Actor, act: str) -> None:
        """Pause or resume many agents of the account that are not so yet, in a few statements however many they are.

        What is written is what `pause` and `resume` write. The caller has locked them, and none is forgotten.
        """
        for agent in agents:
            agent.paused = paused
        action = Action.AGENT_PAUSE if paused else Action.AGENT_RESUME
        record_each(action, actor=by, of=agents, data={"act": act})
        announce_each("agent.paused" if paused else "agent.resumed", account_id, [agent.id for agent in agents])

    def note_stop(self, found: str | None) -> None:
        """Keep and tell since when and why it is stopped, or with None that it is no more. The caller has locked it."""
        if self.stopped_why == (found and found[:MAX_FOUND]):
            return
        self.stopped_at = (self.stopped_at or now()) if found else None
        self.stopped_why = found and found[:MAX_FOUND]
        self.announce("stopped" if found else "freed")

    def announce(self, step: str, /, **data: Any) -> None:
        """A durable, content-free event of this agent."""
        announce(f"agent.{step}", *self.audited_as, **data)

    def is_immutable(self, tags: Sequence[str]) -> bool:
        """Whether one of these tags forbids the Knife to touch a memory."""
        if not tags:
            return False
        return any(tag.lower() in operator_settings().immutable_tags for tag in tags)

    def weigh(self, *, added: Iterable[Weighed] = (), removed: Iterable[Weighed] = ()) -> None:
        """Keep the running totals true while the states of memories change."""
        tokens = core = journal = 0
        for states, sign in ((removed, -1), (added, 1)):
            for state in states:
                if not state.is_active:
                    continue
                if state.type == "core":
                    tokens, core = tokens + sign * state.token_estimate, core + sign
                else:
                    journal += sign
        if tokens:
            self.core_token_usage += tokens
        if core:
            self.core_count += core
        if journal:
            self.journal_count += journal

    def needs_refinement(self, at: datetime, *, changeable: bool | None = None) -> bool:
        """Whether a sweep would want to refine it: by schedule, or for its size; and there is something to change.

        `changeable` says whether there is, where the caller knows.
        """
        if not self.may_need_refinement(at):
            return False
        return self.has_changeable_memories() if changeable is None else changeable

    def has_changeable_memories(self) -> bool:
        """Whether any active core memory is neither constitutional nor immutably tagged."""
        return bool(Agent.changeable_among([self.id]))

    @classmethod
    def changeable_among(cls, ids: Sequence[int]) -> set[int]:
        """Ids of those of these agents that have such a memory."""
        return set(db.session.scalars(select(cls.id).where(cls.id.in_(ids), is_changeable())))


def is_changeable() -> ColumnElement[bool]:
    """Whether the agent of a row has an active core memory that is neither constitutional nor immutably tagged."""
    from app.models.memory import Memory

    return exists().where(
        Memory.agent_id == Agent.id,
        Memory.type == MemoryType.CORE,
        Memory.discarded_at.is_(None),
        ~Memory.constitutional,
        ~Memory.immutable,
    )


def _digest_text(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _require_room(account_id: int) -> None:
    """Counted behind the account's lock: of two at once beyond the limit, one is refused. Raises TooManyAgents."""
    account = db.session.get_one(Account, account_id)
    most = account.max_agents
    if most is None:
        return
    kept = (Agent.account_id == account_id, Agent.forgotten_at.is_(None))
    there = db.session.scalar(select(func.count()).select_from(Agent).where(*kept)) or 0
    if there >= most:
        raise TooManyAgents(
            f"This account may have {count_nouns(most, 'agent')} at most, and has {there:,}. The operator of this "
            "installation can raise the limit; an agent that is forgotten for good makes room.",
            "Nothing was created.",
        )


def _free_name(account_id: int, name: object) -> str:
    cleaned = clean_name(name)
    if db.session.scalar(select(Agent.id).where(Agent.account_id == account_id, Agent.name == cleaned)):
        raise AgentNameTaken(f"An agent named {cleaned!r} exists already in this account; choose another name.")
    return cleaned


def _claim_name(agent: Agent) -> None:
    """Two may choose one name at the same moment: the database knows who was first. Raises Refused."""
    try:
        db.session.flush()
    except IntegrityError:
        raise Refused("An agent of that name was made at the same moment; choose another name.") from None


def agents_of(account_id: int) -> Iterable[Agent]:
    """The account's agents by name."""
    return db.session.scalars(select(Agent).where(Agent.account_id == account_id).order_by(Agent.name))
