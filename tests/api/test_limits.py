"""What the door takes: so many requests, so many bytes, JSON objects only; all else is a problem document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy.exc import OperationalError

from app.api.operations import OPERATIONS
from tests.api.conftest import Door, issue
from tests.api.looking import NOBODY, assert_refused, unchanged
from tests.support.canary import assert_nowhere, canary
from tests.support.pages import Site, serving
from tests.views.test_hardening import Endless, assert_closed


def limited(web: Flask, rate: str, **others: Any) -> None:
    web.extensions["settings"] = web.extensions["settings"].model_copy(update={"api_rate": rate, **others})
    web.extensions.pop("api_throttle", None)


@pytest.fixture
def site(web: Flask) -> Iterator[Site]:
    with serving(web) as made:
        yield made


def test_a_token_may_send_so_many_requests_and_is_told_when_to_go_on(web: Flask, door: Door) -> None:
    limited(web, "3/hour")
    for _ in range(3):
        door.get("/me")
    for method, path, body in (("GET", "/me", None), ("POST", "/memories", {"content": "x"}), ("GET", "/export", None)):
        answer = unchanged(lambda method=method, path=path, body=body: door(method, path, body))
        assert_refused(answer, 429, "rate_limited", "3 per 1 hour", "Nothing was done")
        assert 0 < int(answer.headers["Retry-After"]) <= 3600


def test_a_limit_is_each_token_s_own_and_refused_ones_use_up_nobody_s(web: Flask, door: Door) -> None:
    second = Door(door.client, door.agent, issue(door.agent))
    limited(web, "2/hour")
    for _ in range(5):
        assert door("GET", "/me", headers={"Authorization": f"Bearer {door.token}x"}).status_code == 401
    for each in (door, second):
        assert [each("GET", "/me").status_code for _ in range(3)] == [200, 200, 429]


def test_what_is_refused_counts_too(web: Flask, door: Door) -> None:
    limited(web, "2/hour")
    codes = [door("POST", "/memories", {}).status_code for _ in range(3)]
    assert codes == [422, 422, 429]


def test_the_tools_share_the_limit(web: Flask, site: Site, door: Door) -> None:
    limited(web, "2/hour")
    said = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Accept": "application/json, text/event-stream", "Authorization": f"Bearer {door.token}"}
    answers = [httpx.post(f"{site.url}/mcp", json=said, headers=headers) for _ in range(3)]

    assert [each.status_code for each in answers] == [200, 200, 429]
    assert int(answers[2].headers["Retry-After"]) > 0
    assert door("GET", "/me").status_code == 429


def test_a_broker_that_is_away_does_not_close_the_door(web: Flask, door: Door) -> None:
    """Then each process counts for itself."""
    limited(web, "2/hour", redis_url="redis://127.0.0.1:1/0")
    assert [door("GET", "/me").status_code for _ in range(3)] == [200, 200, 429]


@pytest.mark.parametrize("path", ["/memories", "/refinements", "/settings/system_prompt"])
def test_a_body_too_large_is_refused_before_it_is_read(web: Flask, door: Door, path: str) -> None:
    method = "PUT" if path.startswith("/settings") else "POST"
    body = Endless()
    sent = {"wsgi.input": body, "CONTENT_LENGTH": "1000001", "CONTENT_TYPE": "application/json"}
    answer = unchanged(lambda: door(method, path, environ_overrides=sent))

    assert_refused(answer, 413, "request_entity_too_large", "Nothing was written")
    assert body.taken == 0


@pytest.mark.parametrize(("path", "most"), [("/conversations", 4_000_000), ("/imports", 64_000_000)])
def test_what_has_to_be_large_may_be_larger(door: Door, path: str, most: int) -> None:
    for length, status in ((most + 1, 413), (0, 422)):
        sent = {"wsgi.input": Endless(), "CONTENT_LENGTH": str(length), "CONTENT_TYPE": "application/json"}
        assert door("POST", path, environ_overrides=sent).status_code == status
    padded = json.dumps({"data": "One line.", "format": "text"}).encode() + b" " * 3_000_000
    assert door("POST", "/imports", data=padded).status_code == 202


def test_a_stranger_s_body_is_not_read_at_all(client: FlaskClient) -> None:
    body = Endless()
    sent = {"wsgi.input": body, "CONTENT_LENGTH": "900000", "CONTENT_TYPE": "application/json"}
    assert client.post("/api/v1/memories", environ_overrides=sent).status_code == 401
    assert body.taken == 0


MALFORMED = [
    b"{", b'{"content": "x"', b"content=x", b"\xff\xfe", b'{"content": "\xff"}', b"[]", b'"x"', b"7", b"null", b"NaN",
    b'{"content": "a", "content": "b"}', b'{"content": "x", "tags": [{"a": 1, "a": 2}]}', b"[" * 100_000,
    b'{"content": ' * 50_000, b'{"content": "x"} {}', b'\xef\xbb\xbf{"content": "x"}', b"{'content': 'x'}",
    b'{"content": ' + b"1" * 5000 + b"}", '{"content": "x"}'.encode("utf-16"),
]  # fmt: skip


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_no_json_object_is_refused_whole(door: Door, body: bytes) -> None:
    for method, path in (("POST", "/memories"), ("POST", "/refinements"), ("PUT", "/settings/system_prompt")):
        answer = unchanged(lambda method=method, path=path: door(method, path, data=body))
        assert_refused(answer, 400, "malformed", "Nothing was written")


def test_keys_that_differ_only_when_escaped_are_the_same_key(door: Door) -> None:
    answer = door("POST", "/memories", data=rb'{"content": "a", "c\u006fntent": "b"}')
    assert_refused(answer, 400, "malformed")


def test_a_body_in_pieces_is_refused_and_never_taken_for_an_empty_one(site: Site, door: Door) -> None:
    """An empty body would ask for a full refinement where one of exact copies was meant."""
    door.save("Ann likes tea.")
    headers = {"Authorization": f"Bearer {door.token}"}
    answer = httpx.post(
        f"{site.url}/api/v1/refinements", content=iter([b'{"mode": ', b'"dedup_only"}']), headers=headers
    )

    assert (answer.status_code, answer.json()["code"]) == (411, "length_required")
    assert door.get("/refinements")["refinements"] == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream", ""])
def test_json_is_json_whatever_it_calls_itself(door: Door, kind: str) -> None:
    answer = door("POST", "/memories", data=b'{"content": "Mine."}', content_type=kind)
    assert (answer.status_code, answer.json["content"]) == (201, "Mine.")


def test_a_form_is_none(door: Door) -> None:
    answer = unchanged(lambda: door("POST", "/memories", data={"content": "Mine."}))
    assert_refused(answer, 400, "malformed")


def test_no_address_and_no_method_is_answered_with_a_page(door: Door, client: FlaskClient) -> None:
    for path in (
        "",
        "/",
        "/nowhere",
        "/memories/",
        "/memories/x",
        "/memories/1/2",
        "/../memories",
        "//",
        "/settings/a/b",
    ):
        for who in (door, lambda method, path: client.open(f"/api/v1{path}", method=method)):
            for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
                answer = who(method, path)
                assert answer.status_code in (404, 405), (method, path)
                assert answer.content_type == "application/problem+json", (method, path)
                assert_closed(answer.headers, path)


def test_another_method_is_refused_and_told_which_there_are(door: Door) -> None:
    values: dict[str, object] = {"memory_id": 1, "field": "name"}
    allowed: dict[str, set[str]] = {}
    for operation in OPERATIONS:
        path = operation.path.format(**({operation.at.name: NOBODY} if operation.at else {}) | values)
        allowed.setdefault(path, set()).add(operation.method)
    for path, methods in allowed.items():
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - methods:
            answer = unchanged(lambda method=method, path=path: door(method, path))
            assert_refused(answer, 405, "method_not_allowed")
            assert methods <= set(answer.headers["Allow"].split(", "))


def test_head_is_get_without_a_body_and_options_tell_methods_only(door: Door) -> None:
    door.save("Mine.")
    for path in ("/memories", "/context", "/export", "/me"):
        whole, head = door("GET", path), unchanged(lambda path=path: door("HEAD", path))
        assert (head.status_code, head.data, head.content_type) == (200, b"", whole.content_type)
        options = unchanged(lambda path=path: door("OPTIONS", path))
        assert (options.status_code, options.data) == (200, b"")
        assert "GET" in options.headers["Allow"]


def test_a_query_argument_that_stands_twice_or_is_unknown(door: Door) -> None:
    assert_refused(door("GET", "/memories?limit=1&limit=2"), 422, "invalid", "limit")
    assert_refused(door("GET", "/me?verbose=1"), 422, "invalid", "verbose")


@pytest.mark.parametrize("number", ["1_0", "%201", "+1", "1.0", "1e1", "0x1", "١", "true"])
def test_numbers_in_an_address_are_plain_digits(door: Door, number: str) -> None:
    assert_refused(door("GET", f"/memories?limit={number}"), 422, "invalid", "limit")


def test_what_breaks_inside_says_a_kind_and_a_place_and_no_word_of_what_was_sent(
    web: Flask, door: Door, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    errors = {
        500: ValueError(canary("raised")),
        503: OperationalError(f"SELECT '{canary('raised')}'", {}, Exception(canary("raised"))),
    }
    for status, error in errors.items():

        def broken(*_: object, error: Exception = error, **__: object) -> None:
            raise error from RuntimeError(canary("raised"))

        monkeypatch.setattr("app.api.context.load_context", broken)
        monkeypatch.setattr("app.models.Memory.save", broken)
        for answer in (door("GET", "/context"), door("POST", "/memories", {"content": canary("sent")})):
            assert_refused(answer, status, "unexpected" if status == 500 else "unavailable")
            assert_nowhere(answer.data, "the answer")
    said = "".join(capfd.readouterr())
    assert "ValueError" in said
    assert_nowhere(said.encode(), "what was logged")


def test_the_tools_say_in_a_sentence_that_the_database_is_away(
    site: Site, door: Door, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def away(_: object) -> None:
        raise OperationalError("SELECT", {}, Exception(canary("raised")))

    monkeypatch.setattr("app.api.mcp_endpoint.admit_caller", away)
    answer = httpx.post(f"{site.url}/mcp", json={}, headers={"Authorization": f"Bearer {door.token}"})

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert answer.headers["Retry-After"] == "1"
    said = "".join(capfd.readouterr())
    assert "database unavailable" in said
    assert "Traceback" not in said
    assert_nowhere(said.encode(), "what was logged")
