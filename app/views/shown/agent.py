"""What the pages of one agent show: its state and ledger, its refinements and imports, and how to forget it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from flask import current_app
from sqlalchemy import ColumnElement, func, select

from app.exchange.parsed import ImportFormat
from app.extensions import db, now
from app.models import OPEN_GRANTS, AccessGrant, Agent, AgentKey, AuditLog, Intake, IntakeStatus, Memory, Refinement
from app.models.base import iso
from app.models.key import has_keys, live_tokens
from app.models.refinement import NEWEST_REFINEMENTS
from app.refinement.erosion import Erosion, erosion_of
from app.shapes.intake import AdminImport
from app.shapes.memory import LedgerRowShape
from app.shapes.refinement import RefinementShape
from app.values.mass_story import exact_percent, percent
from app.views.shown.agents import AgentRow, last_event, next_due
from app.views.shown.attention import Unseen
from app.views.shown.ledger import Ledger
from app.views.shown.mass import MassChart

REFINEMENT_ROWS = 20
INTAKE_NEWS = timedelta(minutes=10)


@dataclass(frozen=True)
class AgentState(AgentRow):
    """The head of all pages of an agent."""

    erosion: Erosion
    last_event: int

    @classmethod
    def load(cls, agent: Agent) -> AgentState:
        seen = last_event(agent.account_id)
        running, changeable = Refinement.open_of(agent.id), agent.has_changeable_memories()
        due, last = next_due(agent, running, changeable), _last_ended_refinement(agent)
        return cls(agent, last, running, due, changeable, has_keys(agent), erosion_of(agent), seen)

    @property
    def erosion_floor(self) -> Decimal | None:
        floor: Decimal | None = current_app.extensions["settings"].erosion_floor
        return floor

    @property
    def erosion_words(self) -> str:
        """What refinements left of the core memories over 30 days, and what they must leave."""
        limit = "no limit" if self.erosion_floor is None else f"limit {exact_percent(self.erosion_floor)}"
        if self.erosion.cut == 0:
            return f"100% kept, {limit}"
        kept = percent(self.erosion.kept, self.erosion_floor or 1)
        return f"{kept} of {self.erosion.base:,} tokens kept, {limit}"

    @property
    def model_warning(self) -> str:
        """What the last refinement showed of its model; empty when there is nothing to say."""
        return self.last.refusal_line if self.last is not None and self.last.model_seems_unable else ""

    def as_json(self) -> dict[str, Any]:
        floor = None if self.erosion_floor is None else float(self.erosion_floor)
        erosion = {"cut": self.erosion.cut, "base": self.erosion.base, "kept": float(self.erosion.kept), "floor": floor}
        said = {"next_due_words": self.due.words, "model_warning": self.model_warning or None, "erosion": erosion}
        return super().as_json() | said


class LedgerPage:
    def __init__(self, agent: Agent, *, show: str = "", after: str = "") -> None:
        self.state = AgentState.load(agent)
        self.recent = newest_refinements(agent, 5)
        self.unseen = Unseen(agent.account_id, agent.id)
        self.ledger = Ledger(agent, show=show, after=after)
        self.intakes = fresh_intakes(agent)
        self.mass = MassChart(agent)

    def as_json(self) -> dict[str, Any]:
        return self.state.as_json() | {
            "attention_items": self.unseen.as_json(),
            "show": self.ledger.show,
            "ledger": [LedgerRowShape.of(row).as_json() for row in self.ledger.rows],
            "next_after": self.ledger.next_after or None,
            "refinements": [RefinementShape.of(refinement).as_json() for refinement in self.recent],
            "mass": self.mass.as_json(),
        }


class RefinementsPage:
    def __init__(self, agent: Agent, *, before: str = "") -> None:
        mine = Refinement.agent_id == agent.id
        position = NEWEST_REFINEMENTS.find(before, mine)
        self.refinements, last = NEWEST_REFINEMENTS.load(select(Refinement).where(mine), REFINEMENT_ROWS, position)
        self.next_before = last.id if last else ""
        self.state = AgentState.load(agent)

    def as_json(self) -> dict[str, Any]:
        rows = [RefinementShape.of(refinement).as_json() for refinement in self.refinements]
        return {"agent": self.state.agent.name, "refinements": rows, "next_before": self.next_before or None}


class ImportsPage:
    formats = (
        ("", "Detect automatically"),
        *((each, each.words[:1].upper() + each.words[1:]) for each in ImportFormat),
    )
    """What a file may be, as the form offers it."""

    def __init__(self, agent: Agent, *, problems: Sequence[str] = ()) -> None:
        self.state = AgentState.load(agent)
        self.intakes, self.problems = intakes_of(agent), problems

    def as_json(self) -> dict[str, Any]:
        imports = [AdminImport.of(intake).as_json() for intake in self.intakes]
        return {"agent": self.state.agent.name, "imports": imports}


class ForgetPage:
    """What would be destroyed or ended, and what stays. `typed` stands in the field for the name; None before that."""

    def __init__(self, agent: Agent, *, may_forget: bool, typed: str | None = None) -> None:
        self.state, self.may_forget, self.typed = AgentState.load(agent), may_forget, typed
        self.counts = {
            "keys": _count_rows(AgentKey, agent),
            "tokens": len(live_tokens(agent.id)),
            "imports_waiting": _count_rows(Intake, agent, Intake.status == IntakeStatus.WAITING),
            "exceptions": _count_rows(AccessGrant, agent, AccessGrant.status.in_(OPEN_GRANTS)),
            "memories": _count_rows(Memory, agent),
            "entries": _count_rows(AuditLog, agent),
        }

    def as_json(self) -> dict[str, Any]:
        agent = self.state.agent
        said = {"agent": agent.name, "forgotten_at": iso(agent.forgotten_at), "may_forget": self.may_forget}
        return said | self.counts


def newest_refinements(agent: Agent, limit: int) -> list[Refinement]:
    query = select(Refinement).where(Refinement.agent_id == agent.id)
    return list(db.session.scalars(query.order_by(*NEWEST_REFINEMENTS.order).limit(limit)))


def intakes_of(agent: Agent, *, limit: int = 20) -> list[Intake]:
    query = select(Intake).where(Intake.agent_id == agent.id, Intake.kind == "import")
    return list(db.session.scalars(query.order_by(Intake.created_at.desc()).limit(limit)))


def fresh_intakes(agent: Agent) -> list[Intake]:
    """Imports that wait for the worker, or that it settled just now."""
    since = now() - INTAKE_NEWS
    return [intake for intake in intakes_of(agent) if intake.taken_at is None or intake.taken_at > since]


def _last_ended_refinement(agent: Agent) -> Refinement | None:
    ended = select(Refinement).where(Refinement.agent_id == agent.id, Refinement.ended_at.is_not(None))
    return db.session.scalar(ended.order_by(Refinement.requested_at.desc()).limit(1))


def _count_rows(model: Any, agent: Agent, *conditions: ColumnElement[bool]) -> int:
    query = select(func.count(model.id)).where(model.agent_id == agent.id, *conditions)
    return db.session.scalar(query) or 0
