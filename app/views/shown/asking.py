"""The form by which a human asks an agent for an exception, given back as typed with what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from flask import url_for
from sqlalchemy import select

from app.errors import Invalid, WhetstoneError
from app.extensions import db
from app.grants.request import MAX_MINUTES, MAX_PURPOSE, MIN_MINUTES, AlreadyAsked, WantedException, resting_until
from app.models import Agent, Refinement
from app.views.shown.agent import newest_refinements
from app.vocabulary import GRANT_CATEGORIES

FIELDS = ("category", "purpose", "scope", "minutes")
UNLESS_TYPED = {"category": "debugging", "purpose": "", "scope": "ledger", "minutes": "30"}

OFFERED = 20
"""Refinements whose history can be chosen; the page of each older one leads here with it."""

_SOUND = {"category": "other", "purpose": "any", "scope": "ledger", "minutes": str(MIN_MINUTES)}


@dataclass(frozen=True)
class AskPage:
    """`errors` stand beside the fields, `refusal` above them; `open_url` is the exception that is in the way."""

    agent: Agent
    typed: Mapping[str, str]
    scopes: Sequence[tuple[str, str]]
    resting_until: datetime | None
    errors: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""
    open_url: str = ""

    categories = tuple((category, term.words) for category, term in GRANT_CATEGORIES.items())
    most, fewest_minutes, most_minutes = MAX_PURPOSE, MIN_MINUTES, MAX_MINUTES

    @classmethod
    def load(cls, agent: Agent, typed: Mapping[str, str], error: WhetstoneError | None = None) -> AskPage:
        errors = _field_errors(typed) if error else {}
        open_url = ""
        if isinstance(error, AlreadyAsked):
            open_url = url_for("exceptions.show", exception_id=error.grant_id)
        refusal = error.sentence if error and not errors else ""
        scopes = _scope_choices(agent, typed["scope"])
        return cls(agent, typed, scopes, resting_until(agent.id), errors, refusal, open_url)

    @property
    def has_no_mind(self) -> bool:
        return str(self.agent.model_id) == "whetstone/offline"


def _field_errors(typed: Mapping[str, str]) -> dict[str, str]:
    """Of every field at once: each is read beside others that are sound."""
    errors: dict[str, str] = {}
    for name in FIELDS:
        try:
            WantedException.read(_SOUND | {name: typed[name]})
        except Invalid as error:
            errors[name] = error.sentence
    return errors


def _scope_choices(agent: Agent, chosen: str) -> list[tuple[str, str]]:
    refinements = newest_refinements(agent, OFFERED)
    if chosen not in ("ledger", *(refinement.id for refinement in refinements)):
        mine = (Refinement.agent_id == agent.id, Refinement.id == chosen)
        refinements += db.session.scalars(select(Refinement).where(*mine))
    return [
        ("ledger", "The ledger: all active core memories"),
        *((each.id, _refinement_words(each)) for each in refinements),
    ]


def _refinement_words(refinement: Refinement) -> str:
    when = f"{refinement.requested_at:%Y-%m-%d %H:%M} UTC"
    return f"Refinement {refinement.id[:8]} of {when}: before and after, and its words"
