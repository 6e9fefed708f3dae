"""The short queues: what is quick runs in threads of its own, so that it never waits behind refinements.

Celery shares one pool among all queues of a worker. Where every thread of it waits for a model, the sweeper that frees
stalled refinements and the answer to somebody who looks at a page would wait too.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import structlog
from celery import bootsteps, signals
from kombu import Consumer, Message

from tasks.celery import INTERACTIVE, UPKEEP, TaskFailed, app

THREADS = {UPKEEP: 4, INTERACTIVE: 4}

log = structlog.get_logger(__name__)
_taken: list[str] = []
_pools: dict[str, ThreadPoolExecutor] = {}


def _take_over(instance: Any, **_: Any) -> None:
    """Of the queues that this worker was told to serve, take the short ones from Celery's own consumer."""
    queues = instance.app.amqp.queues
    _taken[:] = [name for name in THREADS if name in queues.consume_from]
    queues.deselect(_taken)
    for name in _taken:
        _pools[name] = ThreadPoolExecutor(THREADS[name], thread_name_prefix=name)


class ShortQueues(bootsteps.ConsumerStep):  # type: ignore[misc]
    """Consumes the short queues on the worker's connection; Celery starts it anew after every reconnect."""

    def get_consumers(self, channel: Any) -> list[Consumer]:
        queues = app.amqp.queues
        return [
            Consumer(channel, [queues[name]], no_ack=True, accept=["json"], on_message=_make_submitter(_pools[name]))
            for name in _taken
        ]


def _make_submitter(pool: ThreadPoolExecutor) -> Any:
    return lambda message: pool.submit(_run_task, message)


def _run_task(message: Message) -> None:
    name = str(message.headers.get("task"))
    try:
        work = app.tasks.get(name)
        if work is None:
            log.error("unknown task", task=name)
        elif not _is_stale(message):
            work(*message.decode()[0])
    except TaskFailed as failed:
        log.error("task failed", task=name, error=str(failed))  # noqa: TRY400 - never with a traceback
    except Exception as error:  # noqa: BLE001 - a broken message must not end the thread unheard
        log.error("message refused", task=name, error=type(error).__name__)  # noqa: TRY400


def _is_stale(message: Message) -> bool:
    expires = message.headers.get("expires")
    return expires is not None and datetime.fromisoformat(expires) < datetime.now(UTC)


signals.celeryd_after_setup.connect(_take_over)
app.steps["consumer"].add(ShortQueues)
