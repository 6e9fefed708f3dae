"""What the audit log's pages show: a page of the log, and what its filters offer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.models import ActorKind, Agent, User
from app.views.filters import FilterForm
from app.views.shown.agent import AgentState
from app.views.shown.agents import last_event
from app.views.shown.entry import PARTS
from app.views.shown.log import Log
from app.vocabulary import ACTIONS

SUGGESTED = 100
"""Agents and people that the filters name; others can be typed, or reached from an entry of theirs."""

_ANYONE = [("", "Anyone"), ("user", "People"), ("system", "The system")]
_PARTS = [(f"{ActorKind.SYSTEM}:{part}", words) for part, words in PARTS.items()]
_ACTIONS = sorted(((str(action), term.words) for action, term in ACTIONS.items()), key=lambda each: each[1])

Options = Sequence[tuple[str, str]]
"""Pairs of what stands in the address and the words for it."""


@dataclass(frozen=True)
class AuditFilterOptions:
    """What can be chosen in the filters."""

    agents: Sequence[str]
    actors: Options
    actions: Options

    @classmethod
    def load(cls, form: FilterForm) -> AuditFilterOptions:
        account_id = form.filters.account_id
        names = select(Agent.name).where(Agent.account_id == account_id).order_by(Agent.name)
        emails = select(User.email).where(User.account_id == account_id).order_by(User.email)
        people = [(f"{ActorKind.USER}:{email}", email) for email in db.session.scalars(emails.limit(SUGGESTED))]
        itself = ("agent", "The agent itself" if form.agent else "Agents themselves")
        actors = [*_ANYONE, itself, *people, *_PARTS]
        chosen = form.typed.get("actor", "")
        if chosen not in dict(actors):
            actors.append((chosen, chosen.partition(":")[2] or chosen))
        agents = [] if form.agent else list(db.session.scalars(names.limit(SUGGESTED)))
        return cls(agents, actors, [("", "Anything"), *_ACTIONS])


@dataclass(frozen=True)
class AuditPage:
    log: Log
    offers: AuditFilterOptions
    last_event: int

    @classmethod
    def load(cls, form: FilterForm, *, before: str = "", after: str = "") -> AuditPage:
        seen = last_event(form.filters.account_id)
        return cls(Log.load(form, before=before, after=after), AuditFilterOptions.load(form), seen)

    def as_json(self) -> dict[str, Any]:
        return self.log.as_json()


@dataclass(frozen=True)
class AgentAuditPage:
    state: AgentState
    log: Log
    offers: AuditFilterOptions

    @classmethod
    def load(cls, agent: Agent, form: FilterForm, *, before: str = "", after: str = "") -> AgentAuditPage:
        return cls(AgentState.load(agent), Log.load(form, before=before, after=after), AuditFilterOptions.load(form))

    @property
    def last_event(self) -> int:
        return self.state.last_event

    def as_json(self) -> dict[str, Any]:
        return {"agent": self.state.agent.name} | self.log.as_json()
