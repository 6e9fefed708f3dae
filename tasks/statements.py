"""Statements: makes them of what web processes and agents' tokens have signed, and checkpoints for who waits for one.

Ids only go over the broker.
"""

from __future__ import annotations

import uuid

from app.extensions import end_reading
from app.statements.checkpointing import cover_leaf
from app.statements.checks import settle_agent
from app.statements.receipts import Receipt, is_covered, make_receipt
from app.statements.settling import find_unsettled
from tasks.celery import task
from tasks.queue import send_reply, send_task, wait_for_reply

KEPT_SECONDS = 60


def enqueue(agent_id: int) -> bool:
    """Let a worker state what was signed about an agent, once it is committed. Never raises; see `send_task`."""
    return send_task(settle, agent_id)


def fetch_receipt(index: int) -> Receipt:
    """The receipt of the leaf at that place, for which a worker makes a checkpoint where none covers it yet.

    Waits for that for 5 seconds at most. Raises whatever `make_receipt` does.
    """
    if not is_covered(index):
        wait_for_checkpoint(index)
        end_reading()
    return make_receipt(index)


def wait_for_checkpoint(index: int, timeout: float = 5.0) -> bool:
    """Let a worker make a checkpoint that covers a leaf. Raises nothing: no broker, no checkpoint."""
    reply = str(uuid.uuid4())
    return send_task(cover, index, reply) and wait_for_reply(f"checkpoint:{reply}", timeout)


@task
def settle(agent_id: int) -> None:
    settle_agent(agent_id)


@task
def cover(index: int, reply: str) -> None:
    cover_leaf(index)
    send_reply(f"checkpoint:{reply}", kept=KEPT_SECONDS)


@task
def look_after() -> None:
    """Every minute: settle what no worker was told of."""
    for agent_id in find_unsettled():
        enqueue(agent_id)
