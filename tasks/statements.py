"""Statements: makes them of what web processes and agents' tokens have signed. Ids only go over the broker."""

from __future__ import annotations

from app.statements.checks import settle_agent
from app.statements.settling import find_unsettled
from tasks.celery import task
from tasks.queue import send_task


def enqueue(agent_id: int) -> bool:
    """Let a worker state what was signed about an agent, once it is committed. Never raises; see `send_task`."""
    return send_task(settle, agent_id)


@task
def settle(agent_id: int) -> None:
    settle_agent(agent_id)


@task
def look_after() -> None:
    """Every minute: settle what no worker was told of."""
    for agent_id in find_unsettled():
        enqueue(agent_id)
