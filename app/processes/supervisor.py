"""Keeps the children of `up` running: starts them, waits until they are ready, starts again what ends, stops all.

Before all are ready, a child that ends stops everything. After that it stops nothing else: it is started again after
1, 2, 4 and so on up to 60 seconds, and begins at 1 again once it has run for two minutes.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import FrameType, TracebackType
from typing import Any

from app.errors import WhetstoneError
from app.processes.child import Child, Running
from app.processes.datadir import StoppedPart
from app.values.plural import count_times

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
HEALTHY_SECONDS = 120.0
"""A child that runs for so long is in good health: its earlier ends don't count any more."""

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


@dataclass
class _Part:
    """A child over all its starts. Moments are of the monotonic clock; `next_start` is set while it waits for one."""

    running: Running
    started: float
    stops: int = 0
    how: str = ""
    next_start: float | None = None

    @property
    def name(self) -> str:
        return self.running.child.name

    def ended(self, how: str, pause: float) -> None:
        self.stops += 1
        self.how = how
        self.next_start = time.monotonic() + min(pause * 2 ** min(self.stops - 1, 30), LONGEST_PAUSE_SECONDS)

    def next_event(self) -> float:
        """When there is something to do although no child ends."""
        if self.next_start is not None:
            return self.next_start
        return self.started + HEALTHY_SECONDS if self.stops else float("inf")

    def told(self) -> StoppedPart:
        left = None if self.next_start is None else timedelta(seconds=self.next_start - time.monotonic())
        start = None if left is None else datetime.now(UTC) + left
        return StoppedPart(self.name, self.stops, self.how, str(self.running.child.log), start)


class Supervisor:
    """Use as a context manager, in the main thread; its end stops all children, the last kind started first.

    A second signal while they stop kills what is left at once. `report` gets the parts that stopped, at each change.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        report: Callable[[Sequence[StoppedPart]], None] = lambda _: None,
        *,
        first_pause: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        self._say = say
        self._tell = report
        self._first_pause = first_pause
        self._parts: list[_Part] = []
        self._signals = 0

    def __enter__(self) -> Supervisor:
        self._alarm, self._bell = os.pipe()
        os.set_blocking(self._alarm, False)
        os.set_blocking(self._bell, False)
        self._earlier: dict[signal.Signals, Any] = {s: signal.signal(s, self._count_signal) for s in ENDING}
        self._earlier[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        self._earlier_bell = signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._signals = 0
        try:
            alike: dict[str, list[Running]] = {}
            for part in self._parts:
                if part.next_start is None:
                    alike.setdefault(part.running.child.part or part.name, []).append(part.running)
            for several in reversed(alike.values()):
                self._stop_together(several)
            self._parts.clear()
        finally:
            signal.set_wakeup_fd(self._earlier_bell)
            for number, handler in self._earlier.items():
                signal.signal(number, handler)
            os.close(self._alarm)
            os.close(self._bell)

    def _stop_together(self, alike: Sequence[Running]) -> None:
        """Several workers finish what they carry at the same time, not one after the other."""
        for each in alike:
            each.ask_to_stop()
        for each in alike:
            each.wait_for_end(hurry=lambda: self._signals > 0)

    def start(self, child: Child) -> Running:
        """Start a child, its standard input still open."""
        return self.adopt(child.start())

    def adopt(self, running: Running) -> Running:
        self._parts.append(_Part(running, time.monotonic()))
        return running

    def wait_until(self, ready: Callable[[], bool], *, seconds: float, otherwise: Callable[[], str]) -> None:
        """Poll `ready`. Raises ChildFailed, NotReady with what `otherwise` says, or StopRequested on a signal."""
        deadline = time.monotonic() + seconds
        while not ready():
            self._wait_for_event(POLL_SECONDS)
            for part in self._parts:
                if (status := part.running.status()) is not None:
                    raise ChildFailed(_ending_message(part.running, status))
            if time.monotonic() > deadline:
                raise NotReady(f"Not ready after {seconds:g} seconds, so all was stopped. {otherwise()}")

    def watch(self) -> None:
        """Return when somebody asks to stop. A child that ends is started again, whatever becomes of it."""
        while True:
            for part in self._parts:
                self._look_after(part)
            try:
                self._wait_for_event(min(part.next_event() for part in self._parts) - time.monotonic())
            except StopRequested:
                return

    def _look_after(self, part: _Part) -> None:
        if part.next_start is not None:
            if time.monotonic() >= part.next_start:
                self._start_again(part)
        elif (status := part.running.status()) is not None:
            part.running.kill()
            self._note_end(part, _describe_status(status))
        elif time.monotonic() >= part.next_event():
            part.stops = 0
            self._report_stops()

    def _note_end(self, part: _Part, how: str) -> None:
        part.ended(how, self._first_pause)
        if part.stops > 1:
            pause = (part.next_start or 0.0) - time.monotonic()
            self._say(
                f"The {part.name} process stopped {count_times(part.stops)} ({how}); next start in {pause:.0f} seconds."
            )
        self._report_stops()

    def _start_again(self, part: _Part) -> None:
        try:
            successor = part.running.child.start()
        except OSError as error:
            self._note_end(part, f"it can't be started: {error.strerror}")
            return
        successor.tell()
        how, log = part.how, successor.child.log
        part.running, part.started, part.next_start = successor, time.monotonic(), None
        self._say(f"The {part.name} process ended ({how}) and was started again; its log is {log}.")
        self._report_stops()

    def _report_stops(self) -> None:
        """A full disk must not end the parts that still run: what can't be written down is said."""
        try:
            self._tell([part.told() for part in self._parts if part.stops])
        except OSError as error:
            self._say(f"Which parts stopped can't be written down ({error.strerror}).")

    def _count_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _wait_for_event(self, seconds: float) -> None:
        """Sleep until a signal or a child's end, or `seconds`."""
        if self._signals == 0:
            select.select([self._alarm], [], [], None if seconds == float("inf") else max(seconds, 0.0))
            with suppress(BlockingIOError):
                while os.read(self._alarm, 4096):
                    pass
        if self._signals:
            raise StopRequested


def _ending_message(running: Running, status: int) -> str:
    lines = running.last_lines()
    log = [f"The end of {running.child.log}:", *(f"  {line}" for line in lines)] if lines else ["Its log is empty."]
    how = f"The {running.child.name} process ended ({_describe_status(status)})."
    return "\n".join([f"{how} Whetstone was not ready yet, so nothing stays running.", *log])


def _describe_status(status: int) -> str:
    return f"status {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
