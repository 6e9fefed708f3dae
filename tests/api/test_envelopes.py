"""What is no call of a tool at all, with content in it: it reaches no log, whoever reads the envelope."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from flask import Flask

from app.extensions import db
from app.processes.asgi import _log_configuration
from tests.api.conftest import open_door
from tests.api.test_canary import heard as heard
from tests.support.canary import assert_nowhere, assert_nowhere_at_rest, canary
from tests.support.pages import serving

SAID = canary("sent")
Heard = Callable[[], bytes]


def envelopes() -> Iterator[bytes]:
    yield SAID.encode()
    yield b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":"' + SAID.encode("utf-16")
    yield b'{"a":' * 5000 + SAID.encode()
    for each in (SAID, [SAID], {SAID: SAID}, call("tools/list", id=SAID), call("tools/list", id={SAID: SAID})):
        yield json.dumps(each).encode()
    for params in (SAID, [SAID], {"name": 5, "arguments": SAID}, {"name": "save_memory", "arguments": SAID}):
        yield json.dumps(call("tools/call", params)).encode()
    for method in ("prompts/get", "resources/read", "completion/complete", "logging/setLevel", "initialize", SAID):
        given = {"name": SAID, "uri": f"mem://{SAID}", "level": SAID, "ref": {"type": SAID}, "protocolVersion": SAID}
        yield json.dumps(call(method, given)).encode()
        yield json.dumps(call(method, {"arguments": {SAID: SAID}, "_meta": SAID, **given})).encode()
    for method in ("notifications/progress", "notifications/cancelled", SAID):
        yield json.dumps({"jsonrpc": "2.0", "method": method, "params": {SAID: SAID, "reason": 5}}).encode()


def call(method: str, params: Any = None, *, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params is not None else {})}


def test_no_malformed_envelope_is_quoted_by_any_log(app: Flask, web: Flask, heard: Heard) -> None:
    made = open_door(web.test_client(), "ezra")
    headers = {"Authorization": f"Bearer {made.token}", "Accept": "application/json, text/event-stream"}
    with serving(web) as site:
        for body in envelopes():
            for more in ({}, {"Mcp-Protocol-Version": "2025-11-25"}, {"Mcp-Method": "quokkazanzibar"}):
                sent = headers | {"Content-Type": "application/json"} | more
                assert httpx.post(f"{site.url}/mcp", content=body, headers=sent, timeout=20).status_code < 500
    with web.app_context():
        db.engine.dispose()
    said = heard()
    assert b"library=mcp." in said, "no failure of the library was told at all"
    assert_nowhere(said, "what was logged and printed")
    assert_nowhere_at_rest(app)


def test_a_library_s_traceback_tells_a_kind_and_a_place_and_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    """As when a request breaks outside of every handler of ours."""
    configured = _log_configuration("DEBUG")["formatters"]["line"]
    formatter = configured["()"](configured["fmt"])
    with pytest.raises(KeyError) as caught:
        {}[SAID]
    error = (caught.type, caught.value, caught.tb)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "x", 1, "Exception", None, error)
    line = formatter.format(record)
    assert "KeyError at tests/api/test_envelopes.py:" in line
    assert_nowhere(line.encode(), "the line")
