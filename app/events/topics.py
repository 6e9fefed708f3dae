"""What a page listens to, who may, and how far the durable events have come."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select

from app.extensions import db
from app.models import AccessGrant, Agent, Event, Refinement, Rollback, User
from app.models.rollback import ROLLED_BACK
from app.models.user import ROLES

_TOPIC = re.compile(
    r"(overview|agents|audit|exceptions)|(?:agent|audit|exceptions|settings|tokens):([1-9][0-9]{0,17})|"
    r"refinement:([0-9a-f-]{36})|exception:([0-9a-f-]{36})|rollback:([0-9a-f-]{36})",
    re.ASCII,
)
NONE_SEEN = -1
_EXCEPTION = "exception."
_ID = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True)
class Viewer:
    """Who looks, as plain facts: what is rendered depends on these and on nothing else, so that it can be shared."""

    account_id: int
    roles: frozenset[str]

    def may(self, role: str) -> bool:
        return role in self.roles


@dataclass(frozen=True)
class Visitor:
    """A signed-in user with an open stream. It is checked again while the stream lives: `==` to a fresh one."""

    user_id: int
    uniquifier: str
    viewer: Viewer

    @classmethod
    def of(cls, user: Any) -> Visitor | None:
        """The signed-in, active user; None for a stranger."""
        if not isinstance(user, User) or not user.active:
            return None
        roles = frozenset(role for role in ROLES if user.may(role))
        return cls(user.id, user.fs_uniquifier, Viewer(user.account_id, roles))

    @classmethod
    def fresh(cls, user_ids: set[int]) -> dict[int, Visitor]:
        """The same users as the database knows them now."""
        users = db.session.scalars(select(User).where(User.id.in_(user_ids)).execution_options(populate_existing=True))
        found = (cls.of(user) for user in users)
        return {visitor.user_id: visitor for visitor in found if visitor is not None}


@dataclass(frozen=True)
class Note:
    """What a topic needs to know of an event."""

    id: int
    agent_id: int | None
    refinement_id: str | None
    kind: str = ""


@dataclass(frozen=True)
class Topic:
    """`overview`, `agents`, `audit` or `exceptions`; of an agent `agent:ID`, `audit:ID`, `exceptions:ID`,
    `settings:ID` or `tokens:ID`; `refinement:UUID`, `exception:UUID` or `rollback:UUID`."""

    name: str
    agent_id: int | None = None
    refinement_id: str | None = None
    exception_id: str | None = None
    rollback_id: str | None = None

    @classmethod
    def parse(cls, text: str) -> Topic | None:
        match = _TOPIC.fullmatch(text)
        if match is None:
            return None
        agent_id = int(match[2]) if match[2] else None
        return cls(text, agent_id, match[3], match[4], match[5])

    def belongs_to(self, account_id: int) -> bool:
        """Whether the account may listen: what is another's and what does not exist are alike."""
        if self.agent_id is not None:
            return db.session.scalar(select(Agent.account_id).where(Agent.id == self.agent_id)) == account_id
        if self.refinement_id is not None:
            owner = select(Refinement.account_id).where(Refinement.id == self.refinement_id)
            return db.session.scalar(owner) == account_id
        if self.exception_id is not None:
            owner = select(AccessGrant.account_id).where(AccessGrant.id == self.exception_id)
            return db.session.scalar(owner) == account_id
        if self.rollback_id is not None:
            return db.session.scalar(select(Rollback.account_id).where(Rollback.id == self.rollback_id)) == account_id
        return True

    @property
    def is_of_exceptions(self) -> bool:
        """One exception's page hears of them all: they are few, and each event of one says only that there is news."""
        return self.name.startswith("exception")

    def concerns(self, note: Note) -> bool:
        """Any rollback may say of a refinement, or of another rollback, whether it stands; and they are few."""
        if self.is_of_exceptions and not note.kind.startswith(_EXCEPTION):
            return False
        if self.agent_id is not None:
            return note.agent_id == self.agent_id
        if self.rollback_id is not None:
            return note.kind == ROLLED_BACK
        return self.refinement_id is None or self.refinement_id == note.refinement_id or note.kind == ROLLED_BACK

    def newest(self, account_id: int, after: int = 0) -> int | None:
        """The id of the topic's newest event after another, if there is one."""
        return db.session.scalar(
            select(func.max(Event.id)).where(Event.account_id == account_id, Event.id > after, *self._conditions())
        )

    def _conditions(self) -> list[ColumnElement[bool]]:
        found = [Event.kind.startswith(_EXCEPTION)] if self.is_of_exceptions else []
        if self.agent_id is not None:
            found.append(Event.agent_id == self.agent_id)
        if self.rollback_id is not None:
            found.append(Event.kind == ROLLED_BACK)
        if self.refinement_id is not None:
            found.append(or_(Event.refinement_id == self.refinement_id, Event.kind == ROLLED_BACK))
        return found


def newest_event(account_id: int) -> int:
    """The id of the account's newest event; 0 when there is none."""
    return db.session.scalar(select(func.max(Event.id)).where(Event.account_id == account_id)) or 0


def notes_after(account_id: int, event_id: int, *, limit: int = 5000) -> list[Note]:
    """The account's events after one, in order."""
    query = select(Event.id, Event.agent_id, Event.refinement_id, Event.kind)
    rows = db.session.execute(
        query.where(Event.account_id == account_id, Event.id > event_id).order_by(Event.id).limit(limit)
    )
    return [Note(*row) for row in rows.tuples()]


def last_seen(text: str | None, account_id: int) -> int:
    """The event that a page says it shows; NONE_SEEN where that tells nothing, so that the page is brought to now.

    It does not when there is no such event yet (a database was restored), and when it is older than all that are kept:
    what the page missed may be among those that were removed.
    """
    if not text or not _ID.fullmatch(text):
        return NONE_SEEN
    oldest = db.session.scalar(select(func.min(Event.id)).where(Event.account_id == account_id)) or 0
    return seen if oldest <= (seen := int(text)) <= newest_event(account_id) else NONE_SEEN


def catch_up(topic: Topic, account_id: int, seen: int) -> int | None:
    """The event that a page must be brought to, or None when it shows everything already."""
    newest = topic.newest(account_id, seen)
    return newest_event(account_id) if newest is None and seen == NONE_SEEN else newest
