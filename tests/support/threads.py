"""Threads of the product's own kind: each with an application context."""

from __future__ import annotations

import threading
from collections.abc import Callable

from flask import Flask


def begun(app: Flask, work: Callable[[], object]) -> threading.Thread:
    """One that does this, started; to be joined by the test."""

    def run() -> None:
        with app.app_context():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread
