"""The nightly proof. Beat says "look" every hour; the database decides whether one is due, and who makes it."""

from __future__ import annotations

from app.extensions import now
from app.history.proof import prove_due
from tasks.celery import task


@task
def prove() -> None:
    prove_due(now())
