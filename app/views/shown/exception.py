"""What the pages of mechanic's exceptions show: how they stand, why, and who looked at what; never content."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from flask import url_for
from sqlalchemy import ColumnElement, false, select

from app.asking.human_questions import current_rest
from app.errors import Invalid, WhetstoneError
from app.events.topics import newest_event
from app.extensions import db
from app.grants.endings import entries_about, why_it_ended
from app.grants.request import MAX_MINUTES, MAX_PURPOSE, MIN_MINUTES, AlreadyAsked, WantedException
from app.models import OPEN_GRANTS, WORKER, AccessGrant, Action, Agent, GrantStatus, Refinement, User
from app.models.base import database_now, iso
from app.models.grant import NEWEST_GRANTS, NO_LONGER_ADMIN
from app.models.keyset import cut_page
from app.shapes.exception import StandingException
from app.values.plural import count_times
from app.views.shown.agent import AgentState, newest_refinements
from app.views.shown.entry import actor_name, receipt_url
from app.vocabulary import GRANT_CATEGORIES, GRANT_STATUSES

ROWS = 20
OPEN_ROWS = 200
RECEIPTS = 50
"""The newest views that a page names; the audit log has them all."""

FIELDS = ("category", "purpose", "scope", "minutes")
UNLESS_TYPED = {"category": "debugging", "purpose": "", "scope": "ledger", "minutes": "30"}

OFFERED = 20
"""Refinements whose history can be chosen; the page of each older one leads here with it."""

_SOUND = {"category": "other", "purpose": "any", "scope": "ledger", "minutes": str(MIN_MINUTES)}


class ExceptionState:
    """An exception as it stands by the database's clock. It has time left only while it is live.

    `is_lost`: its human may not look any more, and a worker ends it within the minute.
    """

    def __init__(self, grant: AccessGrant, agent: Agent, email: str, moment: datetime, is_lost: bool) -> None:
        self.grant, self.agent, self.email, self.is_lost = grant, agent, email, bool(is_lost)
        is_granted = grant.status == GrantStatus.GRANTED and not is_lost
        left = max(grant.expires_at - moment, timedelta()) if is_granted and grant.expires_at else timedelta()
        self.milliseconds_left = left // timedelta(milliseconds=1)
        self.is_live = self.milliseconds_left > 0
        self.was_live = grant.expires_at is not None
        self.name = f"Exception {grant.id[:8]}"
        number = grant.refinement_id
        self.scope_words = "ledger" if number is None else f"history of refinement {number[:8]}"
        self.read_words = "Read memories" if number is None else "Read the history"
        self.category_words = GRANT_CATEGORIES[grant.category].words

    @classmethod
    def load(cls, grant: AccessGrant) -> ExceptionState:
        return _load_states(AccessGrant.id == grant.id)[0]

    @property
    def status(self) -> GrantStatus:
        """What holds now: one that has run out or is lost has ended, even before the sweeper has written it down."""
        if self.is_lost:
            return GrantStatus.REVOKED
        if self.grant.status == GrantStatus.GRANTED and not self.is_live:
            return GrantStatus.EXPIRED
        return GrantStatus(self.grant.status)

    @property
    def seconds_left(self) -> int:
        """A second that has begun counts whole."""
        return -(-self.milliseconds_left // 1000)

    @property
    def is_open(self) -> bool:
        return self.is_live or self.status == GrantStatus.PENDING

    @property
    def url(self) -> str:
        return url_for("exceptions.show", exception_id=self.grant.id)

    @property
    def receipt_url(self) -> str:
        """Of the agent's answer; empty while there is none."""
        is_answered = self.was_live or self.grant.status == GrantStatus.DENIED
        return receipt_url(self.grant.id) if self.grant.decided_at and is_answered else ""

    @property
    def content_url(self) -> str:
        """Where its own user reads what it covers."""
        part = "ledger" if self.grant.refinement_id is None else "history"
        return url_for(f"exceptions.{part}", exception_id=self.grant.id)

    @property
    def ended_by(self) -> str:
        return actor_name(self.grant.ended_by or str(WORKER))

    @property
    def revoke_words(self) -> str:
        return "Revoke" if self.is_live else "Take the question back"

    def as_json(self) -> dict[str, Any]:
        names = {"agent": self.agent.name, "user": self.email}
        told = StandingException.of(self.grant, status=self.status, seconds_left=self.seconds_left, **names)
        return told.as_json() | {"receipt": self.receipt_url or None}


def live_of(user_id: int) -> list[ExceptionState]:
    """The live exceptions of one admin: the next to end comes first."""
    mine = (AccessGrant.user_id == user_id, AccessGrant.is_live())
    return _load_states(*mine, is_lost=false(), order=(AccessGrant.expires_at,))


def milliseconds_left(grant_id: str, user_id: int) -> int:
    """How long this user may still see what it covers; 0 for anybody else."""
    found = _load_states(AccessGrant.id == grant_id, AccessGrant.user_id == user_id, AccessGrant.is_live())
    return found[0].milliseconds_left if found else 0


class ExceptionList:
    """Of an account, or of one agent. `next_before` is the id to go on from among those that have ended."""

    def __init__(self, account_id: int, agent: Agent | None = None, *, before: str = "") -> None:
        self.agent = agent
        mine = [AccessGrant.account_id == account_id, *([AccessGrant.agent_id == agent.id] if agent else [])]
        is_open = AccessGrant.status.in_(OPEN_GRANTS)
        found = _load_states(*mine, is_open, limit=OPEN_ROWS)
        position = NEWEST_GRANTS.find(before, *mine)
        behind = [NEWEST_GRANTS.behind(position)] if position else []
        ended, last = cut_page(_load_states(*mine, ~is_open, *behind, limit=ROWS + 1), ROWS)
        over = [] if position else [each for each in found if not each.is_open]
        self.waiting = [each for each in found if each.status == GrantStatus.PENDING]
        self.live, self.ended = [each for each in found if each.is_live], [*over, *ended]
        self.before, self.next_before = before if position else "", last.grant.id if last else ""
        self.is_empty = not (self.waiting or self.live or self.ended or self.before)

    def url(self, before: str | None = None) -> str:
        """This list's own address, or that of its older ones."""
        if self.agent is not None:
            return url_for("exceptions.agent", agent_id=self.agent.id, before=before)
        return url_for("exceptions.index", before=before)

    def as_json(self) -> dict[str, Any]:
        lists = {"waiting": self.waiting, "live": self.live, "ended": self.ended}
        said = {name: [each.as_json() for each in standings] for name, standings in lists.items()}
        return said | {"next_before": self.next_before or None}


class ExceptionsPage:
    """All of the account, or those of one agent, whose `state` it then shows.

    `rest`: until it ends the agent is not asked again.
    """

    def __init__(self, account_id: int, agent: Agent | None = None, *, before: str = "") -> None:
        self.state = AgentState.load(agent) if agent else None
        self.last_event = self.state.last_event if self.state else newest_event(account_id)
        self.list = ExceptionList(account_id, agent, before=before)
        self.rest = current_rest(agent.id) if agent else None

    def as_json(self) -> dict[str, Any]:
        whose = (
            {"agent": self.state.agent.name, "resting_until": iso(self.rest.until) if self.rest else None}
            if self.state
            else {}
        )
        return whose | self.list.as_json()


class ExceptionPage:
    """`why` says how it came to its end, where the end alone does not; `receipts` are the entries of its views."""

    def __init__(self, grant: AccessGrant) -> None:
        self.last_event = newest_event(grant.account_id)
        self.standing = ExceptionState.load(grant)
        was_live = self.standing.was_live
        self.receipts = entries_about(self.standing.grant, Action.ACCESS_VIEWED, limit=RECEIPTS) if was_live else []
        self.why = _end_reason(self.standing)
        self.rest = current_rest(grant.agent_id)

    @property
    def line(self) -> str:
        """How it stands, in a sentence or two."""
        standing, views = self.standing, self.standing.grant.views
        term = GRANT_STATUSES[standing.status]
        line = term.line if standing.was_live else term.unopened or term.line
        looks = f"{standing.email} looked {count_times(views)}." if views else "Nobody looked."
        rest = self.rest.sentence if self.rest else "It may be asked again."
        who = {"agent": standing.agent.name, "email": standing.email, "ended_by": standing.ended_by}
        return line.format(**who, looks=looks, rest=rest)

    def as_json(self) -> dict[str, Any]:
        receipts = [
            {"entry": each.id, "at": iso(each.at), "part": each.data["part"], "ids": each.data["ids"]}
            for each in self.receipts
        ]
        return self.standing.as_json() | {"line": self.line, "why": self.why or None, "receipts": receipts}


class AskPage:
    """The form by which a human asks an agent, given back as typed.

    `errors` stand beside the fields, `refusal` above them; `open_url` is the exception that is in the way.
    """

    categories = tuple((category, term.words) for category, term in GRANT_CATEGORIES.items())
    most, fewest_minutes, most_minutes = MAX_PURPOSE, MIN_MINUTES, MAX_MINUTES

    def __init__(self, agent: Agent, typed: Mapping[str, str], error: WhetstoneError | None = None) -> None:
        self.agent, self.typed = agent, typed
        self.errors = _field_errors(typed) if error else {}
        asked = error.grant_id if isinstance(error, AlreadyAsked) else ""
        self.open_url = url_for("exceptions.show", exception_id=asked) if asked else ""
        self.refusal = error.sentence if error and not self.errors else ""
        self.scopes = _scope_choices(agent, typed["scope"])
        self.rest = current_rest(agent.id)


def _load_states(
    *conditions: ColumnElement[bool],
    is_lost: ColumnElement[bool] | None = None,
    order: Any = None,
    limit: int | None = None,
) -> list[ExceptionState]:
    """The newest first, unless `order` says otherwise. `is_lost` is given where the conditions decide it."""
    lost = AccessGrant.is_lost() if is_lost is None else is_lost
    query = (
        select(AccessGrant, Agent, User.email, database_now(), lost)
        .join(Agent, Agent.id == AccessGrant.agent_id)
        .join(User, User.id == AccessGrant.user_id)
        .where(*conditions)
        .order_by(*(order or NEWEST_GRANTS.order))
        .limit(limit)
        .execution_options(populate_existing=True)
    )
    return [ExceptionState(*columns) for columns in db.session.execute(query).tuples()]


def _end_reason(standing: ExceptionState) -> str:
    """The reason that stands in the entry of its end, as a sentence: of a failure, or of a revocation by the system."""
    if standing.status not in (GrantStatus.FAILED, GrantStatus.REVOKED):
        return ""
    said = NO_LONGER_ADMIN if standing.is_lost else why_it_ended(standing.grant)
    return f"{said[0].upper()}{said[1:].rstrip('.')}." if said else ""


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
        offered.append((each.id, f"Refinement {each.id[:8]} of {when}: before and after, words and recall probes"))
    return offered
