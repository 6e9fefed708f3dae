"""What the page shows on which an agent is forgotten: what would be destroyed or ended, and what stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select

from app.extensions import db
from app.models import OPEN_GRANTS, AccessGrant, Agent, AgentKey, AuditLog, Intake, IntakeStatus, Memory
from app.models.base import iso
from app.models.key import live_tokens
from app.views.shown.agent import AgentState


@dataclass(frozen=True)
class ForgetPage:
    """`typed` is what stands in the field for the name; None before anybody typed."""

    state: AgentState
    may_forget: bool
    keys: int
    tokens: int
    intakes: int
    exceptions: int
    memories: int
    entries: int
    typed: str | None = None

    @classmethod
    def load(cls, agent: Agent, *, may_forget: bool, typed: str | None = None) -> ForgetPage:
        waiting = select(func.count(Intake.id)).where(Intake.status == IntakeStatus.WAITING)
        live = select(func.count(AccessGrant.id)).where(AccessGrant.status.in_(OPEN_GRANTS))
        return cls(
            state=AgentState.load(agent),
            may_forget=may_forget,
            keys=_count_rows(select(func.count(AgentKey.id)).where(AgentKey.agent_id == agent.id)),
            tokens=len(live_tokens(agent.id)),
            intakes=_count_rows(waiting.where(Intake.agent_id == agent.id)),
            exceptions=_count_rows(live.where(AccessGrant.agent_id == agent.id)),
            memories=_count_rows(select(func.count(Memory.id)).where(Memory.agent_id == agent.id)),
            entries=_count_rows(select(func.count(AuditLog.id)).where(AuditLog.agent_id == agent.id)),
            typed=typed,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "agent": self.state.agent.name,
            "forgotten_at": iso(self.state.agent.forgotten_at),
            "keys": self.keys,
            "tokens": self.tokens,
            "imports_waiting": self.intakes,
            "exceptions": self.exceptions,
            "memories": self.memories,
            "entries": self.entries,
            "may_forget": self.may_forget,
        }


def _count_rows(query: Select[tuple[int]]) -> int:
    return db.session.scalar(query) or 0
