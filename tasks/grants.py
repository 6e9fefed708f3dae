"""Exceptions: asks the agent, answers a look, tells the agent how it ended. Ids only go over the broker."""

from __future__ import annotations

from app.asking.calls import Dependencies
from app.grants import asking, endings, opening
from app.llm.litellm import LiteLLMClients
from tasks.celery import task
from tasks.queue import send_reply, send_task, wait_for_reply

KEPT_SECONDS = 60


def enqueue(grant_id: str) -> bool:
    """Let a worker ask the agent, once the row is committed. Never raises; see `send_task`."""
    return send_task(ask, grant_id)


def enqueue_telling(grant_id: str) -> bool:
    """Let a worker tell the agent how an exception ended. Never raises."""
    return send_task(tell, grant_id)


def wait_for_answer(view_id: str, timeout: float = 5.0) -> bool:
    """Let a worker answer a look and wait for it, `timeout` seconds at most. Raises nothing: no broker, no answer."""
    return send_task(answer, view_id) and wait_for_reply(f"look:{view_id}", timeout)


@task
def ask(grant_id: str) -> None:
    asking.ask_agent(grant_id, Dependencies(LiteLLMClients()))


@task
def answer(view_id: str) -> None:
    opening.answer_view(view_id)
    send_reply(f"look:{view_id}", kept=KEPT_SECONDS)


@task
def tell(grant_id: str) -> None:
    endings.tell_ending(grant_id)


@task
def look_after() -> None:
    """Every minute: end what is over, tell what nobody told, ask what nobody asked, empty what nobody fetched."""
    endings.end_what_is_over()
    for grant_id in endings.find_endings_to_tell():
        enqueue_telling(grant_id)
    for grant_id in endings.find_unasked():
        enqueue(grant_id)
    opening.empty_unfetched()
