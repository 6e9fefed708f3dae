"""One call of a model, from its start to its deadline: what came back on the network, and a thread that may be left.

A library can wait for what no time-out reaches: a name server, a pause between two requests, a lock. So a call runs in
a thread of its own (`call_threads`), and who asked is free at the deadline whatever becomes of that thread.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from app.llm.call_threads import CALL_THREADS
from app.llm.failures import CallOutcome

T = TypeVar("T")

GRACE_SECONDS = 1.0
"""After the deadline, for the thread to come back by itself and say what was wrong."""


@dataclass
class Exchange(CallOutcome):
    """What is known of one call. `deadline` counts in `time.monotonic()`; the outcome is of the request sent last."""

    deadline: float = field(kw_only=True)
    failed: set[str] = field(default_factory=set)
    """Requests that got no answer: they are not sent again, because who asks decides about another attempt."""

    @classmethod
    def within(cls, seconds: float) -> Exchange:
        return cls(deadline=time.monotonic() + seconds)

    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def forget(self) -> None:
        """Another request begins: nothing has come back yet."""
        self.status = self.retry_after = self.fault = None
        self.problem = ""


class LeftBehind(Exception):
    """The call did not come back by its deadline. Its thread goes on alone, and ends when its library lets it."""

    def __init__(self, thread: Future[Any]) -> None:
        super().__init__("The call did not come back in time.")
        self._thread = thread

    def then(self, tidy_up: Callable[[], None]) -> None:
        """Do it where the call was, when it has come back at last."""
        self._thread.add_done_callback(lambda _: tidy_up())


_current: contextvars.ContextVar[Exchange | None] = contextvars.ContextVar("exchange", default=None)


def current_exchange() -> Exchange | None:
    """The call that this thread makes, or None where no model is being asked."""
    return _current.get()


def in_time(exchange: Exchange, work: Callable[[], T]) -> T:
    """Do it in a thread of its own, whose requests belong to the exchange.

    Raises what it raises, or LeftBehind shortly after the deadline.
    """
    outcome: Future[T] = Future()

    def run() -> None:
        _current.set(exchange)
        try:
            outcome.set_result(work())
        except BaseException as error:  # noqa: BLE001  the one who waits gets it
            outcome.set_exception(error)

    CALL_THREADS.run(run)
    try:
        return outcome.result(max(0.0, exchange.seconds_left()) + GRACE_SECONDS)
    except TimeoutError:
        if not outcome.done():
            raise LeftBehind(outcome) from None
        return outcome.result()  # it came back just now, or raised a TimeoutError of its own
