"""ModelTest: an admin's wish that an agent's model be asked for one word, and what came of the newest.

The web process has no key of a model: it leaves this row, a worker asks. One row an agent, so that one test at a time
runs of each. It is telemetry, as a ModelCall is: nothing of it stands in the audit log.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import ForeignKey, String, Text, update
from sqlalchemy.orm import Mapped, mapped_column

from app.errors import Refused
from app.extensions import db, now, writing
from app.models.base import Identity, Model, Moment, claim_row
from app.models.event import announce
from app.values.actor import Actor

if TYPE_CHECKING:
    from app.models.agent import Agent

TAKEN_WITHIN = timedelta(minutes=2)
"""A wish that no worker has taken by then is over: nobody is asked, and paid, for what nobody waits for any more."""

ANSWERED_WITHIN = timedelta(seconds=90)
"""Longer than a test lasts, so that a worker that has not answered by then has died."""

NOT_TAKEN = "No worker took it within 2 minutes. Settings, Health says whether one runs."
NOT_ENDED = "The worker that asked stopped before there was an answer."


class ModelTestOpen(Refused):
    """The agent's model is being asked already."""


@dataclass(frozen=True)
class ModelTested:
    """What came of it. `context_window`: what the model can read at once, in tokens, where LiteLLM knows it.

    `key_found`: whether the variable that is named for its key is set where it was asked; None where none is named.
    `failure`: why there was no answer, in a sentence without content; None where there was one.
    """

    model_id: str
    seconds: float
    context_window: int | None
    key_variable: str | None
    key_found: bool | None
    failure: str | None

    @property
    def answered(self) -> bool:
        return self.failure is None


class ModelTest(Model):
    """`asked_at` is when a worker began, `ended_at` when it was done. What it found stands beside, without content."""

    __tablename__ = "model_tests"

    agent_id: Mapped[int] = mapped_column(ForeignKey("agents.id"), primary_key=True, autoincrement=False)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id"))
    requested_by: Mapped[str] = mapped_column(String(300))
    requested_at: Mapped[Moment]
    asked_at: Mapped[Moment | None]
    ended_at: Mapped[Moment | None]
    model_id: Mapped[str] = mapped_column(String(200))
    seconds: Mapped[float | None]
    context_window: Mapped[int | None] = mapped_column(Identity)
    key_variable: Mapped[str | None] = mapped_column(String(120))
    key_found: Mapped[bool | None]
    failure: Mapped[str | None] = mapped_column(Text)

    @classmethod
    def newest_of(cls, agent_id: int) -> ModelTest | None:
        return db.session.get(cls, agent_id, populate_existing=True)

    @classmethod
    def request(cls, agent: Agent, *, by: Actor) -> OpenModelTest:
        """Write down that its present model shall be asked; takes the place of the one before.

        The caller holds the agent's lock, and tells a worker once it is committed. Raises AgentForgotten or
        ModelTestOpen.
        """
        agent.check_not_forgotten()
        newest = cls.newest_of(agent.id)
        if newest is not None and newest.is_open:
            raise ModelTestOpen(f"The model of {agent.name} is being asked already.", "Nothing was started.")
        if newest is not None:
            db.session.delete(newest)
            db.session.flush()
        made = cls(agent_id=agent.id, account_id=agent.account_id, requested_by=str(by), requested_at=now())
        made.model_id = agent.model_id
        db.session.add(made)
        agent.announce("model_asked")
        return OpenModelTest(agent.id, agent.account_id, made.requested_at, None)

    @classmethod
    def claim(cls, agent_id: int) -> OpenModelTest | None:
        """The wish, for exactly one worker; None where another one has it, or where it is over."""
        waits = (cls.asked_at.is_(None), cls.ended_at.is_(None), cls.requested_at > now() - TAKEN_WITHIN)
        with writing():
            row = claim_row(cls, cls.agent_id == agent_id, *waits, asked_at=now())
            if row is None:
                return None
            announce("agent.model_asked", row.account_id, row.agent_id)
            return OpenModelTest(row.agent_id, row.account_id, row.requested_at, row.asked_at)

    @property
    def is_open(self) -> bool:
        return self.ended_at is None and not self.why_lost

    @property
    def why_lost(self) -> str:
        """Why nothing will come of it any more, though it never ended; empty where something may, or has."""
        if self.ended_at is not None:
            return ""
        if self.asked_at is None:
            return NOT_TAKEN if self.requested_at <= now() - TAKEN_WITHIN else ""
        return NOT_ENDED if self.asked_at <= now() - ANSWERED_WITHIN else ""


@dataclass(frozen=True)
class OpenModelTest:
    """Which test of an agent's model somebody has in hand, while no row is held."""

    agent_id: int
    account_id: int
    requested_at: datetime
    asked_at: datetime | None

    def end(self, found: ModelTested | str) -> None:
        """Write down what came of it, or why nobody could be asked: unless another test took the place of this one."""
        values = {"failure": found} if isinstance(found, str) else dict(vars(found))
        asked = ModelTest.asked_at.is_(None) if self.asked_at is None else ModelTest.asked_at == self.asked_at
        mine = (ModelTest.agent_id == self.agent_id, ModelTest.requested_at == self.requested_at, asked)
        with writing() as session:
            ended = update(ModelTest).where(*mine, ModelTest.ended_at.is_(None)).values(ended_at=now(), **values)
            session.execute(ended.execution_options(synchronize_session=False))
            announce("agent.model_tested", self.account_id, self.agent_id)
