"""One child process of `up`: a process group and a log of its own, and an end no later than its parent's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, cast

from app.processes.datadir import append_to

MAX_LOG_BYTES = 10_000_000
"""A log above this is put aside, as one older file, when its child starts."""

END_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() != int(sys.argv[1]):
    sys.exit("The parent ended first.")
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Linux kills the child when the thread that started it ends, even by SIGKILL. It stands before the command and not
in a `preexec_fn`, which is unsafe beside threads."""


def before_command() -> list[str]:
    """What stands before the command of a process that must not outlive this one."""
    if not sys.platform.startswith("linux"):
        return []
    return [sys.executable, "-I", "-S", "-c", END_WITH_PARENT, str(os.getpid())]


@dataclass(frozen=True)
class Child:
    """What to run. `first_words` go to its standard input, where nobody who lists processes can read them."""

    name: str
    command: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    folder: Path | None = None
    first_words: bytes = field(default=b"", repr=False)
    grace: float = 10.0
    """Seconds from SIGTERM to SIGKILL."""
    part: str = ""
    """What it is one of, where there are several: those are stopped together."""

    def start(self) -> Running:
        return Running(self)


class Running:
    """A started child. Its standard input stays open until it is told its first words."""

    def __init__(self, child: Child) -> None:
        self.child = child
        if child.log.exists() and child.log.stat().st_size > MAX_LOG_BYTES:
            child.log.replace(child.log.with_suffix(".log.1"))
        with append_to(child.log) as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(  # noqa: S603 - our own commands
                [*before_command(), *child.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=child.folder,
                env=dict(child.environment),
                process_group=0,
                umask=0o077,
            )
        self._input = cast(BinaryIO, self._process.stdin)

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self) -> None:
        """Hand over the first words and close its standard input. One that ended already says so by its status."""
        with contextlib.suppress(BrokenPipeError), self._input as pipe:
            pipe.write(self.child.first_words)

    def status(self) -> int | None:
        """Its exit status, negative for a signal, or None while it runs."""
        return self._process.poll()

    def stop(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """SIGTERM, and SIGKILL after its grace, or as soon as there is `hurry`."""
        self.ask_to_stop()
        self.wait_for_end(hurry)

    def ask_to_stop(self) -> None:
        self._send_signal(signal.SIGTERM)

    def wait_for_end(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """Of one that was asked to stop."""
        deadline = time.monotonic() + self.child.grace
        while self.status() is None and time.monotonic() < deadline and not hurry():
            time.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all that is left of its group, also where the child itself has ended."""
        self._send_signal(signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._input.close()

    def last_lines(self, count: int = 12) -> list[str]:
        """The end of what it logged since it started, fit for a terminal."""
        with self.child.log.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - 20_000))
            lines = log.read().decode("utf-8", "replace").splitlines()
        printable = ("".join(c if c.isprintable() else " " for c in line)[:400].rstrip() for line in lines)
        return [line for line in printable if line][-count:]

    def _send_signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the second of a zombie
            os.killpg(self.pid, number)
