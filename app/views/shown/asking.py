"""The form by which a human asks an agent for an exception, given back as typed with what is wrong."""

from __future__ import annotations

from collections.abc import Mapping

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


class AskPage:
    """`errors` stand beside the fields, `refusal` above them; `open_url` is the exception that is in the way."""

    categories = tuple((category, term.words) for category, term in GRANT_CATEGORIES.items())
    most, fewest_minutes, most_minutes = MAX_PURPOSE, MIN_MINUTES, MAX_MINUTES

    def __init__(self, agent: Agent, typed: Mapping[str, str], error: WhetstoneError | None = None) -> None:
        self.agent, self.typed = agent, typed
        self.errors = _field_errors(typed) if error else {}
        asked = error.grant_id if isinstance(error, AlreadyAsked) else ""
        self.open_url = url_for("exceptions.show", exception_id=asked) if asked else ""
        self.refusal = error.sentence if error and not self.errors else ""
        self.scopes = _scope_choices(agent, typed["scope"])
        self.resting_until = resting_until(agent.id)


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
    offered = [("ledger", "The ledger: all active core memories")]
    for each in refinements:
        when = f"{each.requested_at:%Y-%m-%d %H:%M} UTC"
        offered.append((each.id, f"Refinement {each.id[:8]} of {when}: before and after, and its words"))
    return offered
