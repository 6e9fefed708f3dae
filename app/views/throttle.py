"""How often somebody may try a password: failures count, successes never, and nobody can lock another one out.

Failures are counted by address, and by account and address together. Those of an account from everywhere only make the
allowance of each address smaller: an address that has not failed yet always has its tries. A device on which somebody
signed in before has an allowance of its own, whatever is tried elsewhere.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Iterable

import structlog
from flask import Request, Response, current_app, request
from itsdangerous import BadSignature, URLSafeTimedSerializer
from limits import RateLimitItem, parse_many
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter
from redis import RedisError

from app.config import Settings
from app.errors import WhetstoneError
from app.networks import network_of
from app.values.plural import count_nouns

BY_ADDRESS = parse_many("10/minute;60/hour")
BY_ACCOUNT_AND_ADDRESS = parse_many("5/minute;20/hour")
WHILE_ATTACKED = parse_many("2/10minutes")
"""Of one address for an account that has had `ATTACK` failures."""

ATTACK = parse_many("30/hour")
BY_DEVICE = parse_many("10/minute;60/hour")
BY_USER = parse_many("10/minute;60/hour")
"""Of somebody who is signed in, and confirms that it is them."""

SECOND_STEP = parse_many("15/hour;40/day")
"""Wrong codes of a user whose password was right, from everywhere but known devices: a million codes are few."""

DEVICE_COOKIE = "whetstone_device"
DEVICE_SECONDS = 365 * 24 * 3600
PATIENCE = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5}

Counted = tuple[Iterable[RateLimitItem], tuple[str, ...]]

log = structlog.get_logger(__name__)


class TooManyTries(WhetstoneError):
    """Too many failed attempts to sign in."""

    code = "rate_limited"
    http_status = 429

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"Too many failed attempts. Try again in {_duration_words(retry_after)}.")
        self.retry_after = retry_after


class FailureCounts:
    """Counters in the broker where there are several web processes, or may be, else in this one."""

    def __init__(self, settings: Settings) -> None:
        url = settings.counting_url
        self._own = FixedWindowRateLimiter(storage_from_string("memory://"))
        self._shared = FixedWindowRateLimiter(storage_from_string(url, **PATIENCE)) if url else self._own

    def check_sign_in(self, email: str) -> None:
        """Raises TooManyTries, which says when there is room again."""
        self._check_rules(self._sign_in_rules(email))

    def note_failed_sign_in(self, email: str) -> None:
        for items, key in [*self._sign_in_rules(email), (ATTACK, _account_key(email))]:
            self._call_limiter(items, key, FixedWindowRateLimiter.hit)

    def check_user(self, user_id: int) -> None:
        """Raises TooManyTries."""
        self._check_rules([(BY_USER, ("user", str(user_id)))])

    def note_failed_user(self, user_id: int) -> None:
        self._call_limiter(BY_USER, ("user", str(user_id)), FixedWindowRateLimiter.hit)

    def check_second_step(self, email: str, user_id: int) -> None:
        """Raises TooManyTries."""
        self._check_rules(self._second_step_rules(email, user_id))

    def note_failed_second_step(self, email: str, user_id: int) -> None:
        for items, key in self._second_step_rules(email, user_id):
            self._call_limiter(items, key, FixedWindowRateLimiter.hit)

    def _second_step_rules(self, email: str, user_id: int) -> list[Counted]:
        """Who has the password, and guesses, locks no device out on which the user was signed in before."""
        if device := known_device(request, email):
            return [(SECOND_STEP, ("code", "device", device))]
        return [(SECOND_STEP, ("code", "user", str(user_id)))]

    def _sign_in_rules(self, email: str) -> list[Counted]:
        if device := known_device(request, email):
            return [(BY_DEVICE, ("device", device))]
        address = network_of(request.remote_addr or "")
        pair = (*_account_key(email), address)
        return [(BY_ADDRESS, ("address", address)), (BY_ACCOUNT_AND_ADDRESS, pair), (WHILE_ATTACKED, ("slow", *pair))]

    def _check_rules(self, rules: list[Counted]) -> None:
        seconds = [self._seconds_left(items, key) for items, key in rules if self._rule_applies(items, key)]
        if any(seconds):
            raise TooManyTries(max(seconds))

    def _rule_applies(self, items: Iterable[RateLimitItem], key: tuple[str, ...]) -> bool:
        return items is not WHILE_ATTACKED or self._seconds_left(ATTACK, key[1:3]) > 0

    def _seconds_left(self, items: Iterable[RateLimitItem], key: tuple[str, ...]) -> int:
        """Until there is room; 0 where there is."""
        return max(self._call_limiter(items, key, _seconds_until_room))

    def _call_limiter(self, items: Iterable[RateLimitItem], key: tuple[str, ...], act: Callable[..., int]) -> list[int]:
        try:
            return [act(self._shared, item, *key) for item in items]
        except (RedisError, OSError) as error:
            log.warning("broker away: failed sign-ins are counted here", error=type(error).__name__)
            return [act(self._own, item, *key) for item in items]


def _seconds_until_room(limiter: FixedWindowRateLimiter, item: RateLimitItem, *key: str) -> int:
    if limiter.test(item, *key):
        return 0
    return max(1, math.ceil(limiter.get_window_stats(item, *key).reset_time - time.time()))


def known_device(asked: Request, email: str) -> str:
    """The device's number, where this account was signed in to on it before; else nothing."""
    try:
        account, device = _device_signer().loads(asked.cookies.get(DEVICE_COOKIE, ""), max_age=DEVICE_SECONDS)
    except (BadSignature, ValueError, TypeError):
        return ""
    return str(device) if account == _email_digest(email) else ""


def remember_device(response: Response, email: str) -> None:
    """After a sign-in: what is tried elsewhere does not concern this device any more."""
    settings: Settings = current_app.extensions["settings"]
    device = known_device(request, email) or secrets.token_hex(16)
    response.set_cookie(
        DEVICE_COOKIE,
        _device_signer().dumps([_email_digest(email), device]),
        max_age=DEVICE_SECONDS,
        httponly=True,
        samesite="Lax",
        secure=settings.secure_cookies,
    )


def _device_signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(str(current_app.secret_key), salt="known-device")


def _account_key(email: str) -> tuple[str, str]:
    return ("account", _email_digest(email))


def _email_digest(email: str) -> str:
    return hashlib.sha256(email.encode("utf-8", "surrogatepass")).hexdigest()


def _duration_words(seconds: int) -> str:
    if seconds < 120:
        return count_nouns(seconds, "second")
    return f"{math.ceil(seconds / 60)} minutes"
