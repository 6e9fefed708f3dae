"""Stopped agents: whose rows differ from the log of statements, and since when, kept for people and programs to see.

What is kept decides nothing: every use of an agent's keys compares anew, so an agent whose rows are put right works at
once, and its page says so within a minute.
"""

from __future__ import annotations

from sqlalchemy import select

from app.extensions import reading, writing
from app.models import Agent
from app.models.statement_errors import AgentStopped
from app.statements.checks import settle_agent


def review_stop(agent_id: int) -> bool:
    """Compare an agent with the log of statements, and keep what is found; returns whether it is stopped.

    Raises LogBroken, or NotFound.
    """
    found = _find_difference(agent_id)
    with writing():
        Agent.lock(agent_id).note_stop(found)
    return found is not None


def find_stopped() -> list[tuple[int, int]]:
    """The ids of the agents that are known to be stopped, each with its account's."""
    query = select(Agent.id, Agent.account_id).where(Agent.stopped_at.is_not(None)).order_by(Agent.id)
    with reading() as session:
        return list(session.execute(query).tuples())


def _find_difference(agent_id: int) -> str | None:
    try:
        settle_agent(agent_id)
    except AgentStopped as stopped:
        return stopped.what
    return None
