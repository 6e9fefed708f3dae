"""Whatever breaks inside an operation, by REST and as a tool: answer and log name a kind and a place, and no words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from flask import Flask
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import IntegrityError, OperationalError

from app.api import mcp, v1
from app.api.operations import OPERATIONS
from app.extensions import db
from tests.api.conftest import Door, open_door
from tests.api.test_canary import heard as heard
from tests.support.canary import assert_nowhere, canary
from tests.support.pages import serving

SAID = canary("raised")
Heard = Callable[[], bytes]


class Anything:
    """Stands for arguments that were read well."""

    def __getattr__(self, name: str) -> int:
        return 1


def not_a_number() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python(SAID)
    return caught.value


ERRORS = (
    ValueError(SAID),
    KeyError(SAID),
    UnicodeDecodeError("utf-8", SAID.encode(), 0, 1, SAID),
    ExceptionGroup(SAID, [ValueError(SAID)]),
    IntegrityError(f"INSERT '{SAID}'", {"text": SAID}, Exception(SAID)),
    OperationalError(f"SELECT '{SAID}'", {"text": SAID}, Exception(SAID)),
    not_a_number(),
)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every operation takes anything, and raises one of the errors in turn."""
    monkeypatch.setattr(v1, "_read_input", lambda _: Anything())
    monkeypatch.setattr(mcp, "read_arguments", lambda *_: Anything())
    sound = [(each, each.do, each.streams) for each in OPERATIONS]
    for number, each in enumerate(OPERATIONS):
        change(each, raising(ERRORS[number % len(ERRORS)]), None)
    yield
    for each, do, streams in sound:
        change(each, do, streams)


def change(operation: Any, do: Any, streams: Any) -> None:
    object.__setattr__(operation, "do", do)
    object.__setattr__(operation, "streams", streams)


def raising(error: Exception) -> Callable[..., None]:
    def do(*_: object) -> None:
        secret = canary("local")  # noqa: F841 - a value that a traceback with locals would show
        raise error from RuntimeError(SAID)

    return do


def test_no_operation_that_breaks_tells_what_broke_it(app: Flask, web: Flask, broken: None, heard: Heard) -> None:
    door = open_door(web.test_client(), "ezra")
    for number, each in enumerate(OPERATIONS):
        for more in ({}, {"headers": {"Idempotency-Key": f"key {number}"}}):
            answer = door(each.method, path_of(each), {} if each.method != "GET" else None, **more)
            assert answer.status_code in (500, 503), each.name
            assert_nowhere(answer.data + str(answer.headers).encode(), each.name)
    said = heard()
    assert b"ExceptionGroup" in said
    assert_nowhere(said, "what was logged and printed")


def test_no_tool_that_breaks_does(app: Flask, web: Flask, broken: None, heard: Heard) -> None:
    door = open_door(web.test_client(), "ezra")
    with serving(web) as site:
        for each in OPERATIONS:
            answer = call(site.url, door, each.name)
            assert answer["result"]["isError"], each.name
            assert_nowhere(str(answer).encode(), each.name)
    with web.app_context():
        db.engine.dispose()
    said = heard()
    assert b"ExceptionGroup" in said
    assert_nowhere(said, "what was logged and printed")


def call(url: str, door: Door, name: str) -> Any:
    headers = {"Authorization": f"Bearer {door.token}", "Accept": "application/json, text/event-stream"}
    params = {"name": name, "arguments": {}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return httpx.post(f"{url}/mcp", json=asked, headers=headers).json()


def path_of(operation: Any) -> str:
    place = "1" if operation.at and operation.at.type is int else "00000000-0000-4000-8000-000000000000"
    return operation.path.replace(f"{{{operation.at.name}}}", place) if operation.at else operation.path
