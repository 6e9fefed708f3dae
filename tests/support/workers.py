"""A real broker and real worker processes, for tests of what passes between them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.config import ROOT, Settings
from app.processes.broker import EmbeddedBroker
from tests.support.forking import ForkedProcess, fork_server

REDIS = os.environ.get("WHETSTONE_TEST_REDIS_URL", "")
READY_SECONDS = 60.0


@contextmanager
def broker_of(settings: Settings) -> Iterator[EmbeddedBroker]:
    """An embedded broker that the processes of these settings find by its file."""
    broker = EmbeddedBroker(settings)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


FORKED = ("worker", "beat", "refine")
"""Parts that load the same; the web process must not load a model's library."""

NO_TICK = "0 4 29 2 *"
"""A schedule that comes once in four years: no test runs beside a scheduled sweep, not even on a Monday at four."""


@dataclass
class Worker:
    """A worker process (or another part) over its command line, as `up` starts it. Its log is read, never guessed.

    One that keeps no watch on its own loading is forked from a process that has loaded what it needs.
    """

    settings: Settings
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    name: str = "worker"
    part: str = "worker"
    module: tuple[str, ...] = ("app",)

    def __post_init__(self) -> None:
        self.log = self.settings.data / f"{self.name}.log"
        environment = environment_of(self.settings) | {"WHETSTONE_SCHEDULE": NO_TICK} | self.environment
        arguments = [self.part, *self.options]
        self.process: subprocess.Popen[bytes] | ForkedProcess
        with self.log.open("ab") as log:
            if self.module == ("app",) and self.part in FORKED:
                self.process = fork_server().start(arguments, environment, log)
                return
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.module, *arguments],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """As a machine that loses power would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def said(self) -> str:
        return self.log.read_text()


def environment_of(settings: Settings) -> dict[str, str]:
    """What a process of this installation needs to find it, and nothing of the one who runs the tests."""
    return {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "WHETSTONE_DATA_DIR": str(settings.data),
        "DATABASE_URL": settings.database_url.replace("postgresql+psycopg:", "postgresql:"),
        "REDIS_URL": settings.redis_url,
        "WHETSTONE_RETRY_BASE_SECONDS": "0.05",
        "WHETSTONE_DEMO_PACE_SECONDS": "0",
        "WHETSTONE_STEP_TIMEOUT_SECONDS": str(settings.step_timeout_seconds),
    }


def everything_in(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below a folder, with its bytes."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path, path.read_bytes()
