"""Exceptions: asks the agent, answers a look, tells the agent how it ended. Ids only go over the broker."""

from __future__ import annotations

from contextlib import closing

from redis import Redis, RedisError

from app.asking.dependencies import Dependencies
from app.errors import Unavailable
from app.events.broker import TIMEOUT, broker_client, broker_namespace, broker_url
from app.grants import asking, endings, opening
from app.llm.litellm import LiteLLMClients
from tasks.celery import task
from tasks.queue import send_task

KEPT_SECONDS = 60


def enqueue(grant_id: str) -> bool:
    """Let a worker ask the agent, once the row is committed. Never raises; see `send_task`."""
    return send_task(ask, grant_id)


def enqueue_telling(grant_id: str) -> bool:
    """Let a worker tell the agent how an exception ended. Never raises."""
    return send_task(tell, grant_id)


def wait_for_answer(view_id: str, timeout: float = 5.0) -> bool:
    """Let a worker answer a look and wait for it, `timeout` seconds at most. Raises nothing: no broker, no answer."""
    if not send_task(answer, view_id):
        return False
    try:
        address = broker_url()
        with closing(Redis.from_url(address, socket_connect_timeout=TIMEOUT, socket_timeout=timeout + 1)) as broker:
            return broker.blpop([_answer_key(view_id)], timeout) is not None
    except (RedisError, OSError, ValueError, Unavailable):
        return False


@task
def ask(grant_id: str) -> None:
    asking.ask_agent(grant_id, Dependencies(LiteLLMClients()))


@task
def answer(view_id: str) -> None:
    opening.answer_view(view_id)
    broker = broker_client()
    if broker is None:
        return
    with broker.pipeline() as commands:
        commands.rpush(_answer_key(view_id), "1")
        commands.expire(_answer_key(view_id), KEPT_SECONDS)
        commands.execute()


@task
def tell(grant_id: str) -> None:
    endings.tell_ending(grant_id)


@task
def look_after() -> None:
    """Every minute: end what is over, tell what nobody told, ask what nobody asked, empty what nobody fetched."""
    endings.end_what_is_over()
    for grant_id in endings.find_untold():
        enqueue_telling(grant_id)
    for grant_id in endings.find_unasked():
        enqueue(grant_id)
    opening.empty_unfetched()


def _answer_key(view_id: str) -> str:
    return f"{broker_namespace()}look:{view_id}"
