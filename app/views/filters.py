"""The audit log's filters as they stand in an address: read, resolved to rows of the account, given back as typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from app.errors import Invalid
from app.extensions import db
from app.history.log import Filters, LogActor
from app.models import Action, ActorKind, Agent, Refinement, User
from app.values.dates import parse_day, parse_last_day
from app.views.forms import Wrong

FIELDS = ("agent", "actor", "action", "refinement", "from", "to")
MAX_TYPED = 310

_UUID_BEGINS = re.compile(r"[0-9a-f-]{8,36}", re.ASCII)


@dataclass(frozen=True)
class FilterForm:
    """`typed` is what stands in the fields that are not empty, `errors` the sentences beside those that can't be used.

    `agent` is set on the pages of one agent, whose log can't be left by a filter.
    """

    filters: Filters
    typed: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    agent: Agent | None = None

    @classmethod
    def read(cls, account_id: int, sent: Mapping[str, str], agent: Agent | None = None) -> FilterForm:
        names = [name for name in FIELDS if agent is None or name != "agent"]
        typed = {name: sent[name].strip() for name in names if sent.get(name, "").strip()}
        found: dict[str, Any] = {"agent_id": agent.id if agent else None}
        errors: dict[str, str] = {}
        for name, text in typed.items():
            into, parse = _PARSERS[name]
            try:
                found[into] = parse(account_id, require_printable(text))
            except Invalid as error:
                errors[name] = error.sentence
        filters = Filters(account_id, **found)
        if filters.since and filters.until and filters.since >= filters.until:
            errors["to"] = "The last day is before the first one."
        return cls(filters, typed, errors, agent)

    @property
    def is_filtered(self) -> bool:
        return bool(self.typed)

    def check(self) -> None:
        """Raises `Wrong` when a filter can't be used: a program must not take nothing for an answer."""
        if self.errors:
            raise Wrong(self.errors)


def _parse_actor(account_id: int, typed: str) -> LogActor:
    """`user`, `agent` or `system`, or one of them as the log names it, such as `user:ann@example.org`."""
    kind, _, name = typed.partition(":")
    if kind not in list(ActorKind):
        raise Invalid(f"Nobody is called {typed!r} here. The log names people user:…, agents agent:…, parts system:…")
    user_id = agent_id = None
    if name and kind == ActorKind.USER:
        user_id = db.session.scalar(select(User.id).where(User.account_id == account_id, User.email == name))
    if name and kind == ActorKind.AGENT:
        agent_id = db.session.scalar(select(Agent.id).where(Agent.account_id == account_id, Agent.name == name))
    return LogActor(ActorKind(kind), name, user_id, agent_id)


def _parse_action(account_id: int, typed: str) -> Action:
    if typed not in list(Action):
        raise Invalid(f"The log knows no action {typed!r}.")
    return Action(typed)


def _parse_refinement(account_id: int, typed: str) -> str:
    """By its id, or by as much of its beginning as the pages show."""
    number = typed.lower()
    if not _UUID_BEGINS.fullmatch(number):
        raise Invalid(
            "Type a refinement's id, as in the address of its page, or at least the first 8 characters of it."
        )
    is_it = Refinement.id == number if len(number) == 36 else Refinement.id.startswith(number)
    found = db.session.scalars(select(Refinement.id).where(Refinement.account_id == account_id, is_it).limit(2)).all()
    if not found:
        raise Invalid("There is no such refinement in this account.")
    if len(found) > 1:
        raise Invalid("Several refinements begin like this: type more of the id.")
    return found[0]


def require_printable(text: str) -> str:
    if not text.isprintable() or len(text) > MAX_TYPED:
        raise Invalid("This can't be looked for: it is too long, or holds characters that can't be seen.")
    return text


_PARSERS: Mapping[str, tuple[str, Callable[[int, str], Any]]] = {
    "agent": ("agent_id", Agent.find_id),
    "actor": ("who", _parse_actor),
    "action": ("action", _parse_action),
    "refinement": ("refinement_id", _parse_refinement),
    "from": ("since", lambda _, typed: parse_day(typed)),
    "to": ("until", lambda _, typed: parse_last_day(typed)),
}
"""By field: which filter it sets, and how it is read."""
