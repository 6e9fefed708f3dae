"""One call of a model in a thread of its own: its reply, its error, or freedom at the deadline."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from app.llm import body, wire
from app.llm.client import ModelError, ModelErrorKind
from app.llm.exchange import Exchange, LeftBehind, current_exchange, in_time
from app.llm.litellm import LiteLLMClients
from tests.llm.conftest import Ask
from tests.support.model_server import ModelServer, ServerReply, completion, error, html, text

QUESTION = [{"role": "user", "content": "?"}]


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """Set at the end of the test, so that no thread outlives it."""
    event = threading.Event()
    yield event
    event.set()


def test_it_returns_what_the_call_returns_and_raises_what_it_raises() -> None:
    assert in_time(Exchange.within(5), lambda: threading.current_thread().name) == "model-call"
    with pytest.raises(KeyError, match="this"):
        in_time(Exchange.within(5), lambda: {}["this"])


def test_a_time_out_of_the_call_itself_is_not_taken_for_the_deadline() -> None:
    def gives_up() -> None:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        in_time(Exchange.within(5), gives_up)


def test_who_asks_is_free_at_the_deadline_and_the_thread_is_tidied_up_after(never: threading.Event) -> None:
    began, tidied = time.monotonic(), threading.Event()
    with pytest.raises(LeftBehind) as caught:
        in_time(Exchange.within(0.1), never.wait)
    assert time.monotonic() - began < 2
    caught.value.then(tidied.set)
    assert not tidied.is_set()
    never.set()
    assert tidied.wait(5)


def test_the_exchange_is_known_in_its_thread_and_nowhere_else() -> None:
    exchange = Exchange.within(5)
    assert in_time(exchange, current_exchange) is exchange
    assert current_exchange() is None


def test_a_name_server_that_never_answers_holds_nobody(
    server: ModelServer, never: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next call of the same client goes over connections of its own."""
    look_up, hangs = socket.getaddrinfo, True

    def answer(*args: object, **options: object) -> object:
        if hangs:
            never.wait()
        return look_up(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    client = LiteLLMClients().for_model("openai/scripted", api_base=server.base_url)
    began = time.monotonic()
    with pytest.raises(ModelError) as caught:
        client.complete(QUESTION, timeout=0.3)
    assert time.monotonic() - began < 2.3
    assert (caught.value.kind, caught.value.__context__) == (ModelErrorKind.TIMEOUT, None)
    hangs = False
    server.script(text("YES"))
    assert client.complete(QUESTION, timeout=10).text == "YES"
    client.close()


def test_all_addresses_of_a_name_are_tried_within_one_deadline(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(server.base_url.rsplit(":", 1)[1].partition("/")[0])
    look_up = socket.getaddrinfo

    def two_addresses(host: object, *args: object, **options: object) -> object:
        if host != "a-model.test":
            return look_up(host, *args, **options)  # type: ignore[arg-type]
        return [look_up(each, port, type=socket.SOCK_STREAM)[0] for each in ("127.0.0.9", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", two_addresses)
    server.script(text("YES"))
    client = LiteLLMClients().for_model("openai/scripted", api_base=f"http://a-model.test:{port}/v1")
    assert client.complete(QUESTION, timeout=10).text == "YES"
    client.close()


@pytest.mark.parametrize("model", ["openai/m", "baseten/m", "lm_studio/m", "anthropic/m"])
@pytest.mark.parametrize("kind", ["answers 500", "asks to be asked again", "hangs up"])
def test_one_attempt_is_one_request_whatever_the_provider_retries(
    server: ModelServer, ask: Ask, model: str, kind: str
) -> None:
    reply = {
        "answers 500": error(500),
        "asks to be asked again": error(500, headers={"x-should-retry": "true", "retry-after-ms": "1"}),
        "hangs up": ServerReply(text("YES").body, sent_bytes=3),
    }[kind]
    with pytest.raises(ModelError):
        ask(reply, reply, reply, model=model)
    assert len(server.requests) == 1


def test_no_reply_is_asked_for_in_a_form_that_can_grow(server: ModelServer, ask: Ask) -> None:
    ask(text("YES"))
    assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("encoding", ["gzip, gzip", "deflate", "br", "gzip, identity"])
def test_what_is_packed_in_another_way_is_no_reply(ask: Ask, encoding: str) -> None:
    packed = ServerReply(gzip.compress(text("YES").body), headers={"Content-Encoding": encoding})
    with pytest.raises(ModelError, match="not with a chat reply: it is packed in a way that was not asked for"):
        ask(packed)


def test_what_grows_beyond_a_reply_is_not_unpacked_to_its_end(ask: Ask) -> None:
    packed = ServerReply(gzip.compress(text("x" * 10_000_000).body), headers={"Content-Encoding": "gzip"})
    with pytest.raises(ModelError, match="not with a chat reply: it is longer than 2 MB"):
        ask(packed)


PACKED = gzip.compress(b"No.")


@pytest.mark.parametrize("packed", [b"no gzip", PACKED, PACKED[:-9]], ids=["not packed", "packed", "cut off"])
def test_a_packed_error_keeps_its_status(ask: Ask, packed: bytes) -> None:
    with pytest.raises(ModelError) as caught:
        ask(ServerReply(packed, 503, {"Content-Encoding": "gzip"}))
    assert (caught.value.kind, caught.value.status) == (ModelErrorKind.OVERLOADED, 503)


def test_a_reply_of_too_many_parts_is_none_however_short(ask: Ask) -> None:
    with pytest.raises(ModelError, match=r"it has more than 2,000 parts"):
        ask(completion({"content": "YES", "annotations": [{}] * 2000}))
    assert ask(text("[{,}]" * 10_000)).text == "[{,}]" * 10_000


@pytest.mark.parametrize(
    ("document", "parts"),
    [(b'{"a": [1, 2]}', 3), (b'["[[[", "\\\\", "\\"[,"]', 3), (b'"[[[[', 4), (b"", 0), (b"[[[", 3)],
)
def test_parts_are_counted_outside_of_texts(document: bytes, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "MAX_PARTS", parts)
    assert not body.has_too_many_parts(document)
    monkeypatch.setattr(body, "MAX_PARTS", parts - 1)
    assert body.has_too_many_parts(document)


def test_what_asks_no_model_is_sent_as_ever(server: ModelServer) -> None:
    server.script(ServerReply(b"", 302, {"Location": "/elsewhere"}), html(200, "x" * 10))
    with httpx.Client() as client:
        assert client.post(server.base_url).headers["location"] == "/elsewhere"
        assert client.post(server.base_url).content == b"x" * 10
    assert server.requests[0].headers["accept-encoding"] != "identity"


def test_every_client_sends_through_the_one_place_that_bounds() -> None:
    """This fails when httpx or its pool moves what `wire` holds on to."""
    assert httpx.HTTPTransport.handle_request is wire._send_bounded
    with httpx.Client() as client:
        transport = client._transport
        assert isinstance(transport, httpx.HTTPTransport)
        assert isinstance(transport._pool._network_backend, wire.httpcore.SyncBackend)
        with pytest.raises(httpx.ConnectError):
            in_time(Exchange.within(5), lambda: client.get("http://127.0.0.1:1"))
        assert transport._pool._network_backend is wire._BACKEND
