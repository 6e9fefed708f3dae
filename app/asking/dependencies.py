"""What asking is given, so that a test can give it something else."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from app.llm.client import ModelClients


@dataclass(frozen=True)
class Dependencies:
    """Clients for models, and a clock for pauses and deadlines that a test can turn."""

    clients: ModelClients
    pause: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
