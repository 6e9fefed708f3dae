"""Keeps the children of `up` running: starts them, waits until they are ready, starts again what ends, stops all."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from app.child import Child, Running
from app.errors import WhetstoneError

RESTARTS = 3
WINDOW_SECONDS = 60.0
"""A child that ends this often within this time ends everything: something is wrong that a restart does not mend."""

POLL_SECONDS = 0.03

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ChildFailed(WhetstoneError):
    """A part of Whetstone ended by itself."""

    code = "child_failed"


class NotReady(WhetstoneError):
    """A part of Whetstone did not become ready in time."""

    code = "not_ready"


class StopRequested(Exception):
    """Somebody pressed Ctrl-C, or sent SIGTERM, or closed the terminal."""


class Supervisor:
    """Use as a context manager, in the main thread; its end stops all children, the last started first.

    A second signal while they stop kills what is left at once.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._children: list[Running] = []
        self._ends: dict[str, deque[float]] = {}
        self._signals = 0

    def __enter__(self) -> Supervisor:
        self._alarm, self._bell = os.pipe()
        os.set_blocking(self._alarm, False)
        os.set_blocking(self._bell, False)
        self._earlier: dict[signal.Signals, Any] = {s: signal.signal(s, self._hear) for s in ENDING}
        self._earlier[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._earlier_bell = signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self._stop_all()
        finally:
            signal.set_wakeup_fd(self._earlier_bell)
            for number, handler in self._earlier.items():
                signal.signal(number, handler)
            os.close(self._alarm)
            os.close(self._bell)

    def start(self, child: Child) -> Running:
        """Start a child, its standard input still open."""
        return self.adopt(child.start())

    def adopt(self, running: Running) -> Running:
        self._children.append(running)
        return running

    def wait_until(self, ready: Callable[[], bool], *, seconds: float, otherwise: Callable[[], str]) -> None:
        """Poll `ready`. Raises ChildFailed, NotReady with what `otherwise` says, or StopRequested on a signal."""
        deadline = time.monotonic() + seconds
        while not ready():
            self._pause(POLL_SECONDS)
            for running in self._children:
                if (status := running.status()) is not None:
                    raise ChildFailed(_ended(running, status, "Whetstone was not ready yet, so nothing stays running."))
            if time.monotonic() > deadline:
                raise NotReady(f"Not ready after {seconds:g} seconds, so all was stopped. {otherwise()}")

    def watch(self) -> None:
        """Return when somebody asks to stop. Raises ChildFailed when a child ends too often."""
        while True:
            for place, running in enumerate(self._children):
                if (status := running.status()) is not None:
                    self._children[place] = self._again(running, status)
            try:
                self._pause(None)
            except StopRequested:
                return

    def _again(self, running: Running, status: int) -> Running:
        running.kill()
        name = running.child.name
        ends = self._ends.setdefault(name, deque(maxlen=RESTARTS))
        ends.append(time.monotonic())
        if len(ends) == RESTARTS and ends[-1] - ends[0] < WINDOW_SECONDS:
            problem = f"That was {RESTARTS} times in {WINDOW_SECONDS:.0f} seconds, so everything was stopped."
            raise ChildFailed(_ended(running, status, problem))
        self._say(f"The {name} process ended ({_how(status)}) and was started again; its log is {running.child.log}.")
        successor = running.child.start()
        successor.tell()
        return successor

    def _stop_all(self) -> None:
        self._signals = 0
        for running in reversed(self._children):
            running.stop(hurry=lambda: self._signals > 0)
        self._children.clear()

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _pause(self, seconds: float | None) -> None:
        """Sleep until a signal or a child's end, or `seconds`."""
        if self._signals == 0:
            select.select([self._alarm], [], [], seconds)
            _drain(self._alarm)
        if self._signals:
            raise StopRequested


def _drain(descriptor: int) -> None:
    try:
        while os.read(descriptor, 4096):
            pass
    except BlockingIOError:
        return


def _ended(running: Running, status: int, consequence: str) -> str:
    lines = running.last_lines()
    log = [f"The end of {running.child.log}:", *(f"  {line}" for line in lines)] if lines else ["Its log is empty."]
    return "\n".join([f"The {running.child.name} process ended ({_how(status)}). {consequence}", *log])


def _how(status: int) -> str:
    return f"status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
