"""What a page listens to, who may, and how far the durable events have come."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, bindparam, func, select

from app.extensions import db, read_rows
from app.models import AccessGrant, Agent, Event, Refinement, Rollback, User, UserSession
from app.models.user import ROLES, VISITING_ROLES
from app.prepared import Prepared

NONE_SEEN = -1
_ID = re.compile(r"[0-9]{1,18}", re.ASCII)
_NUMBER = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)
_UUID = re.compile(r"[0-9a-f-]{36}", re.ASCII)


@dataclass(frozen=True)
class Viewer:
    """Who looks, as plain facts: what is rendered depends on these and on nothing else, so that it can be shared."""

    account_id: int
    roles: frozenset[str]

    def may(self, role: str) -> bool:
        return role in self.roles


@dataclass(frozen=True)
class StreamUser:
    """A signed-in user with an open stream. It is checked again while the stream lives: `==` to a fresh one."""

    user_id: int
    uniquifier: str
    session: str
    viewer: Viewer

    @classmethod
    def of(cls, user: Any, opened: UserSession | None = None) -> StreamUser | None:
        """The signed-in, active user, in this session or in the one that asks; None for a stranger.

        Inside another account they are an admin of that one, and nothing else.
        """
        if not isinstance(user, User) or not user.active:
            return None
        visit, key = (user.visit_in(opened), opened.key) if opened else (user.visit, user.session_key)
        home = Viewer(user.account_id, frozenset(role for role in ROLES if user.may(role)))
        viewer = Viewer(visit.account_id, VISITING_ROLES) if visit else home
        return cls(user.id, user.fs_uniquifier, key, viewer)

    @classmethod
    def still_so(cls, known: set[StreamUser]) -> set[StreamUser]:
        """Those of them who are so in the database now: in an open session, with the same rights."""
        ids = {each.user_id for each in known}
        found = db.session.scalars(select(User).where(User.id.in_(ids)).execution_options(populate_existing=True))
        users, opened = {user.id: user for user in found}, UserSession.open_by_key({each.session for each in known})
        return {
            each
            for each in known
            if each.session in opened and cls.of(users.get(each.user_id), opened[each.session]) == each
        }


@dataclass(frozen=True)
class EventSummary:
    """What a topic needs to know of an event."""

    id: int
    agent_id: int | None
    refinement_id: str | None
    kind: str = ""


LiveRow = Agent | Refinement | AccessGrant | Rollback


@dataclass(frozen=True, eq=False)
class TopicKind:
    """What one kind of live page listens to. `row` is what the id of a topic names; none where it is the account.

    `concerns` says of an event and that id whether the page is about it: the same rule for a note and for the table,
    so it joins conditions by `&` and `|`. Without one every event is.
    """

    name: str
    row: type[LiveRow] | None = None
    concerns: Callable[[Any, Any], Any] | None = None


_KINDS: dict[tuple[str, bool], TopicKind] = {}


def register_topic_kinds(kinds: Iterable[TopicKind]) -> None:
    """Let these be listened to. The pages are on a floor above, and name theirs."""
    _KINDS.update({(kind.name, kind.row is not None): kind for kind in kinds})


@dataclass(frozen=True)
class Topic:
    """`overview` and others of the account; `agent:7`, `refinement:UUID` and others of one row."""

    kind: TopicKind
    id: int | str | None = None

    @classmethod
    def parse(cls, text: str) -> Topic | None:
        """None for what is no topic."""
        name, colon, number = text.partition(":")
        kind = _KINDS.get((name, bool(colon)))
        if kind is None or kind.row is None:
            return cls(kind) if kind else None
        if kind.row is Agent:
            return cls(kind, int(number)) if _NUMBER.fullmatch(number) else None
        return cls(kind, number) if _UUID.fullmatch(number) else None

    @property
    def name(self) -> str:
        return self.kind.name if self.id is None else f"{self.kind.name}:{self.id}"

    def belongs_to(self, account_id: int) -> bool:
        """Whether the account may listen: what is another's and what does not exist are alike."""
        row = self.kind.row
        return row is None or db.session.scalar(select(row.account_id).where(row.id == self.id)) == account_id

    def concerns(self, note: EventSummary) -> bool:
        return self.kind.concerns is None or bool(self.kind.concerns(note, self.id))

    def newest(self, account_id: int, after: int = 0) -> int | None:
        """The id of the topic's newest event after another, if there is one."""
        mine = (Event.account_id == account_id, Event.id > after, *self.conditions())
        return db.session.scalar(select(func.max(Event.id)).where(*mine))

    def conditions(self) -> list[ColumnElement[bool]]:
        """The same rule, for a query of events."""
        return [self.kind.concerns(Event, self.id)] if self.kind.concerns else []


def newest_event(account_id: int) -> int:
    """The id of the account's newest event; 0 when there is none. Whatever is read after this call already shows it."""
    ((newest,),) = read_rows(_NEWEST_EVENT, {"account_id": account_id})
    return newest or 0


_NEWEST_EVENT = Prepared(select(func.max(Event.id)).where(Event.account_id == bindparam("account_id")))


def notes_after(account_id: int, event_id: int, *, limit: int = 5000) -> list[EventSummary]:
    """The account's events after one, in order."""
    query = select(Event.id, Event.agent_id, Event.refinement_id, Event.kind)
    rows = db.session.execute(
        query.where(Event.account_id == account_id, Event.id > event_id).order_by(Event.id).limit(limit)
    )
    return [EventSummary(*row) for row in rows.tuples()]


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
