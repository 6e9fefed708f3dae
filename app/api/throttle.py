"""How often one token may call: counted in the broker for all web processes, or in this one while that is away."""

from __future__ import annotations

import math
import time

import structlog
from flask import current_app
from limits import parse
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter
from redis import RedisError

from app.config import Settings
from app.errors import WhetstoneError

PATIENCE = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5}
"""Seconds that a request waits for the broker to count it."""

log = structlog.get_logger(__name__)


class TooManyRequests(WhetstoneError):
    """Too many requests with this token. Nothing was done."""

    code = "rate_limited"
    http_status = 429

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Throttle:
    """Counts requests by token, in windows of a minute or whatever the operator says."""

    def __init__(self, settings: Settings) -> None:
        url = settings.redis_url
        self._rate = parse(settings.api_rate)
        self._own = FixedWindowRateLimiter(storage_from_string("memory://"))
        self._shared = FixedWindowRateLimiter(storage_from_string(url, **PATIENCE)) if url else self._own

    def count(self, token_id: str) -> None:
        """One more request. Raises TooManyRequests, which says in how many seconds there is room again."""
        try:
            self._count_call(self._shared, token_id)
        except (RedisError, OSError) as error:
            log.warning("broker away: requests are counted here", error=type(error).__name__)
            self._count_call(self._own, token_id)

    def _count_call(self, limiter: FixedWindowRateLimiter, token_id: str) -> None:
        if not limiter.hit(self._rate, "token", token_id):
            left = limiter.get_window_stats(self._rate, "token", token_id).reset_time - time.time()
            sentence = f"At most {self._rate} with one token. Nothing was done; wait, then go on."
            raise TooManyRequests(sentence, max(1, math.ceil(left)))


def current_throttle() -> Throttle:
    """The process's own."""
    held: Throttle | None = current_app.extensions.get("api_throttle")
    if held is None:
        held = current_app.extensions["api_throttle"] = Throttle(current_app.extensions["settings"])
    return held
