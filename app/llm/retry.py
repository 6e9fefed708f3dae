"""Asking a model again when that may help: at most three attempts, all before the caller's deadline."""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from dataclasses import dataclass

from app.llm.client import Messages, ModelClient, ModelError, ModelErrorKind, Reply, Tools

ATTEMPTS = 3

_OUT_OF_TIME = "There was no time left to ask the model."


@dataclass(frozen=True)
class FailedAttempt:
    """The first is number 1, of at most `attempts`. `pause` is in seconds, until the next one."""

    number: int
    attempts: int
    error: ModelError
    pause: float


OnRetry = Callable[[FailedAttempt], None]


def complete_with_retries(
    client: ModelClient,
    messages: Messages,
    tools: Tools = (),
    *,
    step_timeout: float,
    time_left: Callable[[], float],
    pause: Callable[[float], None],
    attempts: int = ATTEMPTS,
    base: float = 1.0,
    random: Callable[[], float] = _random.random,
    on_retry: OnRetry | None = None,
) -> Reply:
    """Ask until there is a reply, at most `attempts` times. Times in seconds; raises the last attempt's ModelError.

    Pauses grow (base, 2 × base, …) with up to half of jitter, and are at least what Retry-After asks. A pause longer
    than what is left is not begun. `pause` may raise, for Stop. `on_retry` hears of every attempt that failed and is
    followed by another one, before the pause.
    """
    failed = ModelError(ModelErrorKind.TIMEOUT, _OUT_OF_TIME)
    for attempt in range(attempts):
        left = time_left()
        if left <= 0:
            break
        try:
            return client.complete(messages, tools, timeout=min(step_timeout, left))
        except ModelError as error:
            failed = error
        wait = max(base * 2**attempt * (1 + random() / 2), failed.retry_after or 0.0)
        if not failed.worth_retrying or attempt + 1 == attempts or wait >= time_left():
            break
        if on_retry is not None:
            on_retry(FailedAttempt(attempt + 1, attempts, failed, wait))
        pause(wait)
    raise failed
