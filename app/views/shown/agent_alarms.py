"""The overview's lines of agents whose own state needs somebody: stopped, over budget, eroding, without keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Any

from flask import url_for
from sqlalchemy import bindparam, exists, func, select

from app.extensions import db, now, read_rows
from app.models import Agent, AgentKey
from app.models.base import UtcDateTime
from app.prepared import Prepared
from app.refinement.fleet import IS_KEPT, OVER_BUDGET
from app.values.mass_story import exact_percent, percent
from app.values.plural import count_nouns
from app.views.addresses import agent_url, list_url
from app.views.shown.attention import SHOWN, Attention
from app.views.shown.fleet import AccountFigures, FleetTrend

KEYS_SOON = timedelta(minutes=1)
NEWEST = 500
"""Agents among which missing keys are looked for: they are made once, right after the agent."""


def stopped_agents(account_id: int, count: int) -> list[Attention]:
    """Agents whose rows differ from what was signed."""
    if not count:
        return []
    query = select(Agent.id, Agent.name, Agent.stopped_why).where(Agent.account_id == account_id)
    found = db.session.execute(query.where(Agent.stopped_at.is_not(None)).order_by(Agent.id).limit(SHOWN)).tuples()
    items = [(name, agent_url(number), f"{why}.") for number, name, why in found]
    if not items:
        return []
    text = (
        "The database does not say of them what was signed. Nothing was opened by that, and none of their memories is "
        "read, written or sent to a model until it is settled. Their pages say what to do."
    )
    url = url_for("agents.index", state="stopped")
    more = ("All of them", url) if count > SHOWN else None
    title = f"Stopped: {count_nouns(count, 'agent')}"
    return [Attention("bad", "alert", title, text, items, more, short=f"{count:,} stopped", count=count, url=url)]


def agents_over_budget(account_id: int, figures: AccountFigures, trend: FleetTrend) -> list[Attention]:
    if not figures.over_budget:
        return []
    found = read_rows(_over_budget_query(), {"account_id": account_id})
    items = [
        (name, agent_url(number), f"{over:,} tokens over{', paused' if paused else ''}")
        for number, name, paused, over in found
    ]
    if not items:
        return []
    count = max(figures.over_budget, len(items))
    url, twice = list_url("agents.index", state="over_budget"), trend.over_budget_twice
    text = f"{_names(twice)} stayed over after two looks in a row." if twice else ""
    facts: dict[str, Any] = {"kind": "over_budget", "short": f"{count:,} over budget", "count": count, "url": url}
    facts["line"] = f"Twice in a row: {_names(twice)}" if twice else f"{items[0][0]}: {items[0][2]}"
    more = ("All of them", url) if count > SHOWN else None
    return [Attention("warn", "budget", f"Over budget: {count_nouns(count, 'agent')}", text, items, more, **facts)]


@cache
def _over_budget_query() -> Prepared:
    columns = (Agent.id, Agent.name, Agent.paused, Agent.core_token_usage - Agent.core_token_budget)
    query = select(*columns).where(Agent.account_id == bindparam("account_id"), OVER_BUDGET)
    return Prepared(query.order_by(columns[3].desc(), Agent.id).limit(SHOWN))


def _names(found: Sequence[str]) -> str:
    others = f" and {count_nouns(len(found) - 3, 'other')}" if len(found) > 3 else ""
    return f"{', '.join(found[:3])}{others}"


def eroding_agents(trend: FleetTrend) -> list[Attention]:
    if not trend.eroding:
        return []
    items = [(each.name, agent_url(each.agent_id), f"{percent(each.kept)} kept in 30 days") for each in trend.eroding]
    count, least = len(items), exact_percent(trend.erosion_floor) if trend.erosion_floor is not None else ""
    text = "Refinements have cut at least half of what they may" + (f" (minimum {least})." if least else ".")
    facts: dict[str, Any] = {"kind": "eroding", "short": f"{count:,} eroding", "count": count, "url": items[0][1]}
    facts["line"] = f"{items[0][0]}: {items[0][2]}" + (f" (minimum {least})" if least else "")
    return [Attention("warn", "arrow-right", f"Eroding: {count_nouns(count, 'agent')}", text, items[:SHOWN], **facts)]


def agents_without_keys(account_id: int) -> list[Attention]:
    asked = {"account_id": account_id, "until": now() - KEYS_SOON}
    rows = read_rows(_keyless_query(), asked)
    if not rows:
        return []
    items = [(name, agent_url(number), "") for number, name, _ in rows]
    count = rows[0][2]
    text = "Their memories can't be sealed before a worker has made the keys. Is a worker running?"
    title = f"Without keys: {count_nouns(count, 'agent')}"
    return [Attention("broken", "key", title, text, items, short=f"{count} without keys", count=count)]


@cache
def _keyless_query() -> Prepared:
    mine = (Agent.account_id == bindparam("account_id"), IS_KEPT)
    newest = select(Agent.id, Agent.name, Agent.created_at).where(*mine)
    newest_few = newest.order_by(Agent.id.desc()).limit(NEWEST).subquery()
    missing = ~exists().where(AgentKey.agent_id == newest_few.c.id)
    columns = (newest_few.c.id, newest_few.c.name, func.count().over())
    keyless = select(*columns).where(missing, newest_few.c.created_at < bindparam("until", type_=UtcDateTime))
    return Prepared(keyless.order_by(newest_few.c.id.desc()).limit(SHOWN))
