"""What the pages of one agent show: its summary, its sealed ledger, refinements, imports, and its forgetting."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from flask import url_for
from sqlalchemy import ColumnElement, func, select

from app.events.topics import newest_event
from app.exchange.parsed import ImportFormat
from app.extensions import db, now
from app.history.erasing import check_not_erased, find_remains
from app.models import (
    OPEN_GRANTS,
    AccessGrant,
    Action,
    Agent,
    AgentKey,
    AgentToken,
    AttentionItem,
    AttentionKind,
    AuditLog,
    Intake,
    IntakeStatus,
    Memory,
    MemoryState,
    ModelCall,
    Refinement,
    Status,
    TokenRequest,
)
from app.models.agent_settings import operator_settings
from app.models.base import iso, require_row
from app.models.key import TokenOrigin, live_tokens
from app.models.memory_rows import BlindRow
from app.models.refinement import NEWEST_REFINEMENTS
from app.refinement.erosion import Erosion, erosion_of
from app.shapes.memory import AdminImport, LedgerRowShape
from app.shapes.refinement import RefinementShape
from app.values.mass_story import exact_percent, percent
from app.values.plural import count_nouns
from app.views.shown.agents import AgentRow, load_rows
from app.views.shown.attention import Unseen
from app.views.shown.entry import actor_name
from app.views.shown.ledger import Ledger, LedgerFigures
from app.views.shown.mass import MassChart
from app.vocabulary.actions import action_term

REFINEMENT_ROWS = 20
INTAKE_ROWS = 20
HISTORY_ROWS = 50
OUTCOME_DAYS = 90
TOKEN_REQUEST_ROWS = 5
INTAKE_NEWS = timedelta(minutes=10)
"""How long an import stays on the page of the ledger after a worker settled it."""


@dataclass(frozen=True)
class AgentState(AgentRow):
    """The head of all pages of an agent."""

    agent: Agent
    last_refinement: Refinement | None
    erosion: Erosion
    last_event: int

    @classmethod
    def load(cls, agent: Agent) -> AgentState:
        seen = newest_event(agent.account_id)
        (row,) = load_rows([agent])
        last = db.session.get(Refinement, row.last.id) if row.last else None
        return cls(**vars(row), last_refinement=last, erosion=erosion_of(agent), last_event=seen)

    @property
    def erosion_floor(self) -> Decimal | None:
        return operator_settings().erosion_floor

    @property
    def erosion_words(self) -> str:
        """What refinements left of the core memories over 30 days, and what they must leave."""
        limit = "no limit" if self.erosion_floor is None else f"limit {exact_percent(self.erosion_floor)}"
        if self.erosion.cut == 0:
            return f"100% kept, {limit}"
        kept = percent(self.erosion.kept, self.erosion_floor or 1)
        return f"{kept} of {self.erosion.base:,} tokens kept, {limit}"

    @property
    def stopped_command(self) -> str | None:
        """What shows where it differs from what was signed, while it is stopped."""
        return f"./whetstone verify --agent {shlex.quote(self.agent.name)}" if self.agent.stopped_at else None

    @property
    def model_warning(self) -> str:
        """What the last refinement showed of its model; empty when there is nothing to say."""
        last = self.last_refinement
        return last.refusal_line if last is not None and last.model_seems_unable else ""

    def as_json(self) -> dict[str, Any]:
        floor = None if self.erosion_floor is None else float(self.erosion_floor)
        erosion = {"cut": self.erosion.cut, "base": self.erosion.base, "kept": float(self.erosion.kept), "floor": floor}
        said = {
            "stopped_command": self.stopped_command,
            "next_due_words": self.due.words,
            "model_warning": self.model_warning or None,
            "erosion": erosion,
        }
        return super().as_json() | said


@dataclass(frozen=True)
class AgentCost:
    """What asking models for an agent cost since the first of this month, UTC."""

    calls: int
    tokens: int
    usd: Decimal

    @classmethod
    def of(cls, agent: Agent) -> AgentCost:
        since = now().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        columns = (func.count(), func.sum(ModelCall.total_tokens), func.sum(ModelCall.cost_usd))
        mine = (ModelCall.agent_id == agent.id, ModelCall.started_at >= since)
        calls, tokens, usd = db.session.execute(select(*columns).where(*mine)).one()
        return cls(calls, int(tokens or 0), Decimal(usd or 0))

    @property
    def words(self) -> str:
        if not self.calls:
            return "no calls of a model"
        return f"${self.usd:,.2f} for {count_nouns(self.calls, 'call')}, {self.tokens:,} tokens"

    def as_json(self) -> dict[str, Any]:
        return {"calls": self.calls, "tokens": self.tokens, "cost_usd": float(self.usd)}


class AgentPage:
    """The summary. Its twin holds a page of the ledger, too, as programs rely on."""

    def __init__(self, agent: Agent, *, show: str = "", after: str = "") -> None:
        self.state = AgentState.load(agent)
        self.recent = newest_refinements(agent, 5)
        self.unseen = Unseen(agent.account_id, agent.id)
        self.ledger = Ledger(agent, show=show, after=after)
        self.intakes = _load_intake_news(agent)
        self.mass = MassChart(agent)
        self.outcomes, self.cost = _count_outcomes(agent), AgentCost.of(agent)
        self.first_token, self.token_requests = _load_first_token(agent), _load_token_requests(agent)

    def as_json(self) -> dict[str, Any]:
        said = {
            "first_token_shown_to": self.first_token.shown_to if self.first_token else None,
            "token_requests_waiting": len(self.token_requests),
            "attention_items": self.unseen.as_json(),
            "refinements": [RefinementShape.of(refinement).as_json() for refinement in self.recent],
            "mass": self.mass.as_json(),
            "outcomes": {str(status): count for status, count in self.outcomes},
            "cost_of_month": self.cost.as_json(),
        }
        return self.state.as_json() | self.ledger.as_json() | said


class LedgerPage:
    """The sealed ledger, blind. `number` stands in the field for a memory's number, `error` beside it."""

    def __init__(self, agent: Agent, *, show: str = "", after: str = "", number: str = "", error: str = "") -> None:
        self.state, self.number, self.error = AgentState.load(agent), number, error
        self.ledger = Ledger(agent, show=show, after=after)
        self.intakes = _load_intake_news(agent)
        self.figures = LedgerFigures(agent, self.ledger)

    def as_json(self) -> dict[str, Any]:
        where = {"agent": self.state.agent.name, "agent_id": self.state.agent.id}
        return where | self.ledger.as_json() | {"figures": self.figures.as_json()}


REFINEMENTS = {
    "all": "All",
    "asked": "Asked about losses",
    "lossy": "Confirmed a loss",
    "flagged": "Flagged by a reader",
}


class RefinementsPage:
    """All of an agent's, or only those that concern meaning."""

    choices = REFINEMENTS

    def __init__(self, agent: Agent, *, show: str = "", before: str = "") -> None:
        self.show = show if show in REFINEMENTS else "all"
        mine = Refinement.agent_id == agent.id
        position = NEWEST_REFINEMENTS.find(before, mine)
        wanted = select(Refinement).where(mine, *_concerning(self.show))
        self.refinements, last = NEWEST_REFINEMENTS.load(wanted, REFINEMENT_ROWS, position)
        self.next_before = last.id if last else ""
        self.state = AgentState.load(agent)

    def as_json(self) -> dict[str, Any]:
        rows = [RefinementShape.of(refinement).as_json() for refinement in self.refinements]
        where = {"agent": self.state.agent.name, "show": self.show}
        return where | {"refinements": rows, "next_before": self.next_before or None}


def _concerning(show: str) -> list[ColumnElement[bool]]:
    match show:
        case "asked":
            return [Refinement.specifics_missing > 0]
        case "lossy":
            return [Refinement.confirmed_losses > 0]
        case "flagged":
            item = AttentionItem.kind == AttentionKind.READING
            flagged = select(AttentionItem.refinement_id).where(item, AttentionItem.agent_id == Refinement.agent_id)
            return [Refinement.id.in_(flagged)]
        case _:
            return []


class ImportsPage:
    formats = (
        ("", "Detect automatically"),
        *((each, each.words[:1].upper() + each.words[1:]) for each in ImportFormat),
    )
    """What a file may be, as the form offers it."""

    def __init__(self, agent: Agent, *, problems: Sequence[str] = ()) -> None:
        self.state = AgentState.load(agent)
        self.intakes, self.problems = _load_intakes(agent), problems

    def as_json(self) -> dict[str, Any]:
        imports = [AdminImport.of(intake).as_json() for intake in self.intakes]
        return {"agent": self.state.agent.name, "imports": imports}


class ForgetPage:
    """What would be destroyed or ended, and what stays. `typed` stands in the field for the name; None before that."""

    def __init__(self, agent: Agent, *, may_forget: bool, typed: str | None = None) -> None:
        self.state, self.may_forget, self.typed = AgentState.load(agent), may_forget, typed
        self.counts = {
            "keys": _count_rows(AgentKey, agent),
            "tokens": len(live_tokens(agent.id)),
            "imports_waiting": _count_rows(Intake, agent, Intake.status == IntakeStatus.WAITING),
            "exceptions": _count_rows(AccessGrant, agent, AccessGrant.status.in_(OPEN_GRANTS)),
            "memories": _count_rows(Memory, agent),
            "entries": _count_rows(AuditLog, agent),
        }

    def as_json(self) -> dict[str, Any]:
        agent = self.state.agent
        said = {"agent": agent.name, "forgotten_at": iso(agent.forgotten_at), "may_forget": self.may_forget}
        return said | self.counts


class MemoryPage:
    """One memory, blind, and what its erasure would remove and leave. `typed` and `reason` stand in the form's fields.

    Raises NotFound, and MemoryErased with the receipt.
    """

    def __init__(
        self, agent: Agent, memory_id: int, *, may_erase: bool, typed: str | None = None, reason: str = ""
    ) -> None:
        self.state, self.may_erase, self.typed, self.reason = AgentState.load(agent), may_erase, typed, reason
        check_not_erased(agent.id, memory_id)
        query = select(Memory).where(Memory.id == memory_id, Memory.agent_id == agent.id)
        self.row = require_row(next(iter(BlindRow.load(query)), None), "There is no such memory.")
        self.remains = find_remains(agent.id, memory_id)
        self.history = load_history(memory_id)
        self.url = url_for("memories.show", agent_id=agent.id, memory_id=memory_id)

    def as_json(self) -> dict[str, Any]:
        said = {"agent": self.state.agent.name, "agent_id": self.state.agent.id, "may_erase": self.may_erase}
        history = {"history": [change.as_json() for change in self.history]}
        return LedgerRowShape.of(self.row).as_json() | said | self.remains | history


@dataclass(frozen=True)
class MemoryChange:
    """What a memory became by one entry of the audit log, blind. `tokens` is its weight then."""

    entry_id: int
    at: datetime
    action: Action
    actor: str
    refinement_id: str | None
    tokens: int
    version: int
    constitutional: bool
    discarded_at: datetime | None

    @property
    def words(self) -> str:
        return action_term(self.action).words

    @property
    def by(self) -> str:
        return actor_name(self.actor)

    def as_json(self) -> dict[str, Any]:
        who = {"entry": self.entry_id, "at": iso(self.at), "action": str(self.action), "actor": self.actor}
        then = {"tokens": self.tokens, "version": self.version, "constitutional": self.constitutional}
        return who | {"refinement": self.refinement_id, **then, "discarded": self.discarded_at is not None}


def load_history(memory_id: int) -> list[MemoryChange]:
    """The newest states of a memory, the newest first."""
    entry = (AuditLog.id, AuditLog.at, AuditLog.action, AuditLog.actor, AuditLog.refinement_id)
    state = (MemoryState.token_estimate, MemoryState.version, MemoryState.constitutional, MemoryState.discarded_at)
    query = select(*entry, *state).join(MemoryState, MemoryState.entry_id == AuditLog.id)
    newest = query.where(MemoryState.memory_id == memory_id).order_by(MemoryState.entry_id.desc()).limit(HISTORY_ROWS)
    return [MemoryChange(*row) for row in db.session.execute(newest).tuples()]


def load_ledger_row(agent: Agent, memory_id: int) -> BlindRow | None:
    """One active memory of this agent's."""
    mine = (Memory.id == memory_id, Memory.agent_id == agent.id, Memory.discarded_at.is_(None))
    return next(iter(BlindRow.load(select(Memory).where(*mine))), None)


def newest_refinements(agent: Agent, limit: int) -> list[Refinement]:
    query = select(Refinement).where(Refinement.agent_id == agent.id)
    return list(db.session.scalars(query.order_by(*NEWEST_REFINEMENTS.order).limit(limit)))


def _load_intakes(agent: Agent) -> list[Intake]:
    query = select(Intake).where(Intake.agent_id == agent.id, Intake.kind == "import")
    return list(db.session.scalars(query.order_by(Intake.created_at.desc()).limit(INTAKE_ROWS)))


def _load_intake_news(agent: Agent) -> list[Intake]:
    since = now() - INTAKE_NEWS
    return [each for each in _load_intakes(agent) if each.taken_at is None or each.taken_at > since]


def _count_outcomes(agent: Agent) -> list[tuple[Status, int]]:
    """How its refinements of the last days ended, in the order of the enum."""
    since = now() - timedelta(days=OUTCOME_DAYS)
    mine = (Refinement.agent_id == agent.id, Refinement.requested_at >= since, Refinement.ended_at.is_not(None))
    query = select(Refinement.status, func.count()).where(*mine).group_by(Refinement.status)
    counts = dict(db.session.execute(query).tuples().all())
    return [(status, counts[status]) for status in Status if status in counts]


def _load_first_token(agent: Agent) -> AgentToken | None:
    """The one that was made with the agent, while it works."""
    query = select(AgentToken).where(AgentToken.agent_id == agent.id, AgentToken.how == TokenOrigin.FIRST)
    return db.session.scalar(query.where(AgentToken.revoked_at.is_(None)).order_by(AgentToken.id).limit(1))


def _load_token_requests(agent: Agent) -> list[TokenRequest]:
    """Those that wait for the agent; each admin has one at most."""
    query = select(TokenRequest).where(TokenRequest.agent_id == agent.id, TokenRequest.waits())
    return list(db.session.scalars(query.order_by(TokenRequest.requested_at).limit(TOKEN_REQUEST_ROWS)))


def _count_rows(model: Any, agent: Agent, *conditions: ColumnElement[bool]) -> int:
    query = select(func.count(model.id)).where(model.agent_id == agent.id, *conditions)
    return db.session.scalar(query) or 0
