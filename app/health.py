"""What machines ask: /healthz (this process), /readyz (database, broker, a worker's echo) and /metrics; no content."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Generic, TypeVar

from flask import Blueprint, Flask, Response, current_app, jsonify
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from redis import RedisError
from sqlalchemy import func, select, text
from sqlalchemy.exc import SQLAlchemyError

from app.errors import WhetstoneError
from app.events.broker import broker_client
from app.extensions import db, has_no_disk_left, now
from app.models import Agent, Refinement, Status
from app.models.statement_errors import AgentStopped, LogBroken
from app.processes.broker import trouble_of
from app.processes.datadir import PartsFile, StoppedPart
from app.statements.checkpointing import overdue_words, signed_checkpoint
from tasks.celery import INTERACTIVE, REFINE, UPKEEP
from tasks.echo import worker_answers
from tasks.queue import queue_length

ECHO_SECONDS = 2.0
READY_KEPT_SECONDS = 1.0
"""Where a worker answered, also while something else is wrong. Where none does, each look takes `ECHO_SECONDS`."""

METRICS_KEPT_SECONDS = 5.0
"""Who asks more often gets the last answer: asking costs nothing then."""

HELP = {
    "refinements": ("status", "Refinements by their present status."),
    "queue_length": ("queue", "Messages that wait for a worker."),
    "mutations": ("", "Changes that refinements made, those undone since included."),
    "specifics": (
        "outcome",
        "Specifics that changes were held to, and what became of those that would have been lost.",
    ),
    "agents": ("", "Agents of all accounts."),
    "agents_stopped": ("", "Agents whose rows differ from the log of statements: nothing of theirs is opened."),
    "log_broken": ("", "1 while the log of statements is not the one that was seen before: everything is stopped."),
    "checkpoint_age_seconds": ("", "Seconds since the last signed checkpoint of the log of statements."),
    "database_up": ("", "Whether the database answered."),
    "open_streams": ("", "Pages that hold this process's event stream open."),
}
"""Of each number of /metrics: its label, if it has one, and what it counts."""

Counted = dict[str, dict[str, int]]
T = TypeVar("T")

blueprint = Blueprint("health", __name__)


class CachedAnswer(Generic[T]):
    """An answer for everybody who asks while it is found out, and, where it is `good`, for some seconds after."""

    def __init__(self, find_out: Callable[[], T], seconds: float, good: Callable[[T], bool] = lambda _: True) -> None:
        self._find_out, self._seconds, self._good = find_out, seconds, good
        self._lock = threading.Lock()
        self._held: tuple[float, T] | None = None

    def get(self) -> T:
        asked = time.monotonic()
        with self._lock:
            if self._held is None or self._held[0] < asked - (self._seconds if self._good(self._held[1]) else 0):
                answer = self._find_out()
                self._held = time.monotonic(), answer
            return self._held[1]


def init_app(app: Flask) -> None:
    app.register_blueprint(blueprint)
    app.extensions["health_ready"] = CachedAnswer(
        look_around, READY_KEPT_SECONDS, lambda found: found["worker"] == "ok"
    )
    app.extensions["health_counts"] = CachedAnswer(count, METRICS_KEPT_SECONDS)


@blueprint.get("/healthz")
def healthz() -> Response:
    return jsonify(ok=True)


@blueprint.get("/readyz")
def readyz() -> tuple[Response, int]:
    found = current_app.extensions["health_ready"].get()
    return jsonify(found), 200 if found["ready"] else 503


@blueprint.get("/metrics")
def metrics() -> Response:
    hub = current_app.extensions.get("stream_hub")
    counted: Counted = current_app.extensions["health_counts"].get()
    registry = CollectorRegistry(auto_describe=False)
    for name, numbers in (counted | {"open_streams": {"": hub.open_streams if hub else 0}}).items():
        label, said = HELP[name]
        gauge = Gauge(f"whetstone_{name}", said, [label] if label else [], registry=registry)
        for key, number in numbers.items():
            (gauge.labels(key) if label else gauge).set(number)
    return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def look_around() -> dict[str, object]:
    """Each part in words, and whether all of them answer. A worker is asked only over a broker that answers."""
    database, broker = _check_database(), _check_broker()
    worker = "not asked: the broker does not answer"
    if broker == "ok":
        worker = "ok" if worker_answers(ECHO_SECONDS) else f"none answered within {ECHO_SECONDS:.0f} seconds"
    parts = {"database": database, "broker": broker, "worker": worker}
    stopped = [part.sentence(datetime.now(UTC)) for part in stopped_parts()]
    is_ready = all(word == "ok" for word in parts.values())
    statements = _check_log() if database == "ok" else {}
    found: dict[str, object] = {"ready": is_ready and "log" not in statements, **parts, **statements}
    return found | {"stopped": stopped} if stopped else found


def stopped_parts() -> list[StoppedPart]:
    """What the supervisor of `up` had to start again lately; nothing where the parts run apart."""
    return PartsFile(current_app.extensions["settings"]).read()


def count() -> Counted:
    """The numbers of /metrics: by name, and by label where they have one. What does not answer has none."""
    waiting = {queue: queue_length(queue) for queue in (REFINE, UPKEEP, INTERACTIVE)}
    counted: Counted = {"queue_length": {name: n for name, n in waiting.items() if n is not None}}
    try:
        return counted | _count_rows() | {"database_up": {"": 1}}
    except (SQLAlchemyError, WhetstoneError):
        db.session.rollback()
        return counted | {"database_up": {"": 0}}


def _count_rows() -> Counted:
    query = select(Refinement.status, func.count(), func.sum(Refinement.mutations)).group_by(Refinement.status)
    rows = db.session.execute(query).tuples().all()
    by_status = {str(status): count for status, count, _ in rows}
    agents, stopped = db.session.execute(select(func.count(Agent.id), func.count(Agent.stopped_at))).tuples().one()
    refinements = {str(status): by_status.get(str(status), 0) for status in Status}
    mutations = sum(changes for _, _, changes in rows)
    specifics = {str(name): int(total or 0) for name, total in db.session.execute(_SPECIFICS).mappings().one().items()}
    counted = {"refinements": refinements, "mutations": {"": mutations}, "specifics": specifics}
    counted |= {"agents": {"": agents}}
    return counted | {"agents_stopped": {"": stopped}} | _count_log()


_SPECIFICS = select(
    func.sum(Refinement.specifics_checked).label("checked"),
    func.sum(Refinement.specifics_missing).label("missing"),
    func.sum(Refinement.specifics_restored).label("restored"),
    func.sum(Refinement.specifics_confirmed).label("confirmed"),
)


def _check_database() -> str:
    try:
        db.session.execute(text("SELECT 1"))
    except (SQLAlchemyError, WhetstoneError) as error:
        db.session.rollback()
        return f"does not answer ({type(error).__name__})"
    return "its disk is full: nothing can be written" if has_no_disk_left(db.engine) else "ok"


def _check_log() -> dict[str, str]:
    """What is wrong with the log of statements: `log` stops everything, `checkpoint` is an alarm only."""
    try:
        overdue = overdue_words()
    except (LogBroken, AgentStopped) as error:
        return {"log": error.sentence}
    except (SQLAlchemyError, WhetstoneError):
        return {}
    finally:
        db.session.rollback()
    return {"checkpoint": overdue} if overdue else {}


def _count_log() -> Counted:
    """Whether the log of statements is broken, and its last checkpoint's age in seconds, where there is one."""
    try:
        latest = signed_checkpoint()
    except LogBroken:
        return {"log_broken": {"": 1}}
    age = {} if latest is None or latest.at is None else {"": int((now() - latest.at).total_seconds())}
    return {"log_broken": {"": 0}, "checkpoint_age_seconds": age}


def _check_broker() -> str:
    broker = broker_client()
    if broker is None:
        return "none is running, and REDIS_URL is not set"
    try:
        broker.ping()
    except (RedisError, OSError) as error:
        return trouble_of(error)
    return "ok"
