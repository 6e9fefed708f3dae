"""What the pages of one agent show: its state and ledger, its refinements and imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from flask import current_app
from sqlalchemy import select

from app.exchange.parsed import ImportFormat
from app.extensions import db, now
from app.models import Agent, Intake, Refinement
from app.models.key import has_keys
from app.models.refinement import NEWEST_REFINEMENTS
from app.refinement.erosion import Erosion, erosion_of
from app.refinement.timetable import Due, Timetable
from app.shapes.agent import AdminAgent
from app.shapes.intake import AdminImport
from app.shapes.memory import LedgerRowShape
from app.shapes.refinement import RefinementShape
from app.values.mass_story import exact_percent, percent
from app.views.shown.agents import last_event
from app.views.shown.attention import Unseen
from app.views.shown.ledger import Ledger
from app.views.shown.mass import MassChart

REFINEMENT_ROWS = 20
INTAKE_NEWS = timedelta(minutes=10)


@dataclass(frozen=True)
class AgentState:
    """The head of all pages of an agent."""

    agent: Agent
    running: Refinement | None
    last: Refinement | None
    due: Due
    has_keys: bool
    changeable: bool
    erosion: Erosion
    last_event: int

    @classmethod
    def load(cls, agent: Agent) -> AgentState:
        seen = last_event(agent.account_id)
        running = Refinement.open_of(agent.id)
        changeable = agent.has_changeable_memories()
        due = Timetable(current_app.extensions["settings"], now()).due(agent, running=running, changeable=changeable)
        return cls(
            agent, running, _last_ended_refinement(agent), due, has_keys(agent), changeable, erosion_of(agent), seen
        )

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
    def needs_refinement(self) -> bool:
        return self.agent.needs_refinement(now(), changeable=self.changeable)

    @property
    def model_warning(self) -> str:
        """What the last refinement showed of its model; empty when there is nothing to say."""
        return self.last.refusal_line if self.last is not None and self.last.model_seems_unable else ""

    def as_json(self) -> dict[str, Any]:
        told = AdminAgent.of(
            self.agent,
            needs_refinement=self.needs_refinement,
            open_refinement=self.running and self.running.id,
            next_due=self.due.at,
        )
        return told.as_json() | {
            "next_due_words": self.due.words,
            "has_keys": self.has_keys,
            "model_warning": self.model_warning or None,
            "erosion": {
                "cut": self.erosion.cut,
                "base": self.erosion.base,
                "kept": float(self.erosion.kept),
                "floor": None if self.erosion_floor is None else float(self.erosion_floor),
            },
        }


@dataclass(frozen=True)
class LedgerPage:
    state: AgentState
    unseen: Unseen
    ledger: Ledger
    recent: Sequence[Refinement]
    intakes: Sequence[Intake]
    mass: MassChart

    @classmethod
    def load(cls, agent: Agent, *, show: str = "", after: str = "") -> LedgerPage:
        state = AgentState.load(agent)
        recent = newest_refinements(agent, 5)
        unseen, ledger = Unseen.load(agent.account_id, agent.id), Ledger.load(agent, show=show, after=after)
        return cls(state, unseen, ledger, recent, fresh_intakes(agent), MassChart.load(agent))

    def as_json(self) -> dict[str, Any]:
        return self.state.as_json() | {
            "attention_items": self.unseen.as_json(),
            "show": self.ledger.show,
            "ledger": [LedgerRowShape.of(row).as_json() for row in self.ledger.rows],
            "next_after": self.ledger.next_after or None,
            "refinements": [RefinementShape.of(refinement).as_json() for refinement in self.recent],
            "mass": self.mass.as_json(),
        }


@dataclass(frozen=True)
class RefinementsPage:
    state: AgentState
    refinements: Sequence[Refinement]
    next_before: str

    @classmethod
    def load(cls, agent: Agent, *, before: str = "") -> RefinementsPage:
        mine = Refinement.agent_id == agent.id
        position = NEWEST_REFINEMENTS.find(before, mine)
        shown, last = NEWEST_REFINEMENTS.load(select(Refinement).where(mine), REFINEMENT_ROWS, position)
        return cls(AgentState.load(agent), shown, last.id if last else "")

    def as_json(self) -> dict[str, Any]:
        rows = [RefinementShape.of(refinement).as_json() for refinement in self.refinements]
        return {"agent": self.state.agent.name, "refinements": rows, "next_before": self.next_before or None}


@dataclass(frozen=True)
class ImportsPage:
    state: AgentState
    intakes: Sequence[Intake]
    problems: Sequence[str] = ()

    @classmethod
    def load(cls, agent: Agent, *, problems: Sequence[str] = ()) -> ImportsPage:
        return cls(AgentState.load(agent), intakes_of(agent), problems)

    @property
    def formats(self) -> list[tuple[str, str]]:
        """What a file may be, as the form offers it."""
        words = [(str(each), each.words[:1].upper() + each.words[1:]) for each in ImportFormat]
        return [("", "Detect automatically"), *words]

    def as_json(self) -> dict[str, Any]:
        return {
            "agent": self.state.agent.name,
            "imports": [AdminImport.of(intake).as_json() for intake in self.intakes],
        }


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
