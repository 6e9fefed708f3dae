"""The stream: durable events are published after their commit and read from an id on."""

from __future__ import annotations

from flask import Flask

from app.events.publish import wake_streams


def init_app(app: Flask) -> None:
    app.extensions["wake_streams"] = wake_streams
