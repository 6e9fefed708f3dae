"""The command line run in this process, over the same entry as the real one, on an installation of its own."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from app.cli import main
from app.config import Settings
from tests.support.workers import environment_of


@dataclass(frozen=True)
class Said:
    """What a command answered with."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, str]:
        """The complaint of a command that was given --json."""
        found: dict[str, str] = json.loads(self.err.splitlines()[-1])["error"]
        return found


Whetstone = Callable[..., Said]


@pytest.fixture
def whetstone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Whetstone]:
    """Run a command: `whetstone("agents", "list")`. It opens and closes its own app, as every command does."""
    for name, value in environment_of(settings).items():
        if name.startswith(("WHETSTONE_", "DATABASE_", "REDIS_")):
            monkeypatch.setenv(name, value)

    def run(*arguments: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        return Said(int(ended.value.code or 0), *capfd.readouterr())

    mask = os.umask(0o077)
    yield run
    os.umask(mask)
    structlog.reset_defaults()
