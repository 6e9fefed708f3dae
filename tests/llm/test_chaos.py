"""The adapter and its retries against a server that was made to break clients, judged by that server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from llmock.pytest_plugin import LLMock

from app.llm.client import ModelClient, ModelError, ModelErrorKind, Reply
from app.llm.litellm import LiteLLMClients
from app.llm.retry import complete_with_retries
from tests.llm.conftest import DELETE

QUESTION = [{"role": "user", "content": "Which memory is redundant?"}]
Persist = Callable[..., Reply]


@pytest.fixture
def client(llmock: LLMock) -> Iterator[ModelClient]:
    made = LiteLLMClients().for_model("openai/gpt-4o", api_base=llmock.base_url("openai"))
    yield made
    made.close()


@pytest.fixture
def persist(client: ModelClient) -> Persist:
    """Ask with retries on a real clock, with short pauses."""

    def ask(*, step_timeout: float = 5.0, seconds: float = 10.0) -> Reply:
        end = time.monotonic() + seconds
        return complete_with_retries(
            client,
            QUESTION,
            [DELETE],
            step_timeout=step_timeout,
            time_left=lambda: end - time.monotonic(),
            pause=time.sleep,
            base=0.05,
        )

    return ask


def test_it_waits_as_long_as_a_rate_limit_asks(llmock: LLMock, persist: Persist) -> None:
    llmock.rate_limit(times=2, retry_after=0.3).reply("Memory 3.")
    assert persist().text == "Memory 3."
    assert len(llmock.requests) == 3
    llmock.assert_resilient(strict=True)


def test_it_does_not_wait_longer_than_it_has(llmock: LLMock, persist: Persist) -> None:
    llmock.rate_limit(times=None, retry_after=60)
    began = time.monotonic()
    with pytest.raises(ModelError) as caught:
        persist()
    assert (caught.value.kind, caught.value.retry_after) == (ModelErrorKind.RATE_LIMITED, 60.0)
    assert time.monotonic() - began < 5
    assert len(llmock.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(529, ModelErrorKind.OVERLOADED), (503, ModelErrorKind.OVERLOADED), (500, ModelErrorKind.SERVER_ERROR)],
)
def test_an_outage_gets_three_attempts(llmock: LLMock, persist: Persist, status: int, kind: ModelErrorKind) -> None:
    llmock.fail(status, times=None)
    with pytest.raises(ModelError) as caught:
        persist()
    assert (caught.value.kind, caught.value.status, len(llmock.requests)) == (kind, status, 3)
    llmock.assert_resilient()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_will_not_change_gets_one(llmock: LLMock, persist: Persist, status: int) -> None:
    llmock.fail(status, times=None)
    with pytest.raises(ModelError):
        persist()
    assert len(llmock.requests) == 1
    llmock.assert_resilient()


def test_a_prompt_that_is_too_long_gets_one(llmock: LLMock, persist: Persist) -> None:
    llmock.context_overflow()
    with pytest.raises(ModelError) as caught:
        persist()
    assert caught.value.kind is ModelErrorKind.CONTEXT_TOO_LONG
    llmock.assert_resilient()


def test_a_slow_reply_is_given_up_and_asked_for_again(llmock: LLMock, persist: Persist) -> None:
    llmock.delay(3, times=1).reply("Memory 3.", times=None)
    assert persist(step_timeout=0.3).text == "Memory 3."


@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
def test_a_broken_call_reaches_the_loop_as_it_came(llmock: LLMock, persist: Persist, kind: str) -> None:
    llmock.break_tool_call(kind)
    (call,) = persist().tool_calls
    assert (call.name == "delete_memory") == (kind != "unknown_tool")
    assert len(llmock.requests) == 1
