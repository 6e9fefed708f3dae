"""What the overview shows: what needs attention, runs, comes and was; and the list of every agent that failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from flask import url_for
from sqlalchemy import exists, func, select
from sqlalchemy.orm import load_only

from app.events.topics import newest_event
from app.extensions import db, now
from app.history.proof import Proof
from app.models import OPEN_STATES, Agent, AgentKey, ProposalStatus, Refinement, SettingProposal, Status, TokenRequest
from app.models.base import iso
from app.models.keyset import cut_page
from app.models.refinement import NEWEST_REFINEMENTS
from app.models.schedule import SCHEDULE_FIELDS
from app.refinement.due import due_by_schedule
from app.refinement.failures import FAILED, failure_conditions, has_reason, reasons_of
from app.refinement.timetable import Timetable
from app.shapes.refinement import NamedRefinement
from app.values.plural import count_nouns
from app.views.shown.agents import IS_KEPT, OVER_BUDGET
from app.views.shown.attention import REASONS_SHOWN, Attention, Unseen, health_alarms, log_alarms, proof_alarms
from app.vocabulary import STATUSES

Pair = tuple[Refinement, Agent]

SHOWN = 8
FAILURE_ROWS = 50
LOOKED_AT = 100
"""Bad ends that are counted; a day on which everything fails needs no exact number."""
DUE_LIMIT = 1000
PLANNED = 500
"""Agents over their budget whose next attempts are counted."""
KEYS_SOON = timedelta(minutes=1)
NEWEST = 500
"""Agents among which missing keys are looked for: they are made once, right after the agent."""

_NEWEST_FIRST = (Refinement.requested_at.desc(),)


class AccountFigures:
    """Of the whole account. Where more than `DUE_LIMIT` are due, `due` is some number above it."""

    def __init__(self, account_id: int) -> None:
        over_budget, paused = func.count().filter(OVER_BUDGET), func.count().filter(Agent.paused, IS_KEPT)
        tokens, stopped = func.coalesce(func.sum(Agent.core_token_usage), 0), func.count(Agent.stopped_at)
        columns = (func.count(), over_budget, paused, tokens, stopped)
        counted = db.session.execute(select(*columns).where(Agent.account_id == account_id)).one()
        self.agents, self.over_budget, self.paused, self.core_tokens, self.stopped = map(int, counted)
        open_conditions = (Refinement.account_id == account_id, Refinement.status.in_(OPEN_STATES))
        self.running = db.session.scalar(select(func.count()).where(*open_conditions)) or 0
        self.next_tick = Timetable().next_tick
        self.due = 0
        for due in due_by_schedule(self.next_tick):
            some = due.where(Agent.account_id == account_id).order_by(None).limit(DUE_LIMIT + 1)
            self.due += db.session.scalar(select(func.count()).select_from(some.subquery())) or 0

    @property
    def due_words(self) -> str:
        if self.due > DUE_LIMIT:
            return f"more than {DUE_LIMIT:,} agents due"
        return f"{count_nouns(self.due, 'agent')} due" if self.due else "no agents due"


class Overview:
    def __init__(self, account_id: int) -> None:
        self.last_event = newest_event(account_id)
        self.figures = AccountFigures(account_id)
        self.is_empty = self.figures.agents == 0
        proof = Proof.of(account_id)
        self.verified_at = proof.at if proof else None
        self.attention = [
            *_stopped(account_id, self.figures.stopped),
            *proof_alarms(account_id, proof),
            *log_alarms(),
            *health_alarms(),
            *_alerting_outcomes(account_id),
            *_held_prompts(account_id),
            *_waiting_tokens(account_id),
            *_over_budget(account_id, self.figures.over_budget),
            *_without_keys(account_id),
        ]
        recent = _load_pairs(account_id, Refinement.ended_at.is_not(None))
        self.recent = sorted(recent, key=lambda pair: pair[0].ended_at or pair[0].requested_at, reverse=True)
        self.unseen = Unseen(account_id)
        waiting_last = (Refinement.started_at.is_(None), Refinement.started_at.desc(), Refinement.id)
        self.running = _load_pairs(account_id, Refinement.status.in_(OPEN_STATES), order=waiting_last)

    def as_json(self) -> dict[str, Any]:
        figures = {name: getattr(self.figures, name) for name in ("agents", "over_budget", "paused", "core_tokens")}
        return figures | {
            "next_tick": iso(self.figures.next_tick),
            "due_at_next_tick": min(self.figures.due, DUE_LIMIT),
            "verified_at": iso(self.verified_at),
            "attention_items": self.unseen.as_json(),
            "attention": [each.as_json() for each in self.attention],
            "running": _refinements_json(self.running),
            "recent": _refinements_json(self.recent),
        }


class FailuresPage:
    """Agents whose newest refinement failed, newest first. `before` and `next_before` are ids of refinements."""

    def __init__(self, account_id: int, *, reason: str = "", before: str = "") -> None:
        wanted = [*failure_conditions(account_id), *([has_reason(reason)] if reason else [])]
        query = select(Refinement, Agent).join(Agent, Agent.id == Refinement.agent_id).where(*wanted)
        position = NEWEST_REFINEMENTS.find(before, *wanted)
        found = db.session.execute(NEWEST_REFINEMENTS.page(query, FAILURE_ROWS, position)).tuples()
        self.rows, last = cut_page(found, FAILURE_ROWS)
        self.reasons, self.reason = reasons_of(account_id), reason
        self.total = sum(each.count for each in self.reasons)
        self.before, self.next_before = before if position else "", last[0].id if last else ""

    def as_json(self) -> dict[str, Any]:
        return {
            "failures": _refinements_json(self.rows),
            "reasons": [each.as_json() for each in self.reasons],
            "next_before": self.next_before or None,
        }


def _refinements_json(pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    return [NamedRefinement.of(refinement, agent=agent.name).as_json() for refinement, agent in pairs]


def _load_pairs(
    account_id: int, *conditions: Any, order: Sequence[Any] = _NEWEST_FIRST, limit: int = SHOWN
) -> list[Pair]:
    """Refinements with their agents."""
    query = select(Refinement, Agent).join(Agent, Agent.id == Refinement.agent_id)
    query = query.where(Refinement.account_id == account_id, *conditions).order_by(*order).limit(limit)
    return [row._tuple() for row in db.session.execute(query)]


_ALERTS = [status for status in reversed(Status) if STATUSES[status].alert]
"""The worst come first."""


def _alerting_outcomes(account_id: int) -> list[Attention]:
    """Agents whose newest refinement in a week ended so; the next good one takes them off the list."""
    pairs = _load_pairs(account_id, *failure_conditions(account_id, *_ALERTS), limit=LOOKED_AT)
    found = []
    for status in _ALERTS:
        term = STATUSES[status]
        ended_so = [pair for pair in pairs if pair[0].status == status]
        items = [(a.name, url_for("refinements.show", refinement_id=r.id), _end_words(r)) for r, a in ended_so]
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


def _waiting_tokens(account_id: int) -> list[Attention]:
    """Tokens that admins asked for, and that their agents have not decided on."""
    mine = (TokenRequest.account_id == account_id, TokenRequest.waits())
    query = select(TokenRequest.name, Agent.id, Agent.name).join(Agent, Agent.id == TokenRequest.agent_id)
    found = db.session.execute(query.where(*mine).order_by(TokenRequest.requested_at).limit(LOOKED_AT)).all()
    if not found:
        return []
    items = [(agent, url_for("tokens.index", agent_id=number), name) for name, number, agent in found]
    text = "Their agents are being asked. Nobody gets in with them before a YES."
    return [Attention("ask", "key", f"Token requests: {len(found)} waiting", text, items[:SHOWN])]


def _stopped(account_id: int, count: int) -> list[Attention]:
    """Agents whose rows differ from what was signed."""
    if not count:
        return []
    query = select(Agent.id, Agent.name, Agent.stopped_why).where(Agent.account_id == account_id)
    found = db.session.execute(query.where(Agent.stopped_at.is_not(None)).order_by(Agent.id).limit(SHOWN)).tuples()
    items = [(name, url_for("agents.show", agent_id=number), f"{why}.") for number, name, why in found]
    text = (
        "The database does not say of them what was signed. Nothing was opened by that, and none of their memories is "
        "read, written or sent to a model until it is settled. Their pages say what to do."
    )
    more = ("All of them", url_for("agents.index", state="stopped")) if count > SHOWN else None
    return [Attention("bad", "alert", f"Stopped: {count_nouns(count, 'agent')}", text, items, more)]


def _over_budget(account_id: int, count: int) -> list[Attention]:
    if not count:
        return []
    query = select(Agent).where(Agent.account_id == account_id, OVER_BUDGET)
    order = ((Agent.core_token_usage - Agent.core_token_budget).desc(), Agent.id)
    agents = db.session.scalars(query.order_by(*order).limit(SHOWN))
    items = [(a.name, url_for("agents.show", agent_id=a.id), _tokens_over(a)) for a in agents]
    text = f"Next attempts: {_next_attempts(account_id)}"
    more = ("All of them", url_for("agents.index", state="over_budget")) if count > SHOWN else None
    title = f"Over budget: {count_nouns(count, 'agent')}"
    return [Attention("warn", "budget", title, text, items, more)]


def _next_attempts(account_id: int) -> str:
    """When those over their budget are started by themselves, and how many are not: `12 within the hour, 1 paused`."""
    mine = select(Agent).where(Agent.account_id == account_id, OVER_BUDGET)
    schedule = load_only(*(getattr(Agent, name) for name in SCHEDULE_FIELDS))
    agents = list(db.session.scalars(mine.options(schedule).order_by(Agent.id).limit(PLANNED + 1)))
    starts = Timetable().count(agents[:PLANNED])
    words = ", ".join(f"{count:,} {when}" for when, count in starts)
    return f"{words} (of the first {PLANNED:,})" if len(agents) > PLANNED else words


def _tokens_over(agent: Agent) -> str:
    over = f"{agent.core_token_usage - agent.core_token_budget:,} tokens over"
    return f"{over}, paused" if agent.paused else over


def _without_keys(account_id: int) -> list[Attention]:
    newest = select(Agent.id, Agent.name, Agent.created_at).where(Agent.account_id == account_id, IS_KEPT)
    newest_few = newest.order_by(Agent.id.desc()).limit(NEWEST).subquery()
    missing = ~exists().where(AgentKey.agent_id == newest_few.c.id)
    keyless = select(newest_few.c.id, newest_few.c.name).where(missing, newest_few.c.created_at < now() - KEYS_SOON)
    rows = db.session.execute(keyless).all()
    items = [(name, url_for("agents.show", agent_id=number), "") for number, name in rows[:SHOWN]]
    text = "Their memories can't be sealed before a worker has made the keys. Is a worker running?"
    return [Attention("broken", "key", f"Without keys: {count_nouns(len(rows), 'agent')}", text, items)] if rows else []


def _count_or_more(count: int, noun: str) -> str:
    words = count_nouns(count, noun)
    return f"{words} or more" if count >= LOOKED_AT else words
