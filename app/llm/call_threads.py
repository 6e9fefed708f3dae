"""Threads in which models are asked, kept for the next call: to start one takes several times as long as to wake one.

A thread that was left behind, or has had no work for a while, is nobody's: it ends by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context

IDLE_SECONDS = 5.0
"""As long as a connection is kept open without use."""

MOST_IDLE = 64
"""Threads that wait for work, in all: as many as clients whose connections wait to be lent."""

Work = Callable[[], None]


class CallThreads:
    """Those of one process. Each works for one call at a time, in a context of its own, and keeps nothing of it."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS, most_idle: int = MOST_IDLE) -> None:
        self._idle: list[_CallThread] = []
        self._lock = threading.Lock()
        self._idle_seconds, self._most_idle = idle_seconds, most_idle

    def run(self, work: Work) -> None:
        """Begin it, in the thread that worked last or in a new one. It raises nothing."""
        with self._lock:
            thread = self._idle.pop() if self._idle else None
        if thread is None:
            thread = _CallThread(self)
            thread.give(work)
            thread.start()
        else:
            thread.give(work)

    @property
    def idle(self) -> int:
        """How many wait for work."""
        return len(self._idle)

    def wait_for_work(self, thread: _CallThread) -> bool:
        """Until there is some; False when it is not wanted any more."""
        with self._lock:
            if len(self._idle) >= self._most_idle:
                return False
            self._idle.append(thread)
        return thread.is_given_within(self._idle_seconds) or not self._leave(thread)

    def _leave(self, thread: _CallThread) -> bool:
        """Wait no longer; False where it has been taken just now, and gets its work."""
        with self._lock:
            if thread in self._idle:
                self._idle.remove(thread)
                return True
        thread.is_given_within(-1)
        return False


class _CallThread(threading.Thread):
    def __init__(self, threads: CallThreads) -> None:
        super().__init__(name="model-call", daemon=True)
        self._threads = threads
        self._work: Work | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def give(self, work: Work) -> None:
        self._work = work
        self._gate.release()

    def is_given_within(self, seconds: float) -> bool:
        return self._gate.acquire(timeout=seconds)

    def run(self) -> None:
        self._gate.acquire()
        while True:
            work, self._work = self._work, None
            if work is not None:
                Context().run(work)
            del work  # what was asked is kept by nobody who waits
            if not self._threads.wait_for_work(self):
                return


CALL_THREADS = CallThreads()
"""This process's."""
