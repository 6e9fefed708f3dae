"""Notices: where people are told of what happened (NoticeChannel), what they are told (Notice), and how that went.

Messages are grouped: what happens within moments, and again within an hour, becomes one message. They hold numbers,
names and reasons as the pages show them, never content.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar

from sqlalchemy import ColumnElement, ForeignKey, Index, LargeBinary, Select, String, func, or_, select, update
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Invalid, Refused
from app.extensions import db, now
from app.models.audit import Action, record
from app.models.base import Identity, Lockable, Model, Moment, claim_row, drop_old_rows, partial_index
from app.models.event import Event, announce
from app.models.keyset import Keyset
from app.models.logged import Logged
from app.models.master_key import master_key
from app.models.user import Account
from app.silo import MasterPublicKey, open_target, seal_target
from app.values.actor import Actor
from app.values.text import clean_name

MAX_CHANNELS = 20
"""Of one account, those that are paused included."""

COLLECTED = timedelta(seconds=40)
"""How long after its first event a message waits for others like it."""

FOLDED = timedelta(minutes=60)
"""How long after one message the next of its kind waits, with all that happened meanwhile."""

KEPT = timedelta(days=90)
"""How long messages and the log of their delivery are kept."""

HELD = timedelta(minutes=2)
"""Longer than any delivery takes: whoever claimed one and did not say how it went by then is dead."""

PAUSES = tuple(timedelta(minutes=each) for each in (0.5, 2, 10, 30, 60, 120, 240, 480, 480))
"""Before each further attempt: about 24 hours in all."""

MAX_TESTS = 5
"""An account's messages by "Send a test" in `TESTS_WITHIN`."""

TESTS_WITHIN = timedelta(minutes=10)

MAX_REASONS = 20
MAX_AGENTS = 3


class ChannelType(StrEnum):
    EMAIL = "email"
    WEBHOOK = "webhook"
    SLACK = "slack"
    DISCORD = "discord"


class NoticeKind(StrEnum):
    FAILED = "failed"
    ROLLED_BACK = "rolled_back"
    LATCH = "latch"
    DECLINED = "declined"
    REQUEST = "request"
    VERIFY = "verify"
    STATEMENT = "statement"
    AWAY = "away"
    OVER_BUDGET = "over_budget"
    DIGEST = "digest"
    TEST = "test"
    """What a button asks for; no channel chooses it."""


CHOICES = tuple(kind for kind in NoticeKind if kind is not NoticeKind.TEST)


class NoticeStatus(StrEnum):
    """`waiting` is in the outbox; the others are ends."""

    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given_up"
    DROPPED = "dropped"
    """The channel was paused or removed meanwhile."""


class NoticeChannel(Logged, Lockable, Model):
    """Where to: `shown` is an e-mail address, or a webhook's host alone. A webhook's whole address and its secret are
    sealed, to the master key (`reader` is its fingerprint) and to the web processes' key.

    `seen_event_id` is how far its account's events were looked at, `digest_at` when the last digest was written.
    """

    __tablename__ = "notice_channels"
    NOUN = "notice-channel"
    OWNER = ("account", "account_id")
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {
        "seen_event_id": "how far a worker has looked; a message too many or too few decides nothing",
        "digest_at": "when a worker wrote the last digest",
    }
    __table_args__ = (Index("ix_notice_channels_account", "account_id", "created_at"),)

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    type: Mapped[ChannelType] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(80))
    shown: Mapped[str] = mapped_column(String(254))
    kinds: Mapped[list[str]]
    sealed: Mapped[bytes | None] = mapped_column(LargeBinary)
    sealed_for_web: Mapped[bytes | None] = mapped_column(LargeBinary)
    reader: Mapped[str | None] = mapped_column(String(16))
    created_at: Mapped[Moment]
    paused_at: Mapped[Moment | None]
    removed_at: Mapped[Moment | None]
    seen_event_id: Mapped[int] = mapped_column(Identity)
    digest_at: Mapped[Moment]

    @classmethod
    def create(
        cls, account: Account, type: ChannelType, *, name: str, shown: str, kinds: Sequence[str], by: Actor
    ) -> NoticeChannel:
        """One more way to tell the account's people; what it is sealed with, the caller adds and then records.

        The caller holds the account's lock. Raises Invalid, or Refused where there are too many.
        """
        mine = select(func.count()).where(cls.account_id == account.id, cls.removed_at.is_(None))
        if (db.session.scalar(mine) or 0) >= MAX_CHANNELS:
            raise Refused(f"An account has at most {MAX_CHANNELS} channels. Remove one first.")
        channel = cls(
            id=str(uuid.uuid4()),
            account_id=account.id,
            type=type,
            name=clean_name(name),
            shown=shown,
            kinds=clean_kinds(kinds),
            created_at=now(),
            seen_event_id=_newest_event(account.id),
            digest_at=now(),
        )
        db.session.add(channel)
        return channel

    @classmethod
    def of_account(cls, account_id: int) -> list[NoticeChannel]:
        """The oldest first, without those that were removed."""
        mine = select(cls).where(cls.account_id == account_id, cls.removed_at.is_(None))
        found = db.session.scalars(mine.order_by(cls.created_at, cls.id).execution_options(populate_existing=True))
        return list(found)

    @classmethod
    def is_live(cls) -> ColumnElement[bool]:
        return cls.paused_at.is_(None) & cls.removed_at.is_(None)

    @property
    def is_active(self) -> bool:
        return self.paused_at is None and self.removed_at is None

    def said_of(self) -> dict[str, Any]:
        """What entries tell of it: no address of a webhook, no secret."""
        return {"name": self.name, "type": str(self.type), "to": self.shown, "kinds": list(self.kinds)}

    def choose(self, account: Account, kinds: Sequence[str], *, by: Actor) -> bool:
        """Tell of these from now on; returns whether that is any different. Raises Invalid.

        The account is locked.
        """
        wanted = clean_kinds(kinds)
        if wanted == self.kinds:
            return False
        before, self.kinds = self.kinds, wanted
        self._record(Action.NOTICE_CHANNEL_UPDATE, account, by, {"before": before, "after": wanted})
        return True

    def pause(self, account: Account, *, by: Actor) -> bool:
        """Send nothing until resumed, and nothing of what happened meanwhile; returns whether that is any different."""
        if not self.is_active:
            return False
        self.paused_at = now()
        self._end(Action.NOTICE_CHANNEL_PAUSE, account, by)
        return True

    def resume(self, account: Account, *, by: Actor) -> bool:
        if self.paused_at is None or self.removed_at is not None:
            return False
        self.paused_at, self.seen_event_id = None, _newest_event(account.id)
        self._record(Action.NOTICE_CHANNEL_RESUME, account, by)
        return True

    def remove(self, account: Account, *, by: Actor) -> bool:
        """Take it off the list; `restore` brings it back as it was, with the same secret."""
        if self.removed_at is not None:
            return False
        self.removed_at = now()
        self._end(Action.NOTICE_CHANNEL_REMOVE, account, by)
        return True

    def restore(self, account: Account, *, by: Actor) -> bool:
        if self.removed_at is None:
            return False
        self.removed_at, self.seen_event_id = None, _newest_event(account.id)
        self._record(Action.NOTICE_CHANNEL_RESTORE, account, by)
        return True

    def reseal(self, master: MasterPublicKey) -> None:
        """Seal its target to another master key; the caller records it. Raises SealBroken or KeyFileError."""
        opened = open_target(self.sealed or b"", channel_id=self.id, key=master_key(self.reader))
        self.sealed, self.reader = seal_target(opened, channel_id=self.id, reader=master), master.fingerprint

    def _end(self, action: Action, account: Account, by: Actor) -> None:
        waiting = update(Notice).where(Notice.channel_id == self.id, Notice.status == NoticeStatus.WAITING)
        dropped = waiting.values(status=NoticeStatus.DROPPED, settled_at=now())
        db.session.execute(dropped.execution_options(synchronize_session=False))
        self._record(action, account, by)

    def _record(self, action: Action, account: Account, by: Actor, data: Mapping[str, Any] | None = None) -> None:
        record(action, actor=by, of=account, subject=self.subject, data={**self.said_of(), **(data or {})})
        announce("account.notices", account.id)

    def record_creation(self, account: Account, *, by: Actor) -> None:
        """Once it is whole."""
        db.session.flush()
        self._record(Action.NOTICE_CHANNEL_CREATE, account, by)


@dataclass
class Sighting:
    """What happened of one kind: how often, when first, how often for which reason, and some of the agents."""

    first_at: datetime
    count: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    agents: list[str] = field(default_factory=list)

    def add(self, reason: str = "", agent: str = "", count: int = 1) -> None:
        self.count += count
        if reason and (reason in self.reasons or len(self.reasons) < MAX_REASONS):
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        if agent and agent not in self.agents and len(self.agents) < MAX_AGENTS:
            self.agents.append(agent)

    def merge(self, later: Sighting) -> None:
        """What happened since, too."""
        counted = sum(later.reasons.values())
        for reason, count in later.reasons.items():
            self.add(reason, count=count)
        self.count += later.count - counted
        for agent in later.agents:
            self.add(agent=agent, count=0)

    def as_data(self) -> dict[str, Any]:
        return {"reasons": self.reasons, "agents": self.agents}


class Notice(Model):
    """One message in the outbox of a channel. `uuid` is its id for receivers, the same in each attempt.

    `data` is what a Sighting says, or a digest's numbers. `claimed_at` is since when a process sends it.
    """

    __tablename__ = "notices"
    __table_args__ = (
        partial_index("ix_notices_waiting", "due_at", where="status = 'waiting'"),
        Index("ix_notices_channel", "channel_id", "kind", "id"),
        Index("ix_notices_account", "account_id", "id"),
    )

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    uuid: Mapped[str] = mapped_column(String(36), unique=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    channel_id: Mapped[str] = mapped_column(ForeignKey("notice_channels.id"))
    kind: Mapped[NoticeKind] = mapped_column(String(16))
    count: Mapped[int]
    data: Mapped[dict[str, Any]]
    status: Mapped[NoticeStatus] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(default=0)
    first_at: Mapped[Moment]
    created_at: Mapped[Moment]
    due_at: Mapped[Moment]
    claimed_at: Mapped[Moment | None]
    settled_at: Mapped[Moment | None]

    @classmethod
    def collect(cls, channel: NoticeChannel, kind: NoticeKind, seen: Sighting) -> None:
        """Put it into the message that waits, or begin one: soon, or an hour after the last of its kind.

        In the transaction that moves the channel's `seen_event_id` on.
        """
        newest = select(cls).where(cls.channel_id == channel.id, cls.kind == kind).order_by(cls.id.desc()).limit(1)
        last = db.session.scalar(newest.execution_options(populate_existing=True))
        if last is not None and last._fold(seen):
            return
        due_at = max(now(), seen.first_at + COLLECTED)
        if last is not None:
            due_at = max(due_at, last.created_at + FOLDED)
        cls.put(channel, kind, seen, due_at=due_at)

    @classmethod
    def put(cls, channel: NoticeChannel, kind: NoticeKind, seen: Sighting, *, due_at: datetime, **more: Any) -> Notice:
        """Into the outbox, in the open transaction."""
        notice = cls(
            uuid=str(uuid.uuid4()),
            account_id=channel.account_id,
            channel_id=channel.id,
            kind=kind,
            count=seen.count,
            data=seen.as_data() | more,
            status=NoticeStatus.WAITING,
            first_at=seen.first_at,
            created_at=now(),
            due_at=due_at,
        )
        db.session.add(notice)
        return notice

    @classmethod
    def put_test(cls, channel: NoticeChannel) -> Notice:
        """Raises Refused where the channel sends nothing, or too many were asked for. The account is locked."""
        if not channel.is_active:
            raise Refused(f"{channel.name} is paused or removed: it sends nothing.")
        lately = (cls.account_id == channel.account_id, cls.created_at > now() - TESTS_WITHIN)
        tests = select(func.count()).where(*lately, cls.kind == NoticeKind.TEST)
        if (db.session.scalar(tests) or 0) >= MAX_TESTS:
            raise Refused(f"At most {MAX_TESTS} tests in {TESTS_WITHIN.seconds // 60} minutes. Try again later.")
        return cls.put(channel, NoticeKind.TEST, Sighting(now(), 1), due_at=now())

    def _fold(self, seen: Sighting) -> bool:
        """Whether nobody has begun to send it, so that more can go into it."""
        both = self.sighting
        both.merge(seen)
        still = (Notice.id == self.id, Notice.status == NoticeStatus.WAITING, Notice.attempts == 0)
        return claim_row(Notice, *still, count=both.count, data=both.as_data()) is not None

    @property
    def sighting(self) -> Sighting:
        reasons, agents = dict(self.data.get("reasons", {})), list(self.data.get("agents", ()))
        return Sighting(self.first_at, self.count, reasons, agents)

    @classmethod
    def find_due(cls, *kinds: ColumnElement[bool], limit: int = 100) -> list[int]:
        """Ids of those that wait for being sent now, the oldest first."""
        waits = (cls.status == NoticeStatus.WAITING, cls.due_at <= now(), cls._is_free())
        return list(db.session.scalars(select(cls.id).where(*waits, *kinds).order_by(cls.due_at).limit(limit)))

    @classmethod
    def count_waiting(cls, account_id: int) -> dict[str, int]:
        """How many messages of each of its channels are in the outbox, where there are any."""
        waits = (cls.account_id == account_id, cls.status == NoticeStatus.WAITING)
        counted = select(cls.channel_id, func.count()).where(*waits).group_by(cls.channel_id)
        return dict(db.session.execute(counted).tuples().all())

    @classmethod
    def claim(cls, notice_id: int) -> Notice | None:
        """For exactly one process, until it says how it went, or `HELD` is over."""
        waits = (cls.status == NoticeStatus.WAITING, cls.due_at <= now(), cls._is_free())
        return claim_row(cls, cls.id == notice_id, *waits, claimed_at=now(), attempts=cls.attempts + 1)

    @classmethod
    def _is_free(cls) -> ColumnElement[bool]:
        return or_(cls.claimed_at.is_(None), cls.claimed_at < now() - HELD)

    def settle(self, number: int, *, ok: bool, status: int | None, words: str, seconds: float) -> None:
        """Write down how the attempt of that number went, and when the next one is, if any; it changes nothing where
        another process has it by now. In the open transaction.
        """
        attempt = NoticeAttempt(notice_id=self.id, account_id=self.account_id, at=now(), ok=ok)
        attempt.number, attempt.status, attempt.words = number, status, words[:120]
        attempt.milliseconds = round(seconds * 1000)
        db.session.add(attempt)
        values: dict[str, Any] = {"claimed_at": None, "settled_at": now(), "status": NoticeStatus.SENT}
        if not ok and number <= len(PAUSES):
            values = {"claimed_at": None, "due_at": now() + PAUSES[number - 1]}
        elif not ok:
            values["status"] = NoticeStatus.GIVEN_UP
        still = (Notice.id == self.id, Notice.status == NoticeStatus.WAITING, Notice.attempts == number)
        claim_row(Notice, *still, **values)
        announce("account.notices", self.account_id)


class NoticeAttempt(Model):
    """One attempt to deliver a message: what the other side answered, as a number, never its words."""

    __tablename__ = "notice_attempts"
    __table_args__ = (Index("ix_notice_attempts_account", "account_id", "at", "id"),)

    id: Mapped[int] = mapped_column(Identity, primary_key=True)
    notice_id: Mapped[int] = mapped_column(ForeignKey("notices.id"), index=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    number: Mapped[int]
    at: Mapped[Moment]
    ok: Mapped[bool]
    status: Mapped[int | None]
    words: Mapped[str] = mapped_column(String(120))
    milliseconds: Mapped[int]

    @classmethod
    def newest(cls, account_id: int) -> Select[tuple[NoticeAttempt, Notice, str]]:
        """Of an account, each with its message and the name of its channel, the newest first."""
        query = select(cls, Notice, NoticeChannel.name).join(Notice, Notice.id == cls.notice_id)
        query = query.join(NoticeChannel, NoticeChannel.id == Notice.channel_id)
        return query.where(cls.account_id == account_id).order_by(*NEWEST_ATTEMPTS.order)


NEWEST_ATTEMPTS = Keyset((NoticeAttempt.at, NoticeAttempt.id), newest_first=True)


def clean_kinds(kinds: Sequence[str]) -> list[str]:
    """In one order, each once. Raises Invalid for none and for what is no kind."""
    wrong = [kind for kind in kinds if kind not in CHOICES]
    if wrong or not kinds:
        raise Invalid("Choose at least one thing to be told of." if not wrong else "There is no such kind of notice.")
    return [str(kind) for kind in CHOICES if kind in kinds]


def drop_old_notices() -> int:
    """Remove messages and attempts from more than `KEPT` ago; returns how many. One that waits is never so old."""
    attempts = drop_old_rows(NoticeAttempt.id, NoticeAttempt.at, now() - KEPT)
    unmentioned = ~select(NoticeAttempt.id).where(NoticeAttempt.notice_id == Notice.id).exists()
    ended = Notice.status != NoticeStatus.WAITING
    return attempts + drop_old_rows(Notice.id, Notice.created_at, now() - KEPT, ended, unmentioned)


def _newest_event(account_id: int) -> int:
    return db.session.scalar(select(func.max(Event.id)).where(Event.account_id == account_id)) or 0
