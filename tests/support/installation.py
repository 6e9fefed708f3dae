"""For tests and benchmarks that start a whole installation by `up`, in its own processes."""

from __future__ import annotations

import select
import socket
import time
from typing import IO

START_SECONDS = 180


def free_port() -> int:
    """A port of the loopback that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def read_until_ready(stdout: IO[str], words: str = "Whetstone is ready") -> str:
    """What `up` says until it is ready, by these words, or until it ends or START_SECONDS are over."""
    said, deadline = "", time.monotonic() + START_SECONDS
    while words not in said:
        readable, _, _ = select.select([stdout], [], [], max(deadline - time.monotonic(), 0))
        line = stdout.readline() if readable else ""
        if not line:
            break
        said += line
    return said
