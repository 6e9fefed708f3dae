"""What the audit log's pages show: a page of the log, and what its filters offer."""

from __future__ import annotations

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


class AuditFilterOptions:
    """What can be chosen in the filters."""

    def __init__(self, form: FilterForm) -> None:
        account_id = form.filters.account_id
        names = select(Agent.name).where(Agent.account_id == account_id).order_by(Agent.name)
        emails = select(User.email).where(User.account_id == account_id).order_by(User.email)
        people = [(f"{ActorKind.USER}:{email}", email) for email in db.session.scalars(emails.limit(SUGGESTED))]
        itself = ("agent", "The agent itself" if form.agent else "Agents themselves")
        self.actors = [*_ANYONE, itself, *people, *_PARTS]
        chosen = form.typed.get("actor", "")
        if chosen not in dict(self.actors):
            self.actors.append((chosen, chosen.partition(":")[2] or chosen))
        self.agents = [] if form.agent else list(db.session.scalars(names.limit(SUGGESTED)))
        self.actions = [("", "Anything"), *_ACTIONS]


class AuditPage:
    """A page of the account's log, or of one agent's, whose `state` it then shows."""

    def __init__(self, form: FilterForm, *, before: str = "", after: str = "") -> None:
        self.state = AgentState.load(form.agent) if form.agent else None
        self.last_event = self.state.last_event if self.state else last_event(form.filters.account_id)
        self.log, self.offers = Log(form, before=before, after=after), AuditFilterOptions(form)

    def as_json(self) -> dict[str, Any]:
        """Raises `Wrong` for filters that can't be used."""
        return self.log.as_json() | ({"agent": self.state.agent.name} if self.state else {})
