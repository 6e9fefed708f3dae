"""SettingsRequest: what a human wants to change of an agent's settings, while its present model has not agreed."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import ForeignKey, Index, LargeBinary, String, select
from sqlalchemy.orm import Mapped, mapped_column

from app.extensions import db, now
from app.models.agent_settings import ENDPOINT, SECOND_READER, STATED_SETTINGS
from app.models.attention import HasNotesToAdmins
from app.models.audit import Action, record
from app.models.base import Lockable, Model, Moment, Question, partial_index
from app.models.declaring import sign_request
from app.models.keyset import Keyset
from app.models.logged import Logged
from app.models.proposal import SettingProposal
from app.silo import Sealed
from app.values.actor import Actor

if TYPE_CHECKING:
    from app.models.agent import Agent
    from app.models.user import User

SETTINGS_REQUEST = "whetstone-settings-request/1"
"""The heading of what the web process signs of one."""

ASKED_SETTINGS = STATED_SETTINGS
"""The settings that a human may change for an agent with memories only as its present model agrees."""


class SettingsRequestStatus(StrEnum):
    """`pending` waits for the agent; after an `agreed` by its own token a worker applies it. All others are ends, and
    are never left."""

    PENDING = "pending"
    AGREED = "agreed"
    APPLIED = "applied"
    DENIED = "denied"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"


OPEN_SETTINGS_REQUESTS = (SettingsRequestStatus.PENDING, SettingsRequestStatus.AGREED)


class SettingsRequest(HasNotesToAdmins, Logged, Lockable, Question, Model):
    """`changes` are the settings as they would be; `about` says what led to it (a reverted entry, a held proposal).

    `why` is the system's own sentence on its end. `reason` is the agent's own words: content. `note` is the web
    process's signature under what is asked.
    """

    __tablename__ = "settings_requests"
    NOUN = "settings_request"
    NOTED_BY = "settings_request_id"
    NOT_AUDITED: ClassVar[Mapping[str, str]] = {
        "asked_at": "which worker asks at the moment; the answer is what counts"
    }
    __table_args__ = (
        partial_index("ix_settings_requests_open", "requested_at", where="status IN ('pending', 'agreed')"),
        Index("ix_settings_requests_agent", "agent_id", "requested_at"),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    changes: Mapped[dict[str, Any]]
    about: Mapped[dict[str, Any]]
    status: Mapped[SettingsRequestStatus] = mapped_column(String(16))
    requested_by: Mapped[str] = mapped_column(String(300))
    requested_at: Mapped[Moment]
    decided_at: Mapped[Moment | None]
    decided_by: Mapped[str | None] = mapped_column(String(300))
    why: Mapped[str | None] = mapped_column(String(300))
    reason: Mapped[Sealed | None]
    note: Mapped[bytes] = mapped_column(LargeBinary)

    @classmethod
    def make(
        cls, agent: Agent, changes: Mapping[str, Any], *, user: User, by: Actor, about: Mapping[str, Any]
    ) -> SettingsRequest:
        """Write the question down; it takes the place of what waits about the same settings.

        The caller holds the agent's lock, and lets a worker ask once it is committed.
        """
        cls.close(agent, changes, by=by, why="somebody asked for another change of it")
        request = cls(
            id=str(uuid.uuid4()),
            account_id=agent.account_id,
            agent_id=agent.id,
            user_id=user.id,
            changes=dict(changes),
            about=dict(about),
            status=SettingsRequestStatus.PENDING,
            requested_by=str(by),
            requested_at=now(),
        )
        request.note = sign_request(SETTINGS_REQUEST, request.asked())
        db.session.add(request)
        db.session.flush()
        data = {"request": request.id, "fields": sorted(changes), **about}
        record(Action.AGENT_CHANGE_ASKED, actor=by, of=agent, subject=request.subject, data=data)
        agent.announce("change_asked")
        return request

    @classmethod
    def open_of(cls, agent_id: int) -> list[SettingsRequest]:
        """Those that wait for the agent, or for a worker to apply them; oldest first."""
        query = select(cls).where(cls.agent_id == agent_id, cls.status.in_(OPEN_SETTINGS_REQUESTS))
        ordered = query.order_by(cls.requested_at, cls.id).execution_options(populate_existing=True)
        return list(db.session.scalars(ordered))

    @classmethod
    def close(cls, agent: Agent, fields: Collection[str] | None, *, by: Actor, why: str) -> None:
        """What waits about these settings, or any, waits no more. A model and its address are one: what is about one of
        them is about both. For a caller that has locked the agent.
        """
        concerned = set(ASKED_SETTINGS) if fields is None else _widened(fields)
        if not concerned & set(ASKED_SETTINGS):
            return
        for request in cls.open_of(agent.id):
            if concerned & _widened(request.changes):
                request.end(agent, SettingsRequestStatus.SUPERSEDED, by=by, why=why)

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_SETTINGS_REQUESTS

    @property
    def stated_subject(self) -> str:
        """What the log of statements calls it."""
        return f"change:{self.id}"

    def asked(self) -> dict[str, Any]:
        """What exactly is asked, as plain data: a YES to this is a YES to nothing else."""
        wanted = {"changes": dict(self.changes), "about": dict(self.about), "user": self.user_id}
        return wanted | {"request": self.id, "agent": self.agent_id}

    def agree(self, agent: Agent, *, by: Actor) -> None:
        """The agent agreed by its own token: a worker applies it. For a caller like `apply`'s."""
        self.status, self.asked_at = SettingsRequestStatus.AGREED, None
        self._record_end(agent, by)
        agent.announce("change_agreed")

    def apply(self, agent: Agent, *, by: Actor, requested_by: Actor) -> None:
        """The agent agreed: recorded as its answer, then as a change by who asked. Raises Invalid, Refused and
        AgentForgotten.

        The caller holds the agent's lock, then this row's, which is open.
        """
        agent.check_not_forgotten()
        self._mark_ended(SettingsRequestStatus.APPLIED, by)
        self._record_end(agent, by)
        db.session.flush()
        about = self.about | {"request": self.id}
        if "proposal" in self.about:
            SettingProposal.lock(agent, str(self.about["proposal"])).apply(agent, by=requested_by, about=about)
        else:
            agent.change(by=requested_by, about=about, **self.changes)
        agent.announce("change_applied")

    def end(self, agent: Agent, status: SettingsRequestStatus, *, by: Actor, why: str = "") -> None:
        """Reach an end without a change. Does nothing to an ended one. For a caller like `apply`'s."""
        if status in (*OPEN_SETTINGS_REQUESTS, SettingsRequestStatus.APPLIED):
            raise ValueError(f"{status} is no end without a change")
        if not self.is_open:
            return
        self._mark_ended(status, by, why)
        self._record_end(agent, by)
        agent.announce("change_ended")

    def _mark_ended(self, status: SettingsRequestStatus, by: Actor, why: str = "") -> None:
        self.status, self.decided_at, self.decided_by, self.why = status, now(), str(by), why[:300] or None

    def _record_end(self, agent: Agent, by: Actor) -> None:
        data = {"request": self.id, "fields": sorted(self.changes)} | ({"why": self.why} if self.why else {})
        action = Action(f"agent_change_{self.status}")
        record(action, actor=by, of=agent, subject=self.subject, data=data)


NEWEST_SETTINGS_REQUESTS = Keyset((SettingsRequest.requested_at, SettingsRequest.id), newest_first=True)


def _widened(fields: Collection[str]) -> set[str]:
    return {*fields}.union(*(one for one in (ENDPOINT, SECOND_READER) if {*fields} & {*one}))
