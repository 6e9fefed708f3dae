"""What OpenAI's client is used for without its own path: requests and errors are the SDK's."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai import APIConnectionError, APIStatusError, APITimeoutError, OpenAI

from app.llm.openai_chat import ChatClient
from tests.llm.conftest import DELETE, Ask
from tests.support.model_server import ModelServer, text

BODY = {"model": "scripted", "messages": [{"role": "user", "content": "Ist Größe “egal”?"}], "tools": [DELETE]}


def _client(base: str, answer: Any) -> OpenAI:
    wire = httpx.Client(transport=httpx.MockTransport(answer))
    return OpenAI(api_key="key", base_url=base, organization="org", max_retries=0, http_client=wire)


@pytest.mark.parametrize(
    "base", ["http://127.0.0.1:1/v1", "http://127.0.0.1:1", "http://model_server:1/v1/", "http://[::1]:1/v1?version=2"]
)
def test_a_request_is_the_sdks_own_but_for_what_it_tells_of_itself(base: str) -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"choices": []})

    sdk = _client(base, answer)
    sdk.post("/chat/completions", cast_to=httpx.Response, body=BODY, options={"timeout": 7})
    chat = ChatClient(sdk)
    for _ in range(2):
        chat.chat.completions.with_raw_response.create(**BODY, timeout=7)
    plain, *ours = sent
    assert any(name.startswith("x-stainless-") for name in plain.headers)
    for own in ours:
        told = {name: value for name, value in plain.headers.items() if not name.startswith("x-stainless-")}
        assert dict(own.headers) == told
        assert (own.method, own.url, own.content) == (plain.method, plain.url, plain.content)
        assert own.extensions == plain.extensions


def test_what_litellm_adds_to_a_request_goes_along_and_stays_with_it() -> None:
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"choices": []})

    create = ChatClient(_client("http://127.0.0.1:1/v1", answer)).chat.completions.with_raw_response.create
    create(timeout=1, extra_headers={"X-More": "1"}, extra_query={"b": "2"}, extra_body={"c": 3}, model="m")
    create(timeout=2, model="m")
    first, second = sent
    assert (first.headers["x-more"], first.url.query, first.content) == ("1", b"b=2", b'{"model":"m","c":3}')
    assert ("x-more" in second.headers, second.url.query, second.content) == (False, b"", b'{"model":"m"}')
    assert (first.extensions["timeout"]["read"], second.extensions["timeout"]["read"]) == (1, 2)


@pytest.mark.parametrize("status", [302, 304, 400, 401, 404, 429, 500, 503])
def test_a_status_raises_what_the_sdk_raises(status: int) -> None:
    sdk = _client("http://127.0.0.1:1/v1", lambda _: httpx.Response(status, json={"error": {"message": "No."}}))
    with pytest.raises(APIStatusError) as expected:
        sdk.post("/chat/completions", cast_to=httpx.Response, body=BODY)
    with pytest.raises(APIStatusError) as raised:
        ChatClient(sdk).chat.completions.with_raw_response.create(**BODY, timeout=7)
    assert type(raised.value) is type(expected.value)
    assert (str(raised.value), raised.value.status_code) == (str(expected.value), status)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (httpx.ReadTimeout("late"), APITimeoutError),
        (httpx.ConnectError("gone"), APIConnectionError),
        (ValueError("odd"), APIConnectionError),
    ],
)
def test_a_fault_of_the_network_raises_what_the_sdk_raises(fault: Exception, expected: type[Exception]) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise fault

    with pytest.raises(expected) as raised:
        ChatClient(_client("http://127.0.0.1:1/v1", answer)).chat.completions.with_raw_response.create(timeout=7)
    assert type(raised.value) is expected
    assert raised.value.__cause__ is fault


def test_a_server_learns_nothing_of_the_workers_machine(server: ModelServer, ask: Ask) -> None:
    ask(text("YES"))
    assert not [name for name in server.requests[0].headers if name.startswith("x-stainless")]
