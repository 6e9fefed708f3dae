"""Retries: three attempts in all, with growing pauses, never beyond what is left."""

from __future__ import annotations

from typing import Any

import pytest

from app.llm.client import ModelError, ModelErrorKind, Reply
from app.llm.retry import FailedAttempt, complete_with_retries
from tests.support.scripted import Scripted, ScriptedClient, say

QUESTION = [{"role": "user", "content": "?"}]
RETRIED = [
    ModelErrorKind.RATE_LIMITED,
    ModelErrorKind.OVERLOADED,
    ModelErrorKind.SERVER_ERROR,
    ModelErrorKind.TIMEOUT,
    ModelErrorKind.UNREACHABLE,
]


class Clock:
    """Time left, which pauses use up, and which every attempt uses up by `cost`."""

    def __init__(self, left: float, cost: float = 0.0) -> None:
        self.left = left
        self.cost = cost
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.left -= seconds

    def time_left(self) -> float:
        return self.left


def ask(
    client: ScriptedClient, clock: Clock, *, jitter: float = 0.0, step_timeout: float = 30, **options: Any
) -> Reply:
    return complete_with_retries(
        client,
        QUESTION,
        step_timeout=step_timeout,
        time_left=clock.time_left,
        pause=clock.pause,
        random=lambda: jitter,
        **options,
    )


def failing(kind: ModelErrorKind, retry_after: float | None = None) -> ModelError:
    return ModelError(kind, f"It failed: {kind}.", retry_after=retry_after)


def test_a_reply_at_once_is_asked_for_once() -> None:
    client, clock = ScriptedClient(say("YES")), Clock(100)
    assert ask(client, clock).text == "YES"
    assert (len(client.asked), clock.pauses) == (1, [])


@pytest.mark.parametrize("kind", RETRIED)
def test_passing_trouble_is_tried_three_times_in_all(kind: ModelErrorKind) -> None:
    client, clock = ScriptedClient(*[failing(kind)] * 4), Clock(100)
    with pytest.raises(ModelError) as caught:
        ask(client, clock)
    assert caught.value.kind is kind
    assert (len(client.asked), clock.pauses) == (3, [1.0, 2.0])


@pytest.mark.parametrize("kind", sorted(set(ModelErrorKind) - set(RETRIED)))
def test_trouble_that_stays_is_tried_once(kind: ModelErrorKind) -> None:
    client, clock = ScriptedClient(failing(kind), say("never said")), Clock(100)
    with pytest.raises(ModelError):
        ask(client, clock)
    assert (len(client.asked), clock.pauses) == (1, [])


def test_the_third_attempt_can_succeed() -> None:
    client = ScriptedClient(failing(ModelErrorKind.TIMEOUT), failing(ModelErrorKind.OVERLOADED), say("YES"))
    assert ask(client, Clock(100)).text == "YES"


def test_the_last_error_is_the_one_that_is_raised() -> None:
    client = ScriptedClient(failing(ModelErrorKind.TIMEOUT), failing(ModelErrorKind.UNAUTHORIZED))
    with pytest.raises(ModelError) as caught:
        ask(client, Clock(100))
    assert caught.value.kind is ModelErrorKind.UNAUTHORIZED


def test_jitter_lengthens_pauses_by_up_to_half() -> None:
    clock = Clock(100)
    with pytest.raises(ModelError):
        ask(ScriptedClient(*[failing(ModelErrorKind.TIMEOUT)] * 3), clock, jitter=1.0, base=2.0)
    assert clock.pauses == [3.0, 6.0]


def test_retry_after_is_waited_for() -> None:
    clock = Clock(100)
    ask(ScriptedClient(failing(ModelErrorKind.RATE_LIMITED, retry_after=20), say("YES")), clock)
    assert clock.pauses == [20]


def test_a_short_retry_after_does_not_shorten_the_pause() -> None:
    clock = Clock(100)
    ask(ScriptedClient(failing(ModelErrorKind.RATE_LIMITED, retry_after=0), say("YES")), clock)
    assert clock.pauses == [1.0]


@pytest.mark.parametrize("retry_after", [10.0, 3600.0])
def test_a_pause_longer_than_what_is_left_is_not_begun(retry_after: float) -> None:
    client, clock = (
        ScriptedClient(failing(ModelErrorKind.RATE_LIMITED, retry_after=retry_after), say("late")),
        Clock(10),
    )
    with pytest.raises(ModelError) as caught:
        ask(client, clock)
    assert caught.value.kind is ModelErrorKind.RATE_LIMITED
    assert (len(client.asked), clock.pauses) == (1, [])


def test_each_attempt_gets_the_step_or_what_is_left() -> None:
    client, clock = ScriptedClient(*[failing(ModelErrorKind.TIMEOUT)] * 3), Clock(31.5)
    with pytest.raises(ModelError):
        ask(client, clock, step_timeout=30)
    assert [asked.timeout for asked in client.asked] == [30, 30, 28.5]


@pytest.mark.parametrize("left", [0.0, -1.0])
def test_nothing_is_asked_when_no_time_is_left(left: float) -> None:
    client = ScriptedClient(say("never said"))
    with pytest.raises(ModelError, match="no time left") as caught:
        ask(client, Clock(left))
    assert caught.value.kind is ModelErrorKind.TIMEOUT
    assert client.asked == []


def test_what_the_pause_raises_ends_it() -> None:
    class Stopped(Exception):
        pass

    def stop(seconds: float) -> None:
        raise Stopped

    client = ScriptedClient(failing(ModelErrorKind.TIMEOUT), say("never said"))
    with pytest.raises(Stopped):
        complete_with_retries(client, QUESTION, step_timeout=1, time_left=lambda: 9, pause=stop)
    assert len(client.asked) == 1


def test_other_exceptions_are_not_swallowed() -> None:
    def break_down(messages: object) -> Reply:
        raise KeyError("a defect")

    scripted: Scripted = break_down
    with pytest.raises(KeyError):
        ask(ScriptedClient(scripted, say("never said")), Clock(100))


def test_the_tools_are_asked_with_every_attempt() -> None:
    client, clock = ScriptedClient(failing(ModelErrorKind.TIMEOUT), say("YES")), Clock(100)
    tool = {"type": "function", "function": {"name": "delete_memory"}}
    complete_with_retries(client, QUESTION, [tool], step_timeout=5, time_left=clock.time_left, pause=clock.pause)
    assert [asked.tools for asked in client.asked] == [(tool,), (tool,)]


def test_who_watches_hears_of_each_attempt_that_is_followed_by_another_before_its_pause() -> None:
    told: list[tuple[int, int, ModelErrorKind, float]] = []
    client, clock = ScriptedClient(*map(failing, RETRIED[:3])), Clock(100)

    def note(failed: FailedAttempt) -> None:
        assert len(clock.pauses) == len(told)
        told.append((failed.number, failed.attempts, failed.error.kind, failed.pause))

    with pytest.raises(ModelError):
        ask(client, clock, on_retry=note)
    assert told == [(1, 3, RETRIED[0], 1.0), (2, 3, RETRIED[1], 2.0)]
