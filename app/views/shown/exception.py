"""What the pages of mechanic's exceptions show: how they stand, why, and who looked at what; never content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from flask import url_for
from sqlalchemy import ColumnElement, select

from app.extensions import db
from app.grants.endings import entries_about, why_it_ended
from app.grants.request import resting_until
from app.models import OPEN_GRANTS, WORKER, AccessGrant, Action, Agent, GrantStatus, User
from app.models.base import database_now, iso
from app.models.grant import NEWEST_GRANTS, NO_LONGER_ADMIN
from app.models.keyset import cut_page
from app.shapes.exception import StandingException
from app.values.plural import count_times
from app.views.shown.agent import AgentState
from app.views.shown.agents import last_event
from app.views.shown.entry import actor_name
from app.vocabulary import GRANT_CATEGORIES, GRANT_STATUSES

ROWS = 20
OPEN_ROWS = 200
RECEIPTS = 50
"""The newest views that a page names; the audit log has them all."""


@dataclass(frozen=True)
class ExceptionState:
    """An exception as it stands by the database's clock. `left` is more than nothing only of a live one.

    `is_lost`: its human may not look any more, and a worker ends it within the minute.
    """

    grant: AccessGrant
    agent: Agent
    email: str
    left: timedelta
    is_lost: bool

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
    def is_live(self) -> bool:
        return self.milliseconds_left > 0

    @property
    def milliseconds_left(self) -> int:
        return self.left // timedelta(milliseconds=1)

    @property
    def seconds_left(self) -> int:
        """A second that has begun counts whole."""
        return -(-self.milliseconds_left // 1000)

    @property
    def is_open(self) -> bool:
        return self.is_live or self.status == GrantStatus.PENDING

    @property
    def name(self) -> str:
        return f"Exception {self.grant.id[:8]}"

    @property
    def url(self) -> str:
        return url_for("exceptions.show", exception_id=self.grant.id)

    @property
    def content_url(self) -> str:
        """Where its own user reads what it covers."""
        part = "ledger" if self.grant.refinement_id is None else "history"
        return url_for(f"exceptions.{part}", exception_id=self.grant.id)

    @property
    def scope_words(self) -> str:
        if self.grant.refinement_id is None:
            return "ledger"
        return f"history of refinement {self.grant.refinement_id[:8]}"

    @property
    def read_words(self) -> str:
        return "Read memories" if self.grant.refinement_id is None else "Read the history"

    @property
    def category_words(self) -> str:
        return GRANT_CATEGORIES[self.grant.category].words

    @property
    def asked_by(self) -> str:
        return actor_name(self.grant.requested_by)

    @property
    def ended_by(self) -> str:
        return actor_name(self.grant.ended_by or str(WORKER))

    @property
    def was_live(self) -> bool:
        return self.grant.expires_at is not None

    @property
    def revoke_words(self) -> str:
        return "Revoke" if self.is_live else "Take the question back"

    def as_json(self) -> dict[str, Any]:
        names = {"agent": self.agent.name, "user": self.email}
        told = StandingException.of(self.grant, status=self.status, seconds_left=self.seconds_left, **names)
        return told.as_json()


def live_of(user_id: int) -> list[ExceptionState]:
    """The live exceptions of one admin: the next to end comes first."""
    return _load_states(AccessGrant.user_id == user_id, AccessGrant.is_live(), order=(AccessGrant.expires_at,))


def milliseconds_left(grant_id: str, user_id: int) -> int:
    """How long this user may still see what it covers; 0 for anybody else."""
    found = _load_states(AccessGrant.id == grant_id, AccessGrant.user_id == user_id, AccessGrant.is_live())
    return found[0].milliseconds_left if found else 0


@dataclass(frozen=True)
class ExceptionList:
    """Of an account, or of one agent. `next_before` is the id to go on from among those that have ended."""

    agent: Agent | None
    waiting: Sequence[ExceptionState]
    live: Sequence[ExceptionState]
    ended: Sequence[ExceptionState]
    before: str
    next_before: str

    @classmethod
    def load(cls, account_id: int, agent: Agent | None = None, *, before: str = "") -> ExceptionList:
        mine = [AccessGrant.account_id == account_id]
        if agent is not None:
            mine.append(AccessGrant.agent_id == agent.id)
        is_open = AccessGrant.status.in_(OPEN_GRANTS)
        found = _load_states(*mine, is_open, limit=OPEN_ROWS)
        position = NEWEST_GRANTS.find(before, *mine)
        behind = [NEWEST_GRANTS.behind(position)] if position else []
        ended, last = cut_page(_load_states(*mine, ~is_open, *behind, limit=ROWS + 1), ROWS)
        over = [] if position else [each for each in found if not each.is_open]
        return cls(
            agent,
            [each for each in found if each.status == GrantStatus.PENDING],
            [each for each in found if each.is_live],
            [*over, *ended],
            before if position else "",
            last.grant.id if last else "",
        )

    @property
    def is_empty(self) -> bool:
        return not (self.waiting or self.live or self.ended or self.before)

    def url(self, before: str | None = None) -> str:
        """This list's own address, or that of its older ones."""
        if self.agent is not None:
            return url_for("exceptions.agent", agent_id=self.agent.id, before=before)
        return url_for("exceptions.index", before=before)

    def as_json(self) -> dict[str, Any]:
        lists = {"waiting": self.waiting, "live": self.live, "ended": self.ended}
        said = {name: [each.as_json() for each in standings] for name, standings in lists.items()}
        return said | {"next_before": self.next_before or None}


@dataclass(frozen=True)
class ExceptionsPage:
    list: ExceptionList
    last_event: int

    @classmethod
    def load(cls, account_id: int, *, before: str = "") -> ExceptionsPage:
        seen = last_event(account_id)
        return cls(ExceptionList.load(account_id, before=before), seen)

    def as_json(self) -> dict[str, Any]:
        return self.list.as_json()


@dataclass(frozen=True)
class AgentExceptionsPage:
    """`resting_until`: until then the agent is not asked again."""

    state: AgentState
    list: ExceptionList
    resting_until: datetime | None

    @classmethod
    def load(cls, agent: Agent, *, before: str = "") -> AgentExceptionsPage:
        state = AgentState.load(agent)
        return cls(state, ExceptionList.load(agent.account_id, agent, before=before), resting_until(agent.id))

    def as_json(self) -> dict[str, Any]:
        said = {"agent": self.state.agent.name, "resting_until": iso(self.resting_until)}
        return said | self.list.as_json()


@dataclass(frozen=True)
class Receipt:
    """One view, from the audit log: which part, and the ids of the memories that it showed."""

    entry_id: int
    at: datetime
    part: str
    ids: Sequence[int]

    def as_json(self) -> dict[str, Any]:
        return {"entry": self.entry_id, "at": iso(self.at), "part": self.part, "ids": list(self.ids)}


@dataclass(frozen=True)
class ExceptionPage:
    """`why` says how it came to its end, where the end alone does not."""

    standing: ExceptionState
    receipts: Sequence[Receipt]
    why: str
    resting_until: datetime | None
    last_event: int

    @classmethod
    def load(cls, grant: AccessGrant) -> ExceptionPage:
        seen = last_event(grant.account_id)
        standing = ExceptionState.load(grant)
        receipts = _load_receipts(standing) if standing.was_live else []
        return cls(standing, receipts, _end_reason(standing), resting_until(grant.agent_id), seen)

    @property
    def line(self) -> str:
        """How it stands, in a sentence or two."""
        standing = self.standing
        term = GRANT_STATUSES[standing.status]
        line = term.line if standing.was_live else term.unopened or term.line
        who = {"agent": standing.agent.name, "email": standing.email, "ended_by": standing.ended_by}
        return line.format(**who, looks=self._looks, rest=self._rest)

    @property
    def _looks(self) -> str:
        count = self.standing.grant.views
        if not count:
            return "Nobody looked."
        return f"{self.standing.email} looked {count_times(count)}."

    @property
    def _rest(self) -> str:
        until = self.resting_until
        return f"It is not asked again before {until:%A %H:%M} UTC." if until else "It may be asked again."

    def as_json(self) -> dict[str, Any]:
        receipts = [receipt.as_json() for receipt in self.receipts]
        return self.standing.as_json() | {"line": self.line, "why": self.why or None, "receipts": receipts}


def _load_states(*conditions: ColumnElement[bool], order: Any = None, limit: int | None = None) -> list[ExceptionState]:
    """The newest first, unless `order` says otherwise."""
    query = (
        select(AccessGrant, Agent, User.email, database_now(), AccessGrant.is_lost())
        .join(Agent, Agent.id == AccessGrant.agent_id)
        .join(User, User.id == AccessGrant.user_id)
        .where(*conditions)
        .order_by(*(order or NEWEST_GRANTS.order))
        .limit(limit)
        .execution_options(populate_existing=True)
    )
    rows = db.session.execute(query).tuples()
    return [
        ExceptionState(grant, agent, email, _time_left(grant, moment, is_lost), bool(is_lost))
        for grant, agent, email, moment, is_lost in rows
    ]


def _time_left(grant: AccessGrant, moment: datetime, is_lost: bool) -> timedelta:
    if is_lost or grant.status != GrantStatus.GRANTED or grant.expires_at is None:
        return timedelta()
    return max(grant.expires_at - moment, timedelta())


def _load_receipts(standing: ExceptionState) -> list[Receipt]:
    entries = entries_about(standing.grant, Action.ACCESS_VIEWED, limit=RECEIPTS)
    return [Receipt(entry.id, entry.at, str(entry.data["part"]), tuple(entry.data["ids"])) for entry in entries]


def _end_reason(standing: ExceptionState) -> str:
    """The reason that stands in the entry of its end, as a sentence: of a failure, or of a revocation by the system."""
    if standing.status not in (GrantStatus.FAILED, GrantStatus.REVOKED):
        return ""
    said = NO_LONGER_ADMIN if standing.is_lost else why_it_ended(standing.grant)
    return f"{said[0].upper()}{said[1:].rstrip('.')}." if said else ""
