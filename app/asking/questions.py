"""One question to a model, outside of the loop: with retries, and with no transaction open while it thinks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from flask import current_app

from app.asking.dependencies import Dependencies
from app.asking.model_endpoint import ModelEndpoint
from app.config import Settings
from app.extensions import release
from app.llm.client import Reply
from app.llm.retry import complete_with_retries

LONGEST_SECONDS = 540
"""A question is given up before another worker may take it over (`ASKED_AGAIN_AFTER`)."""

Compose = Callable[[int | None], list[dict[str, Any]]]
"""Makes the messages for a context window in tokens, None where nobody knows it."""


def ask_once(endpoint: ModelEndpoint, compose: Compose, dependencies: Dependencies) -> Reply:
    """One model call with its retries. Raises ModelError, and what `compose` raises."""
    settings: Settings = current_app.extensions["settings"]
    deadline = dependencies.monotonic() + min(settings.deadline_seconds, LONGEST_SECONDS)
    with closing(endpoint.client(dependencies.clients)) as client:
        messages = compose(client.context_window())
        release()
        return complete_with_retries(
            client,
            messages,
            (),
            step_timeout=settings.step_timeout_seconds,
            time_left=lambda: deadline - dependencies.monotonic(),
            pause=dependencies.pause,
            base=settings.retry_base_seconds,
        )
