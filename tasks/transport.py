"""Kombu's Redis transport, which delivers a message only when it has the form that `tasks.queue.send` gives it.

Celery trusts what it finds on a queue: a task name that is no text ends its consumer, and the message, put back, ends
the next worker's. Here whatever is malformed is dropped before Celery sees it, and the log says what was wrong with it,
never what it held. What is delivered is built anew from the few fields that a task of ours has: nothing else of a
message (retries, time limits, callbacks, compression) reaches the worker.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from queue import Empty
from typing import Any

import structlog
from kombu.transport import redis
from redis import Connection, RedisError, ResponseError, SSLConnection
from redis import ConnectionError as ConnectionLost

from app.processes.broker import takes_nothing, trouble_of

MAX_BODY_CHARACTERS = 4_000
MAX_TEXT_CHARACTERS = 200
MAX_IDS = 8
OUR_TASKS = "tasks."
NOTHING_ELSE = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}

log = structlog.get_logger(__name__)


class MalformedMessage(ValueError):
    """A message that this program did not write. Its words say which part was wrong, and quote nothing."""


class BrokerRefusesWrites(ConnectionLost):
    """The broker answers, but refuses every change, because it can't write its own file."""


class _Patient:
    """A connection that takes such a refusal for a lost connection: Celery's consumer would end; so it tries again."""

    def read_response(self, *given: Any, **named: Any) -> Any:
        try:
            return super().read_response(*given, **named)  # type: ignore[misc]
        except ResponseError as error:
            if takes_nothing(error):
                raise BrokerRefusesWrites(trouble_of(error)) from None
            raise


class PatientConnection(_Patient, Connection):
    """Over TCP."""


class PatientSSLConnection(_Patient, SSLConnection):
    """Over TLS."""


class TaskChannel(redis.Channel):  # type: ignore[misc]
    """Drops items that are no JSON; kombu itself would give up the connection."""

    connection_class = PatientConnection
    connection_class_ssl = PatientSSLConnection

    def _brpop_read(self, **options: Any) -> Any:
        self.connection.is_delivering = False
        try:
            return super()._brpop_read(**options)
        except (RedisError, OSError, Empty):
            raise
        except Exception as error:
            if self.connection.is_delivering:
                raise
            log.error("message dropped", wrong="it is not JSON", error=type(error).__name__)  # noqa: TRY400 - quotes it
            return True


class TaskTransport(redis.Transport):  # type: ignore[misc]
    """What Celery connects with (`broker_transport`)."""

    Channel = TaskChannel
    is_delivering = False

    def _deliver(self, message: Any, queue: str) -> None:
        try:
            sound = rebuild_message(message, queue)
        except MalformedMessage as malformed:
            log.error("message dropped", queue=queue, wrong=str(malformed))  # noqa: TRY400 - its words say it all
            return
        self.is_delivering = True
        super()._deliver(sound, queue)


def rebuild_message(message: Any, queue: str) -> dict[str, Any]:
    """The message, of fields that were checked. Raises MalformedMessage."""
    envelope = _check_mapping(message, "the envelope")
    headers = _check_mapping(envelope.get("headers"), "the headers")
    properties = _check_mapping(envelope.get("properties"), "the properties")
    _refuse_unless(envelope.get("content-type") == "application/json", "the content type")
    _refuse_unless(envelope.get("content-encoding") == "utf-8", "the content encoding")
    _refuse_unless(properties.get("body_encoding") == "base64", "the body's encoding")
    name, number = _check_text(headers.get("task"), "the task's name"), _check_text(headers.get("id"), "the task's id")
    _refuse_unless(name.startswith(OUR_TASKS), "the task's name")
    _refuse_unless(headers.get("eta") is None, "the time to begin")
    _refuse_unless(_is_number(headers.get("retries", 0)), "the retries")
    _refuse_unless(headers.get("timelimit") in (None, [None, None]), "the time limit")
    _refuse_unless("compression" not in headers, "the compression")
    expires = _check_expiry(headers.get("expires"))
    tag = _check_text(properties.get("delivery_tag"), "the delivery tag")
    return {
        "body": _check_body(envelope.get("body")),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": _build_headers(name, number, expires),
        "properties": {
            "correlation_id": number,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": tag,
        },
    }


def _build_headers(name: str, number: str, expires: str | None) -> dict[str, Any]:
    return {
        "lang": "py",
        "task": name,
        "id": number,
        "root_id": number,
        "expires": expires,
        "eta": None,
        "retries": 0,
        "timelimit": [None, None],
        "argsrepr": "",
        "kwargsrepr": "",
        "ignore_result": True,
    }


def _check_body(body: Any) -> str:
    """Ids, and nothing that Celery would do besides."""
    _refuse_unless(isinstance(body, str) and len(body) <= MAX_BODY_CHARACTERS, "the body's size or type")
    try:
        decoded = json.loads(base64.b64decode(body, validate=True))
    except (binascii.Error, ValueError, RecursionError):
        raise MalformedMessage("the body is not JSON") from None
    _refuse_unless(isinstance(decoded, list) and len(decoded) == 3, "the body's form")
    ids, named, more = decoded
    _refuse_unless(isinstance(ids, list) and len(ids) <= MAX_IDS and all(map(_is_id, ids)), "the ids")
    _refuse_unless(named == {} and more == NOTHING_ELSE, "what the body holds besides ids")
    return str(body)


def _is_id(value: Any) -> bool:
    return _is_number(value) or (isinstance(value, str) and len(value) <= MAX_TEXT_CHARACTERS)


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _check_expiry(value: Any) -> str | None:
    """A time with its zone, as our beat writes it."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(_check_text(value, "the time of expiry"))
        _refuse_unless(moment.tzinfo is not None, "the time of expiry")
    except ValueError:
        raise MalformedMessage("the time of expiry") from None
    return str(value)


def _check_mapping(value: Any, what: str) -> dict[str, Any]:
    _refuse_unless(isinstance(value, dict), what)
    return dict(value)


def _check_text(value: Any, what: str) -> str:
    _refuse_unless(isinstance(value, str) and 0 < len(value) <= MAX_TEXT_CHARACTERS and value.isprintable(), what)
    return str(value)


def _refuse_unless(holds: bool, what: str) -> None:
    if not holds:
        raise MalformedMessage(what)
