"""Tells the web processes, through the broker, that an account has new events: ids only, and never the only copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from flask import current_app

if TYPE_CHECKING:
    from redis import Redis

CHANNEL = "whetstone:events"

log = structlog.get_logger(__name__)


def wake_streams(account_id: int, event_id: int) -> None:
    """Publish `account:event`. A broker that does not answer only delays the pages: they look by themselves too."""
    from redis import RedisError

    broker = _broker()
    if broker is None:
        return
    try:
        broker.publish(CHANNEL, f"{account_id}:{event_id}")
    except (RedisError, OSError) as error:
        log.warning("streams not woken", account_id=account_id, event_id=event_id, error=type(error).__name__)


def _broker() -> Redis | None:
    url = current_app.extensions["settings"].broker_url
    held: dict[str, Redis] = current_app.extensions.setdefault("event_broker", {})
    if not url:
        return None
    if url not in held:
        from redis import Redis

        held.clear()
        held[url] = Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2)
    return held[url]
