"""Helpers for tests that start real processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def wait_for(question: Callable[[], T], *, seconds: float = 45) -> T:
    """Ask until the answer is true; a test that waits in vain fails."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return answer


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody has reaped yet does not."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
