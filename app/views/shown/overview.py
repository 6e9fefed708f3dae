"""What the overview shows: first what needs attention, then what runs, what comes, and what was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from flask import current_app, url_for
from sqlalchemy import exists, func, select
from sqlalchemy.orm import load_only

from app.extensions import db, now
from app.history.proof import Proof
from app.models import OPEN_STATES, Agent, AgentKey, ProposalStatus, Refinement, SettingProposal, Status
from app.models.base import iso
from app.models.schedule import SCHEDULE_FIELDS
from app.refinement.due import due_by_schedule
from app.refinement.failures import FAILED, FailureReason, failure_conditions, reasons_of
from app.refinement.timetable import Timetable
from app.shapes.refinement import NamedRefinement
from app.values.plural import count_nouns
from app.views.shown.agents import last_event
from app.views.shown.attention import Unseen
from app.views.shown.health import HealthProblem, health_problems
from app.views.shown.proof import Alarm, proof_alarms
from app.vocabulary import STATUSES

Pair = tuple[Refinement, Agent]

SHOWN = 8
REASONS_SHOWN = 3
"""As many as the box of failures has lines: it is as high for fifty as for one, so nothing jumps when they come in."""
LOOKED_AT = 100
"""Bad ends that are counted; a day on which everything fails needs no exact number."""
DUE_LIMIT = 1000
PLANNED = 500
"""Agents over their budget whose next attempts are counted."""
KEYS_SOON = timedelta(minutes=1)
NEWEST = 500
"""Agents among which missing keys are looked for: they are made once, right after the agent."""


@dataclass(frozen=True)
class AccountFigures:
    """Of the whole account. `due` is capped at `DUE_LIMIT`."""

    agents: int
    over_budget: int
    paused: int
    running: int
    core_tokens: int
    next_tick: datetime
    due: int

    @property
    def due_words(self) -> str:
        if self.due > DUE_LIMIT:
            return f"more than {DUE_LIMIT:,} agents due"
        return f"{count_nouns(self.due, 'agent')} due" if self.due else "no agents due"


@dataclass(frozen=True)
class Attention:
    """One thing to look at. `items` are (name, address, remark); where there are `reasons`, they are shown instead."""

    tone: str
    icon: str
    title: str
    text: str
    items: Sequence[tuple[str, str, str]] = ()
    more: tuple[str, str] | None = None
    reasons: Sequence[FailureReason] = ()

    @property
    def first_reasons(self) -> Sequence[FailureReason]:
        return self.reasons[:REASONS_SHOWN]

    def as_json(self) -> dict[str, Any]:
        said = {"title": self.title, "text": self.text, "items": [name for name, _, _ in self.items]}
        return said | ({"reasons": [each.as_json() for each in self.reasons]} if self.reasons else {})


@dataclass(frozen=True)
class Overview:
    figures: AccountFigures
    unseen: Unseen
    attention: Sequence[Attention]
    running: Sequence[Pair]
    recent: Sequence[Pair]
    verified_at: datetime | None
    last_event: int

    @classmethod
    def load(cls, account_id: int) -> Overview:
        seen = last_event(account_id)
        figures = _load_figures(account_id)
        proof = Proof.of(account_id)
        attention = [
            *map(_of_alarm, proof_alarms(account_id, proof)),
            *map(_of_trouble, health_problems()),
            *_alerting_outcomes(account_id),
        ]
        attention += _held_prompts(account_id)
        attention += _over_budget(account_id, figures)
        attention += _without_keys(account_id)
        recent = sorted(_load_pairs(account_id, Refinement.ended_at.is_not(None)), key=_end_time, reverse=True)
        unseen = Unseen.load(account_id)
        return cls(figures, unseen, attention, _running_pairs(account_id), recent, proof.at if proof else None, seen)

    @property
    def is_empty(self) -> bool:
        return self.figures.agents == 0

    def as_json(self) -> dict[str, Any]:
        figures = self.figures
        return {
            "agents": figures.agents,
            "over_budget": figures.over_budget,
            "paused": figures.paused,
            "core_tokens": figures.core_tokens,
            "next_tick": iso(figures.next_tick),
            "due_at_next_tick": min(figures.due, DUE_LIMIT),
            "verified_at": iso(self.verified_at),
            "attention_items": self.unseen.as_json(),
            "attention": [each.as_json() for each in self.attention],
            "running": [NamedRefinement.of(r, agent=agent.name).as_json() for r, agent in self.running],
            "recent": [NamedRefinement.of(r, agent=agent.name).as_json() for r, agent in self.recent],
        }


def _load_figures(account_id: int) -> AccountFigures:
    agents, over, paused, tokens = db.session.execute(
        select(
            func.count(),
            func.count().filter(Agent.core_token_usage > Agent.core_token_budget, Agent.forgotten_at.is_(None)),
            func.count().filter(Agent.paused, Agent.forgotten_at.is_(None)),
            func.coalesce(func.sum(Agent.core_token_usage), 0),
        ).where(Agent.account_id == account_id)
    ).one()
    running = db.session.scalar(
        select(func.count()).where(Refinement.account_id == account_id, Refinement.status.in_(OPEN_STATES))
    )
    tick = Timetable(current_app.extensions["settings"], now()).next_tick
    count = 0
    for due in due_by_schedule(tick):
        some = due.where(Agent.account_id == account_id).order_by(None).limit(DUE_LIMIT + 1)
        count += db.session.scalar(select(func.count()).select_from(some.subquery())) or 0
    return AccountFigures(agents, over, paused, running or 0, int(tokens), tick, count)


def _load_pairs(account_id: int, *conditions: Any, order: Any = None, limit: int = SHOWN) -> list[Pair]:
    """Refinements with their agents, the newest first unless `order` says otherwise."""
    query = select(Refinement, Agent).join(Agent, Agent.id == Refinement.agent_id)
    query = query.where(Refinement.account_id == account_id, *conditions)
    order = (Refinement.requested_at.desc(),) if order is None else order
    return [
        (refinement, agent) for refinement, agent in db.session.execute(query.order_by(*order).limit(limit)).tuples()
    ]


def _end_time(pair: Pair) -> datetime:
    return pair[0].ended_at or pair[0].requested_at


def _running_pairs(account_id: int) -> list[Pair]:
    """Those that began last come first, those that wait come last."""
    order = (Refinement.started_at.is_(None), Refinement.started_at.desc(), Refinement.id)
    return _load_pairs(account_id, Refinement.status.in_(OPEN_STATES), order=order)


_ALERTS = [status for status in reversed(Status) if STATUSES[status].alert]
"""The worst come first."""


def _alerting_outcomes(account_id: int) -> list[Attention]:
    """Agents whose newest refinement in a week ended so; the next good one takes them off the list."""
    pairs = _load_pairs(account_id, *failure_conditions(account_id, *_ALERTS), limit=LOOKED_AT)
    found = []
    for status in _ALERTS:
        term = STATUSES[status]
        items = [
            (agent.name, url_for("refinements.show", refinement_id=refinement.id), _end_words(refinement))
            for refinement, agent in pairs
            if refinement.status == status
        ]
        if not items:
            continue
        words = f"{term.capitalized}: {_count_or_more(len(items), 'agent')}"
        reasons = reasons_of(account_id, status) if status in FAILED else ()
        all_of_them = f"All failures, {len(reasons)} reasons" if len(reasons) > REASONS_SHOWN else "All failures"
        more = (all_of_them, url_for("failures.index")) if reasons else None
        found.append(Attention(term.tone, term.icon, words, term.alert, items[:SHOWN], more, reasons))
    return found


def _end_words(refinement: Refinement) -> str:
    return f"{refinement.ended_at:%a %H:%M} UTC" if refinement.ended_at else ""


def _held_prompts(account_id: int) -> list[Attention]:
    """Prompts that agents wrote for themselves, and that the safety reading did not let through."""
    mine = (SettingProposal.account_id == account_id, SettingProposal.status == ProposalStatus.HELD)
    query = select(SettingProposal.field, Agent.id, Agent.name).join(Agent, Agent.id == SettingProposal.agent_id)
    found = db.session.execute(query.where(*mine).order_by(SettingProposal.proposed_at).limit(LOOKED_AT)).all()
    if not found:
        return []
    items = [
        (name, url_for("settings.show", agent_id=number), field.replace("_", " ")) for field, number, name in found
    ]
    text = "What an agent wrote for itself does not apply until an admin has read it."
    return [Attention("ask", "lock", f"Held: {_count_or_more(len(found), 'prompt')}", text, items[:SHOWN])]


def _over_budget(account_id: int, figures: AccountFigures) -> list[Attention]:
    if not figures.over_budget:
        return []
    over = Agent.core_token_usage - Agent.core_token_budget
    agents = db.session.scalars(
        select(Agent)
        .where(Agent.account_id == account_id, Agent.core_token_usage > Agent.core_token_budget)
        .where(Agent.forgotten_at.is_(None))
        .order_by(over.desc(), Agent.id)
        .limit(SHOWN)
    )
    items = [(a.name, url_for("agents.show", agent_id=a.id), _tokens_over(a)) for a in agents]
    text = f"Next attempts: {_next_attempts(account_id)}"
    more = ("All of them", url_for("agents.index", state="over_budget")) if figures.over_budget > SHOWN else None
    title = f"Over budget: {count_nouns(figures.over_budget, 'agent')}"
    return [Attention("warn", "budget", title, text, items, more)]


def _next_attempts(account_id: int) -> str:
    """When those over their budget are started by themselves, and how many are not: `12 within the hour, 1 paused`."""
    over = Agent.core_token_usage > Agent.core_token_budget
    mine = select(Agent).where(Agent.account_id == account_id, over, Agent.forgotten_at.is_(None))
    schedule = load_only(*(getattr(Agent, name) for name in SCHEDULE_FIELDS))
    agents = list(db.session.scalars(mine.options(schedule).order_by(Agent.id).limit(PLANNED + 1)))
    starts = Timetable(current_app.extensions["settings"], now()).count(agents[:PLANNED])
    words = ", ".join(f"{count:,} {when}" for when, count in starts)
    return f"{words} (of the first {PLANNED:,})" if len(agents) > PLANNED else words


def _tokens_over(agent: Agent) -> str:
    over = f"{agent.core_token_usage - agent.core_token_budget:,} tokens over"
    return f"{over}, paused" if agent.paused else over


def _without_keys(account_id: int) -> list[Attention]:
    mine = (Agent.account_id == account_id, Agent.forgotten_at.is_(None))
    newest = select(Agent.id, Agent.name, Agent.created_at).where(*mine)
    newest_few = newest.order_by(Agent.id.desc()).limit(NEWEST).subquery()
    missing = ~exists().where(AgentKey.agent_id == newest_few.c.id)
    rows = db.session.execute(
        select(newest_few.c.id, newest_few.c.name).where(missing, newest_few.c.created_at < now() - KEYS_SOON)
    ).all()
    items = [(name, url_for("agents.show", agent_id=number), "") for number, name in rows[:SHOWN]]
    text = "Their memories can't be sealed before a worker has made the keys. Is a worker running?"
    return [Attention("broken", "key", f"Without keys: {count_nouns(len(rows), 'agent')}", text, items)] if rows else []


def _of_alarm(alarm: Alarm) -> Attention:
    return Attention(alarm.tone, alarm.icon, alarm.title, alarm.text, alarm.items)


def _of_trouble(trouble: HealthProblem) -> Attention:
    return Attention("bad", "bolt", trouble.title, trouble.text)


def _count_or_more(count: int, noun: str) -> str:
    words = count_nouns(count, noun)
    return f"{words} or more" if count >= LOOKED_AT else words
