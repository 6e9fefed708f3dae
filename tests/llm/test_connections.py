"""Connections that pass from one refinement to the next: what they save, and that nothing else passes with them."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpcore
import pytest

from app.llm import connections, wire
from app.llm.client import ModelError, ModelErrorKind
from app.llm.connections import MOST_KEPT, Lending, Reached
from app.llm.litellm import LiteLLMClient, LiteLLMClients
from tests.support.certificates import HERE, certificate, speak_tls
from tests.support.model_server import ModelServer, ServedRequest, ServerReply, cut_off, error, text

HELLO = [{"role": "user", "content": "Hello"}]
MODELS = ["openai/scripted", "hosted_vllm/scripted"]


@pytest.fixture(autouse=True)
def lending(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lending]:
    """None of another test's connections."""
    lending = Lending()
    monkeypatch.setattr(connections, "LENDING", lending)
    yield lending
    for kept in lending._kept.values():
        for client in kept:
            client.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The port of each connection that is made."""
    ports: list[int] = []
    connect = wire._Backend.connect_tcp

    def note(self: wire._Backend, host: str, port: int, *rest: Any, **more: Any) -> Any:
        ports.append(port)
        return connect(self, host, port, *rest, **more)

    monkeypatch.setattr(wire._Backend, "connect_tcp", note)
    return ports


def client(server: ModelServer, model: str, api_key_env: str | None = None) -> LiteLLMClient:
    return LiteLLMClients().for_model(model, api_base=server.base_url, api_key_env=api_key_env)


def ask_once(server: ModelServer, model: str, api_key_env: str | None = None) -> None:
    asked = client(server, model, api_key_env)
    try:
        asked.complete(HELLO, timeout=5)
    finally:
        asked.close()


@pytest.mark.parametrize("model", MODELS)
def test_the_next_refinement_gets_the_connection_of_the_one_before(
    server: ModelServer, made: list[int], model: str
) -> None:
    server.always(text("YES"))
    for _ in range(3):
        ask_once(server, model)
    assert len(made) == 1


def test_who_waits_for_a_reply_holds_little_room_for_it(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds wait at a time, and Python makes all the room that a read may take before it begins."""
    rooms: list[int] = []
    read = httpcore._backends.sync.SyncStream.read

    def note(self: Any, max_bytes: int, timeout: float | None = None) -> bytes:
        rooms.append(max_bytes)
        return read(self, max_bytes, timeout)

    monkeypatch.setattr(httpcore._backends.sync.SyncStream, "read", note)
    long = "I remember the harbour. " * 4_000
    server.always(text(long))
    with closing(client(server, MODELS[0])) as asked:
        assert asked.complete(HELLO, timeout=5).text == long
    assert max(rooms) <= 8 * 1024 < len(long)


def test_over_tls_what_is_longer_than_one_read_comes_whole_and_the_connection_stays(
    tmp_path: Path, made: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of TLS holds twice as much as is read at once: the rest of it waits where no socket shows it."""
    shown = certificate(tmp_path / "shown.pem", HERE)
    monkeypatch.setattr(wire, "_make_tls_context", lambda: ssl.create_default_context(cafile=shown))
    server, long = ModelServer(), "I remember the harbour. " * 4_000
    speak_tls(server._http, shown)
    with server.always(text(long)):
        url = server.base_url.replace("http:", "https:")
        for _ in range(2):
            with closing(LiteLLMClients().for_model(MODELS[0], api_base=url)) as asked:
                assert asked.complete(HELLO, timeout=5).text == long
        connections.LENDING._drop_one().close()
    assert len(made) == 1


@pytest.mark.parametrize("model", MODELS)
def test_those_at_the_same_time_share_none(server: ModelServer, made: list[int], model: str) -> None:
    both = threading.Barrier(2)

    def when_both_ask(_: ServedRequest) -> ServerReply:
        both.wait(5)
        return text("YES")

    server.always(when_both_ask)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: ask_once(server, model), range(2)))
    assert len(made) == 2


@pytest.mark.parametrize("model", MODELS)
def test_another_key_gets_another_connection_and_no_header_passes_on(
    server: ModelServer, made: list[int], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANN_API_KEY", "key-of-ann")
    monkeypatch.setenv("BOB_API_KEY", "key-of-bob")
    server.always(text("YES"))
    for variable in ("ANN_API_KEY", "BOB_API_KEY", None):
        ask_once(server, model, variable)
    assert len(made) == 3
    sent = [request.headers["authorization"] for request in server.requests]
    assert sent[:2] == ["Bearer key-of-ann", "Bearer key-of-bob"]
    assert "key-of" not in str(server.requests[2].headers)


def test_another_server_gets_another_connection(server: ModelServer, made: list[int]) -> None:
    with ModelServer() as other:
        for each in (server, other):
            each.always(text("YES"))
            ask_once(each, MODELS[0])
        assert made == [int(each.base_url.rsplit(":", 1)[1].split("/")[0]) for each in (server, other)]


@pytest.mark.parametrize("model", MODELS)
def test_no_cookie_passes_on(server: ModelServer, made: list[int], model: str) -> None:
    server.script(ServerReply(text("YES").body, headers={"Set-Cookie": "who=ann; Path=/"}), text("YES"))
    ask_once(server, model)
    ask_once(server, model)
    assert len(made) == 1
    assert "cookie" not in server.requests[1].headers


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (cut_off(text("YES")), ModelErrorKind.UNREACHABLE),
        (error(500, "Broken."), ModelErrorKind.SERVER_ERROR),
        (ServerReply(text("YES").body, delay=2.0), ModelErrorKind.TIMEOUT),
    ],
    ids=["cut off", "refused", "too late"],
)
def test_what_went_wrong_on_one_is_no_others_concern(
    server: ModelServer, made: list[int], lending: Lending, model: str, trouble: ServerReply, kind: ModelErrorKind
) -> None:
    server.script(text("YES"), trouble, text("YES"), text("YES"))
    asked, other = client(server, model), client(server, model)
    asked.complete(HELLO, timeout=5)
    with pytest.raises(ModelError) as failed:
        asked.complete(HELLO, timeout=0.3 if trouble.delay else 5)
    assert failed.value.kind is kind
    asked.close()
    assert not lending._kept
    assert other.complete(HELLO, timeout=5).text == "YES"
    other.close()
    ask_once(server, model)
    assert len(made) == 2


def test_one_that_is_left_behind_is_never_lent_again_even_if_its_reply_comes_at_last(
    server: ModelServer, lending: Lending, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, closed = threading.Event(), threading.Event()
    asked = client(server, MODELS[0])
    server.always(text("YES"))
    asked.complete(HELLO, timeout=5)
    line, route = asked._line, asked._line._route
    assert route is not None
    assert route.wire is not None
    ask, close = line._ask, route.wire.close

    def ask_late(*given: Any) -> Any:
        held.wait(10)
        return ask(*given)

    def note_close() -> None:
        close()
        closed.set()

    monkeypatch.setattr(line, "_ask", ask_late)
    monkeypatch.setattr(route.wire, "close", note_close)
    with pytest.raises(ModelError):
        asked.complete(HELLO, timeout=0.1)
    held.set()
    assert closed.wait(10)
    asked.close()
    assert not lending._kept


def test_a_deadline_belongs_to_its_request_and_not_to_the_connection(server: ModelServer, made: list[int]) -> None:
    server.script(text("YES"), ServerReply(text("YES").body, delay=0.8))
    first, second = client(server, MODELS[0]), client(server, MODELS[0])
    first.complete(HELLO, timeout=0.5)
    first.close()
    assert second.complete(HELLO, timeout=5).text == "YES"
    second.close()
    assert len(made) == 1


def test_only_so_many_are_kept_and_the_one_kept_longest_goes(lending: Lending) -> None:
    first, second = Reached("openai", "one", None), Reached("openai", "two", None)
    clients = [lending.lend(first) for _ in range(MOST_KEPT)]
    for each in clients:
        lending.take_back(first, each)
    more = lending.lend(second)
    lending.take_back(second, more)
    assert [each.is_closed for each in clients] == [True] + [False] * (MOST_KEPT - 1)
    assert lending.lend(second) is more


def test_one_that_was_given_back_is_lent_to_one_only(lending: Lending) -> None:
    reached = Reached("openai", "one", None)
    lending.take_back(reached, lending.lend(reached))
    first, second = lending.lend(reached), lending.lend(reached)
    assert first is not second
    first.close()
    second.close()


def test_what_it_is_kept_by_shows_no_key() -> None:
    assert "secret" not in repr(Reached("openai", "http://127.0.0.1:1/v1", "secret"))


def test_a_name_without_a_price_is_looked_for_once(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from litellm import utils

    looked: list[str] = []
    names: Callable[..., Any] = utils.get_potential_model_names

    def note(model: str, *rest: Any, **more: Any) -> Any:
        looked.append(model)
        return names(model, *rest, **more)

    monkeypatch.setattr(utils, "get_potential_model_names", note)
    server.always(text("YES"))
    ask_once(server, "openai/nobody-knows-this-one")
    assert looked
    looked.clear()
    ask_once(server, "openai/nobody-knows-this-one")
    assert not looked
