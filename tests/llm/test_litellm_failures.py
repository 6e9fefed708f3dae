"""Every way in which a model can fail to answer: its kind, its status, one hit, and no word of the prompt."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from app.llm.client import ModelError, ModelErrorKind
from app.llm.failures import seconds_to_wait
from tests.llm.conftest import DELETE, Ask
from tests.support.model_server import (
    ModelServer,
    ServerReply,
    completion,
    cut_off,
    error,
    hang,
    html,
    rate_limited,
    recorded,
    text,
)

CANARY = "the-lighthouse-keeper-wept"
PROMPT = [{"role": "system", "content": f"I am {CANARY}."}, {"role": "user", "content": f"Ledger: {CANARY}"}]
OVERFLOW = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
TOO_LONG = error(400, f"{OVERFLOW} {CANARY}", code="context_length_exceeded")
NEVER = threading.Event

STATUSES = [
    (400, ModelErrorKind.BAD_REQUEST),
    (401, ModelErrorKind.UNAUTHORIZED),
    (402, ModelErrorKind.UNAUTHORIZED),
    (403, ModelErrorKind.UNAUTHORIZED),
    (404, ModelErrorKind.NOT_FOUND),
    (408, ModelErrorKind.TIMEOUT),
    (409, ModelErrorKind.BAD_REQUEST),
    (413, ModelErrorKind.CONTEXT_TOO_LONG),
    (422, ModelErrorKind.BAD_REQUEST),
    (429, ModelErrorKind.RATE_LIMITED),
    (500, ModelErrorKind.SERVER_ERROR),
    (502, ModelErrorKind.SERVER_ERROR),
    (503, ModelErrorKind.OVERLOADED),
    (504, ModelErrorKind.TIMEOUT),
    (529, ModelErrorKind.OVERLOADED),
]

NO_CHAT_REPLY = {
    "a page instead of JSON": html(200, f"<p>{CANARY}</p>"),
    "no choices": recorded({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": []}),
    "no choices at all": recorded({"id": "x"}),
    "null": recorded("null"),
    "a list": recorded([1, CANARY]),
    "plain text": recorded(CANARY),
    "nothing": recorded(""),
    "broken JSON": recorded('{"id": "x", "choices": ['),
    "a redirect": ServerReply(b"", 301, {"Location": "/elsewhere"}),
    "choices of nothing": recorded({"id": "x", "choices": [None]}),
    "deep nesting": recorded('{"choices": ' + "[" * 5000),
}


@pytest.mark.parametrize("model", ["openai/scripted", "anthropic/claude-sonnet-4-5", "openrouter/some/model"])
@pytest.mark.parametrize(("status", "kind"), STATUSES)
def test_a_status_becomes_its_kind_with_one_hit(
    server: ModelServer, ask: Ask, model: str, status: int, kind: ModelErrorKind
) -> None:
    failed = failure_of(ask, error(status, f"You said: {CANARY}"), model=model)
    assert (failed.kind, failed.status) == (kind, status)
    assert f"(HTTP {status})" in str(failed)
    assert model in str(failed)
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", NO_CHAT_REPLY)
def test_what_is_no_chat_reply_is_a_server_error_that_points_at_the_address(ask: Ask, name: str) -> None:
    failed = failure_of(ask, NO_CHAT_REPLY[name])
    assert failed.kind is ModelErrorKind.SERVER_ERROR
    assert "not with a chat reply" in str(failed)


@pytest.mark.parametrize(("status", "kind"), [(502, ModelErrorKind.SERVER_ERROR), (403, ModelErrorKind.UNAUTHORIZED)])
def test_an_error_page_keeps_its_status(ask: Ask, status: int, kind: ModelErrorKind) -> None:
    failed = failure_of(ask, html(status, f"<p>{CANARY}</p>"))
    assert (failed.kind, failed.status) == (kind, status)


def test_an_error_inside_of_a_success_counts_as_what_it_says(ask: Ask) -> None:
    failed = failure_of(ask, recorded({"error": {"message": CANARY, "code": 429}}))
    assert failed.kind is ModelErrorKind.RATE_LIMITED


@pytest.mark.parametrize(
    "refusal",
    [
        TOO_LONG,
        error(400, OVERFLOW),
        error(400, "Too much.", code="context_length_exceeded"),
        recorded({"error": {"code": 400, "message": "Too much.", "type": "exceed_context_size_error"}}, status=400),
    ],
)
def test_a_context_overflow_is_not_worth_retrying(ask: Ask, refusal: ServerReply) -> None:
    failed = failure_of(ask, refusal)
    assert (failed.kind, failed.status) == (ModelErrorKind.CONTEXT_TOO_LONG, 400)
    assert not failed.worth_retrying


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/v1", "127.0.0.1:1/v1", "nonsense"])
@pytest.mark.parametrize("model", ["openai/scripted", "anthropic/claude-sonnet-4-5"])
def test_a_server_that_is_not_there_is_unreachable(ask: Ask, model: str, address: str) -> None:
    failed = failure_of(ask, model=model, api_base=address)
    assert (failed.kind, failed.status) == (ModelErrorKind.UNREACHABLE, None)


def test_a_reply_that_breaks_off_is_worth_another_try(ask: Ask) -> None:
    failed = failure_of(ask, cut_off(text(CANARY)))
    assert failed.kind is ModelErrorKind.UNREACHABLE
    assert failed.worth_retrying


def test_a_server_that_hangs_times_out(ask: Ask) -> None:
    failed = failure_of(ask, hang(NEVER()), timeout=0.2)
    assert (failed.kind, failed.status) == (ModelErrorKind.TIMEOUT, None)


def test_a_server_that_drips_is_bounded_as_a_whole(ask: Ask) -> None:
    dripping = ServerReply(text("YES").body, headers={"Content-Type": "application/json"}, drip=0.02)
    began = time.monotonic()
    failed = failure_of(ask, dripping, timeout=0.3)
    assert failed.kind is ModelErrorKind.TIMEOUT
    assert time.monotonic() - began < 3


def test_a_reply_without_end_is_not_read_to_its_end(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    import app.llm.body

    monkeypatch.setattr(app.llm.body, "MAX_REPLY_BYTES", 1000)
    failed = failure_of(ask, text("x" * 100_000))
    assert (failed.kind, failed.status) == (ModelErrorKind.SERVER_ERROR, 200)
    assert "not with a chat reply: it is longer than" in str(failed)
    assert ask(text("x" * 100)).text == "x" * 100


@pytest.mark.parametrize("model", ["openai/scripted", "anthropic/claude-sonnet-4-5"])
def test_the_pause_that_a_server_asks_for_is_kept(ask: Ask, model: str) -> None:
    failed = failure_of(ask, rate_limited(7), model=model)
    assert failed.retry_after == 7.0
    assert "a pause of 7 seconds" in str(failed)


def test_the_error_does_not_outlive_into_the_next_call(server: ModelServer, ask: Ask) -> None:
    from app.llm.litellm import LiteLLMClients

    server.script(rate_limited(7))
    client = LiteLLMClients().for_model("openai/scripted", api_base=server.base_url)
    with pytest.raises(ModelError):
        client.complete(PROMPT, timeout=5)
    server.stop()
    with pytest.raises(ModelError) as caught:
        client.complete(PROMPT, timeout=5)
    client.close()
    assert (caught.value.kind, caught.value.retry_after) == (ModelErrorKind.UNREACHABLE, None)


NOON = datetime(2026, 3, 23, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("2", 2.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        (format_datetime(NOON + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOON - timedelta(days=1), usegmt=True), 0.0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: object, seconds: float | None) -> None:
    assert seconds_to_wait(header, NOON) == seconds


EVERY_FAILURE = {
    **{str(status): error(status, f"You said: {CANARY}") for status, _ in STATUSES},
    **NO_CHAT_REPLY,
    "overflow": TOO_LONG,
    "cut off": cut_off(text(CANARY)),
    "an odd error": recorded({"error": [CANARY]}, status=400),
    "odd message": completion({"content": {"text": CANARY}, "tool_calls": CANARY}),
}


@pytest.mark.parametrize("model", ["openai/scripted", "anthropic/claude-sonnet-4-5"])
@pytest.mark.parametrize("name", EVERY_FAILURE)
def test_no_failure_lets_a_word_of_the_prompt_or_the_reply_out(
    ask: Ask, everything_logged: list[str], capfd: pytest.CaptureFixture[str], name: str, model: str
) -> None:
    failed = failure_of(ask, EVERY_FAILURE[name], model=model)
    shown = [str(failed), repr(failed), repr(failed.args), repr(vars(failed)), failed.sentence]
    assert (failed.__cause__, failed.__context__) == (None, None)
    assert not [line for line in [*shown, *everything_logged, *capfd.readouterr()] if CANARY in line]


@pytest.mark.parametrize("kind", ["hangs", "is not there"])
def test_no_failure_of_the_network_does_either(
    ask: Ask, everything_logged: list[str], capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    gone = {"hangs": None, "is not there": "http://127.0.0.1:1/v1"}[kind]
    failed = failure_of(ask, *([hang(NEVER())] if kind == "hangs" else []), api_base=gone, timeout=0.2)
    assert (failed.__cause__, failed.__context__) == (None, None)
    assert not [line for line in [repr(failed), *everything_logged, *capfd.readouterr()] if CANARY in line]


def test_a_success_logs_neither_what_was_asked_nor_what_was_said(
    ask: Ask, everything_logged: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    reply = ask(text(f"YES, {CANARY}"), messages=PROMPT, tools=[DELETE])
    assert CANARY in reply.text
    assert not [line for line in [repr(reply), *everything_logged, *capfd.readouterr()] if CANARY in line]


def test_not_even_with_the_libraries_own_debug_switches_set(server: ModelServer) -> None:
    server.script(
        text(f"YES, {CANARY}"), error(500, CANARY), completion({"content": [{"type": "text", "text": CANARY}]})
    )
    server.script(completion({"content": "x"}, usage={"completion_tokens": CANARY, "prompt_tokens": [CANARY]}))
    switched_on = {"LITELLM_LOG": "DEBUG", "OPENAI_LOG": "debug", "PYTHONWARNINGS": "always", "PYTHONDEVMODE": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", ASK_FOUR_TIMES, server.base_url, CANARY],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, **switched_on},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["reply", "server_error", "reply", "server_error"]
    assert len(server.requests) == 4
    assert not re.search(CANARY, ran.stdout + ran.stderr)


ASK_FOUR_TIMES = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
from app.llm.client import ModelError
from app.llm.litellm import LiteLLMClients, load_litellm
load_litellm()
client = LiteLLMClients().for_model("openai/scripted", api_base=sys.argv[1])
for _ in range(4):
    try:
        client.complete([{"role": "user", "content": sys.argv[2]}], timeout=10)
        print("reply")
    except ModelError as error:
        logging.exception("It failed")
        print(error.kind)
client.close()
"""


@pytest.fixture
def everything_logged() -> Iterator[list[str]]:
    """Each record of every logger at every level, rendered with its exception."""
    lines: list[str] = []
    formatter = logging.Formatter("%(message)s %(args)s")

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(formatter.format(record))

    root, handler = logging.getLogger(), Keep(level=0)
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield lines
    root.setLevel(before)
    root.removeHandler(handler)


def failure_of(ask: Ask, *scripted: ServerReply, **options: object) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(*scripted, messages=PROMPT, **options)
    return caught.value
