"""Who calls: an agent, by a token of its own, which says what it may and opens its keys while the call lasts.

How often one token may call is counted in the broker where there are several web processes, or may be, else in this
one, and so while the broker is away.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

import structlog
from flask import current_app
from limits import RateLimitItem, WindowStats, parse
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter
from redis import RedisError

from app.config import Settings
from app.errors import NotFound, WhetstoneError
from app.extensions import db, reading
from app.keys.bearer import Bearer, authenticate
from app.models import Actor, Agent
from app.models.statement_errors import AgentStopped, LogBroken
from app.silo import AgentKeys, SealBroken, TokenKey, parse_token

PATIENCE = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5}
"""Seconds that a request waits for the broker to count it."""

log = structlog.get_logger(__name__)


class Unauthorized(WhetstoneError):
    """The token is missing, malformed, unknown or revoked. Send `Authorization: Bearer TOKEN`; nothing was done."""

    code = "unauthorized"
    http_status = 401


class ScopeMissing(WhetstoneError):
    """The token lacks the scope that this needs. Nothing was done."""

    code = "scope_missing"
    http_status = 403


class KeysNotReady(WhetstoneError):
    """This token is so new that a worker has not sealed your keys to it yet. Try again in a moment."""

    code = "keys_not_ready"
    http_status = 503


class TooManyRequests(WhetstoneError):
    """Too many requests with this token. Nothing was done."""

    code = "rate_limited"
    http_status = 429

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass
class Caller:
    """One call of one agent. Nothing of another agent can be reached through it."""

    bearer: Bearer
    _keys: list[AgentKeys] = field(default_factory=list, repr=False)

    @property
    def agent_id(self) -> int:
        return self.bearer.agent_id

    def agent(self) -> Agent:
        """The agent's row, read once a transaction. Raises NotFound."""
        agent = db.session.get(Agent, self.agent_id)
        if agent is None:
            raise NotFound("There is no such agent any more.")
        return agent

    def actor(self) -> Actor:
        """The agent, as the audit log names it."""
        return self.agent().as_actor

    @property
    def keys(self) -> AgentKeys:
        """The agent's keys, opened by the token, once a call. Raises KeysNotReady.

        No `cached_property`: in Python 3.11 all callers of all threads would wait for one lock.
        """
        if not self._keys:
            with _refusing_broken_keys():
                self._keys.append(self.bearer.open_keys())
        return self._keys[0]

    @property
    def keys_to_write(self) -> AgentKeys:
        """The same with that of the hashes, which whoever only reads does without. Raises KeysNotReady."""
        with _refusing_broken_keys():
            return self.keys.with_hashes()

    @property
    def signer(self) -> TokenKey:
        """What signs the decisions that the agent makes by this call."""
        return self.bearer.opener

    def check_still_live(self) -> None:
        """For what takes long. Raises Unauthorized where the token was revoked since it came."""
        with reading():
            if not self.bearer.is_live():
                raise Unauthorized

    def check(self, scope: str) -> None:
        """Raises ScopeMissing."""
        if scope not in self.bearer.scopes:
            held = ", ".join(self.bearer.scopes)
            raise ScopeMissing(f"This needs the scope {scope}; this token has {held}.", "Nothing was done.")


@contextmanager
def _refusing_broken_keys() -> Iterator[None]:
    try:
        yield
    except (AgentStopped, LogBroken):
        raise
    except SealBroken as error:
        raise KeysNotReady from error


def admit_caller(authorization: str | None) -> Caller:
    """Who sent this Authorization header. Raises Unauthorized, TooManyRequests or KeysNotReady.

    Logs refusals without the token.
    """
    scheme, _, secret = (authorization or "").partition(" ")
    bearer = authenticate(secret.strip()) if scheme.lower() == "bearer" else None
    if bearer is None:
        parsed = parse_token(secret.strip())
        log.info("token refused", token=parsed[0] if parsed else "malformed or missing")
        raise Unauthorized
    _current_throttle().count(bearer.public_id)
    if not bearer.is_stated:
        raise KeysNotReady
    return Caller(bearer)


class Throttle:
    """Counts requests by token, in windows of a minute or whatever the operator says."""

    def __init__(self, settings: Settings) -> None:
        url = settings.counting_url
        self._rate = parse(settings.api_rate)
        self._own = OwnCounts()
        self._shared = FixedWindowRateLimiter(storage_from_string(url, **PATIENCE)) if url else self._own

    def count(self, token_id: str) -> None:
        """One more request. Raises TooManyRequests, which says in how many seconds there is room again."""
        try:
            self._count_call(self._shared, token_id)
        except (RedisError, OSError) as error:
            log.warning("broker away: requests are counted here", error=type(error).__name__)
            self._count_call(self._own, token_id)

    def _count_call(self, limiter: FixedWindowRateLimiter | OwnCounts, token_id: str) -> None:
        if not limiter.hit(self._rate, "token", token_id):
            left = limiter.get_window_stats(self._rate, "token", token_id).reset_time - time.time()
            sentence = f"At most {self._rate} with one token. Nothing was done; wait, then go on."
            raise TooManyRequests(sentence, max(1, math.ceil(left)))


class OwnCounts:
    """Fixed windows in this process: as `limits` has them, whose memory starts a thread with nearly every request.

    Only who carries a live token is counted, so there are no more windows than tokens.
    """

    def __init__(self) -> None:
        self._windows: dict[tuple[str, ...], tuple[float, int]] = {}
        self._lock = threading.Lock()

    def hit(self, rate: RateLimitItem, *key: str) -> bool:
        moment = time.time()
        with self._lock:
            ends, count = self._windows.get(key, (0.0, 0))
            if ends <= moment:
                ends, count = moment + rate.get_expiry(), 0
            self._windows[key] = (ends, count + 1)
        return count < rate.amount

    def get_window_stats(self, rate: RateLimitItem, *key: str) -> WindowStats:
        ends, count = self._windows.get(key, (time.time(), 0))
        return WindowStats(ends, max(rate.amount - count, 0))


def _current_throttle() -> Throttle:
    """The process's own."""
    extensions = current_app.extensions
    if "api_throttle" not in extensions:
        extensions["api_throttle"] = Throttle(extensions["settings"])
    return cast(Throttle, extensions["api_throttle"])
