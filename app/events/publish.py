"""Tells the web processes, through the broker, that there is news: ids only, and never the only copy."""

from __future__ import annotations

import structlog

from app.errors import Unavailable
from app.events.broker import broker_client, broker_namespace

CHANNEL = "events"
"""Stands behind the installation's namespace. Messages: `account:event`, or `bye:user`."""

log = structlog.get_logger(__name__)


def wake_streams(account_id: int, event_id: int) -> None:
    """Say that an account has an event. Without a broker the pages hear it later: they look by themselves too."""
    _publish_message(f"{account_id}:{event_id}")


def end_streams(user_id: int) -> None:
    """Say that a user signed out: all web processes close the user's open pages' streams."""
    _publish_message(f"bye:{user_id}")


def _publish_message(message: str) -> None:
    from redis import RedisError

    try:
        broker = broker_client()
        if broker is not None:
            broker.publish(broker_namespace() + CHANNEL, message)
    except (RedisError, OSError, ValueError, Unavailable) as error:
        log.warning("streams not woken", message=message, error=type(error).__name__)
