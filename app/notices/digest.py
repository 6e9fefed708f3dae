"""The weekly digest: what a week of an account's refinements comes to, in numbers."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import func, select

from app.extensions import db
from app.models import Agent, AttentionItem, Refinement, Status
from app.models.notice import Sighting
from app.values.plural import count_nouns

WEEK = timedelta(days=7)


def week_in_numbers(account_id: int, until: datetime) -> tuple[Sighting, list[str]]:
    """The seven days before `until`: how many refinements, and lines about them."""
    since = until - WEEK
    mine = (Refinement.account_id == account_id, Refinement.requested_at >= since, Refinement.requested_at < until)
    ended = select(
        Refinement.status,
        func.count(),
        func.sum(Refinement.mutations),
        func.sum(Refinement.prompt_tokens + Refinement.completion_tokens),
    ).where(*mine, Refinement.ended_at.is_not(None))
    rows = db.session.execute(ended.group_by(Refinement.status)).tuples().all()
    by_status = {str(status): count for status, count, _, _ in rows}
    total = sum(by_status.values())
    outcomes = ", ".join(f"{by_status[each]:,} {each.replace('_', ' ')}" for each in Status if each in by_status)
    lines = [f"{count_nouns(total, 'refinement')}{f': {outcomes}' if outcomes else ''}"]
    lines.append(
        f"{count_nouns(sum(row[2] or 0 for row in rows), 'change')}, {sum(row[3] or 0 for row in rows):,} model tokens"
    )
    lines.append(f"{count_nouns(_over_budget(account_id), 'agent')} over budget now")
    lines.append(f"{count_nouns(_unseen(account_id), 'item')} nobody has seen yet")
    return Sighting(since, 1), lines


def _over_budget(account_id: int) -> int:
    over = (Agent.core_token_usage > Agent.core_token_budget, Agent.forgotten_at.is_(None))
    return db.session.scalar(select(func.count(Agent.id)).where(Agent.account_id == account_id, *over)) or 0


def _unseen(account_id: int) -> int:
    query = select(func.count(AttentionItem.id)).where(AttentionItem.account_id == account_id, AttentionItem.is_open())
    return db.session.scalar(query) or 0
