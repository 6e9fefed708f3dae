"""The Celery application: how a task runs, in a context of its own, and how a worker lives and ends.

A worker is one process with three pools of threads: Celery's own, which asks models, and two small ones for the short
queues.

When a worker is told to end (SIGTERM), it takes nothing new at once: what is queued waits for the next worker. Its
running refinements go on for CLOSING_SECONDS and may well finish. Those that are still open then are ended as
`interrupted` in the database, where the fence keeps their late models from changing anything; their valid changes are
kept, and their agents are free. Then the process leaves, without waiting for models that still think.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

import structlog
from celery import Celery, signals
from flask import Flask
from sqlalchemy.exc import SQLAlchemyError

from app import Part, logs
from app.errors import WhetstoneError
from app.events.broker import StreamWaker, broker_namespace, broker_url
from app.extensions import end_reading
from app.history.proof import prove_at_once
from app.llm.litellm import load_litellm
from app.loading import collect_rarely, share_heaps
from app.logs import error_place
from app.models.statement_errors import AgentStopped, LogBroken
from app.notices.timer import NoticeTimer
from app.refinement.heartbeat import heartbeat
from app.refinement.sweep import interrupt_refinement, keep_closing
from app.setup import ready_app
from app.statements.checkpointing import CheckpointTimer
from tasks.presence import PresenceTimer

CLOSING_SECONDS = 12.0
"""The supervisor of `up` gives a worker 20 seconds."""

REFINE, UPKEEP, INTERACTIVE = "refine", "upkeep", "interactive"

log = structlog.get_logger(__name__)

app = Celery("whetstone", set_as_current=True)
app.config_from_object("celeryconfig")


class TaskFailed(Exception):
    """All that may be told of an exception: its type, and where in our code it was. Its words may quote content."""


@cache
def flask_app() -> Flask:
    """The worker's application, one for its process. Raises Misconfigured."""
    return ready_app(Part.WORKER)


def task(work: Callable[..., None]) -> Any:
    """A task of ours: ids in, nothing out, a context of its own, and failures that tell no values."""

    @wraps(work)
    def run(*ids: Any) -> None:
        with flask_app().app_context():
            try:
                work(*ids)
            except Exception as error:  # noqa: BLE001 - the boundary: only its type may leave
                if isinstance(error, AgentStopped | LogBroken):
                    sound_alarm(error)
                failed = TaskFailed(f"{type(error).__name__} at {error_place(error)}")
            else:
                return
        raise failed

    return app.task(run, name=f"{work.__module__}.{work.__name__}")


def sound_alarm(error: AgentStopped | LogBroken) -> None:
    """Let the pages tell at once what stopped an agent, or everything."""
    end_reading()
    try:
        prove_at_once(error.agent_id if isinstance(error, AgentStopped) else None)
    except (SQLAlchemyError, WhetstoneError) as other:
        log.error("an alarm could not be told", error=type(other).__name__)  # noqa: TRY400 - quotes values


def _prepare_worker(conf: Any, **_: Any) -> None:
    """Before the worker connects."""
    share_heaps()
    keep_closing(_prepare_process(flask_app, conf))


def _prepare_beat(sender: Any, **_: Any) -> None:
    _prepare_process(partial(ready_app, Part.BEAT), sender.app.conf)
    logging.getLogger("celery.beat").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """What is sent every minute is not worth a line each time."""
    said = record.getMessage()
    return "Sending due task" not in said or any(task in said for task in ("sweep.weekly", "sweep.over_budget"))


def _prepare_process(make: Callable[[], Flask], conf: Any) -> Flask:
    """Give it this installation's broker and namespace.

    Celery logs and ignores exceptions of its signals: an exit it can't ignore.
    """
    try:
        made = make()
        logs.init(made.extensions["settings"].log_level)
        with made.app_context():
            conf.broker_url = broker_url()
            conf.broker_transport_options = {**conf.broker_transport_options, "global_keyprefix": broker_namespace()}
    except WhetstoneError as error:
        raise SystemExit(f"Error: {error.sentence}") from None
    return made


def _preload_in_thread(**_: Any) -> None:
    """Load the models' library beside the work, so that the first refinement need not wait for it."""
    threading.Thread(target=_load_models_library, name="warm", daemon=True).start()


def _load_models_library() -> None:
    load_litellm()
    collect_rarely()


def _start_waking(**_: Any) -> None:
    """Hundreds of refinements write at once: the pages are told by a thread, once for what happens together."""
    StreamWaker(flask_app()).start()


def _start_checkpoints(**_: Any) -> None:
    """By a timer of the worker's own: no beat and no broker can hold them up."""
    CheckpointTimer(flask_app()).start()


@cache
def _presence() -> PresenceTimer:
    """Of this worker process."""
    return PresenceTimer(flask_app())


def _start_presence(**_: Any) -> None:
    _presence().start()


def _start_notices(**_: Any) -> None:
    """By a thread of the worker's own, for the same reason."""
    NoticeTimer.for_worker(flask_app()).start()


def _close_in_thread(**_: Any) -> None:
    _presence().stop()
    threading.Thread(target=close_in_time, name="closing", daemon=True).start()


def close_in_time(leave: Callable[[int], None] = os._exit, seconds: float = CLOSING_SECONDS) -> None:
    """Let running refinements finish; where the process lives on after `seconds`, end the rest, and leave."""
    threading.Event().wait(seconds)
    try:
        with flask_app().app_context():
            ended = [
                interrupt_refinement(refinement_id, worker) for refinement_id, worker in heartbeat().held().items()
            ]
            log.info("closing time", interrupted=sum(ended))
    except (SQLAlchemyError, WhetstoneError) as error:
        log.error("refinements left to the sweeper", error=type(error).__name__)  # noqa: TRY400
    finally:
        leave(0)


signals.celeryd_init.connect(_prepare_worker)
signals.beat_init.connect(_prepare_beat)
signals.worker_ready.connect(_preload_in_thread)
signals.worker_ready.connect(_start_waking)
signals.worker_ready.connect(_start_checkpoints)
signals.worker_ready.connect(_start_presence)
signals.worker_ready.connect(_start_notices)
signals.worker_shutting_down.connect(_close_in_thread)
