"""SettingProposal: a prompt that an agent wrote for itself, while a safety reading has not let it through."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import ForeignKey, LargeBinary, String, Text, select
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Refused
from app.extensions import db, now
from app.models.audit import Action, record
from app.models.base import Model, Moment, Question, lock_row, partial_index, require_row
from app.models.declaring import sign_for_agent
from app.silo import TokenKey
from app.values.actor import Actor

if TYPE_CHECKING:
    from app.models.agent import Agent


PROPOSAL = "whetstone-proposal/1"
"""The heading of what a token signs of one."""


class ProposalStatus(StrEnum):
    """`reading` waits for the safety model, `held` for an admin; the others are ends."""

    READING = "reading"
    HELD = "held"
    APPLIED = "applied"
    DISMISSED = "dismissed"
    SUPERSEDED = "superseded"


OPEN_PROPOSALS = (ProposalStatus.READING, ProposalStatus.HELD)


class SettingProposal(Question, Model):
    """`value` is what the setting would become (null: its default); `why` is the system's own sentence.

    `told_at` is when the agent's journal told of an end that somebody else decided. `note` is the signature of the
    agent's token under it.
    """

    __tablename__ = "setting_proposals"
    __table_args__ = (
        partial_index(
            "ix_setting_proposals_open", "agent_id", "field", unique=True, where="status IN ('reading', 'held')"
        ),
    )

    id: Mapped[str] = mapped_column(String(36), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"))
    field: Mapped[str] = mapped_column(String(40))
    value: Mapped[str | None] = mapped_column(Text)
    status: Mapped[ProposalStatus] = mapped_column(String(16))
    why: Mapped[str | None] = mapped_column(String(300))
    proposed_by: Mapped[str] = mapped_column(String(300))
    proposed_at: Mapped[Moment]
    decided_at: Mapped[Moment | None]
    decided_by: Mapped[str | None] = mapped_column(String(300))
    told_at: Mapped[Moment | None]
    note: Mapped[bytes] = mapped_column(LargeBinary)

    @classmethod
    def make(
        cls, agent: Agent, field: str, value: str, *, by: Actor, signer: TokenKey | None = None
    ) -> SettingProposal:
        """What the agent wants a setting to become. It takes the place of the open one of the same setting.

        `signer` is the agent's token. The caller holds the agent's lock, and lets a worker read it once it is
        committed.
        """
        cls.close(agent, [field], by=by, why="the agent wrote another one")
        proposal = cls(
            id=str(uuid.uuid4()),
            account_id=agent.account_id,
            agent_id=agent.id,
            field=field,
            value=value,
            status=ProposalStatus.READING,
            proposed_by=str(by),
            proposed_at=now(),
        )
        proposal.note = sign_for_agent(PROPOSAL, proposal.signed_fields(agent), signer)
        db.session.add(proposal)
        db.session.flush()
        agent.announce("proposed")
        return proposal

    @classmethod
    def open_of(cls, agent_id: int) -> dict[str, SettingProposal]:
        """Those that still wait, by the setting."""
        query = select(cls).where(cls.agent_id == agent_id, cls.status.in_(OPEN_PROPOSALS)).order_by(cls.field)
        return {each.field: each for each in db.session.scalars(query.execution_options(populate_existing=True))}

    @classmethod
    def find(cls, agent: Agent, proposal_id: str) -> SettingProposal:
        """One of an agent. Raises NotFound."""
        query = select(cls).where(cls.agent_id == agent.id, cls.id == proposal_id)
        return require_row(db.session.scalar(query), f"{agent.name} has proposed no such change.")

    @classmethod
    def lock(cls, agent: Agent, proposal_id: str) -> SettingProposal:
        """One of an agent that the caller has locked, for change. Raises NotFound."""
        query = select(cls).where(cls.agent_id == agent.id, cls.id == proposal_id)
        return require_row(db.session.scalar(lock_row(query)), f"{agent.name} has proposed no such change.")

    @classmethod
    def close(cls, agent: Agent, fields: Collection[str], *, by: Actor, why: str) -> None:
        """What waits for these settings waits no more: something newer was said about them."""
        for field, proposal in cls.open_of(agent.id).items():
            if field in fields:
                proposal._end_without_change(agent, ProposalStatus.SUPERSEDED, by, why)
        db.session.flush()

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_PROPOSALS

    @property
    def subject(self) -> str:
        return f"proposal:{self.id}"

    def signed_fields(self, agent: Agent) -> dict[str, Any]:
        """What the agent's token signs of it."""
        digest = hashlib.sha256((self.value or "").encode("utf-8", "surrogatepass")).hexdigest()
        return {"agent": agent.uuid, "proposal": self.id, "field": self.field, "sha256": digest}

    def hold(self, agent: Agent, *, by: Actor, why: str, said: str = "") -> None:
        """It does not apply, and waits for an admin. `why` is a sentence of ours, `said` the safety model's answer."""
        self.status, self.why = ProposalStatus.HELD, why[:300]
        self.decided_at = self.decided_by = None
        data = {"field": self.field, "proposal": self.id, "why": self.why} | ({"said": said} if said else {})
        record(Action.AGENT_SETTING_HELD, actor=by, of=agent, subject=self.subject, data=data)
        agent.announce("held")

    def apply(self, agent: Agent, *, by: Actor, said: str = "", about: Mapping[str, Any] | None = None) -> None:
        """It becomes the setting: recorded as a change by whoever let it through. Raises Refused or AgentForgotten.

        `said`: the safety model's answer, where that let it through. `about` is recorded beside it.
        """
        agent.check_not_forgotten()
        self.require_open()
        self._mark_decided(ProposalStatus.APPLIED, by)
        db.session.flush()
        facts = {"proposal": self.id, "authored_by": self.proposed_by} | ({"said": said} if said else {})
        fields: dict[str, Any] = {self.field: self.value}
        agent.change(by=by, about={**(about or {}), **facts}, **fields)
        agent.announce("applied")

    def dismiss(self, agent: Agent, *, by: Actor) -> None:
        """It never becomes the setting. Raises Refused."""
        self.require_open()
        self._end_without_change(agent, ProposalStatus.DISMISSED, by, "")

    def reopen(self, agent: Agent, *, by: Actor) -> None:
        """A dismissal is taken back: it waits again. Raises Refused when it was not dismissed, or another one waits."""
        if self.status != ProposalStatus.DISMISSED or self.field in SettingProposal.open_of(agent.id):
            raise Refused(f"This change of the {self.field} can't wait again.", "Nothing was changed.")
        agent.check_not_forgotten()
        self.told_at = None
        self.hold(agent, by=by, why=self.why or "An admin took its dismissal back.")

    def _end_without_change(self, agent: Agent, status: ProposalStatus, by: Actor, why: str) -> None:
        """An end without a change. Of one that was held the log says so; one that nobody saw leaves no entry."""
        was_held = self.status == ProposalStatus.HELD
        self._mark_decided(status, by)
        if was_held:
            data = {"field": self.field, "proposal": self.id} | ({"why": why} if why else {})
            record(Action.AGENT_SETTING_DISMISSED, actor=by, of=agent, subject=self.subject, data=data)
        agent.announce("settled")

    def _mark_decided(self, status: ProposalStatus, by: Actor) -> None:
        self.status, self.decided_at, self.decided_by = status, now(), str(by)

    def require_open(self) -> None:
        """Raises Refused."""
        if not self.is_open:
            raise Refused(f"This change of the {self.field} is {self.status} already.", "Nothing was changed.")
