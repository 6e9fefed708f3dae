"""The nightly proof. Beat says "look" every hour; the database decides whether one is due, and who makes it."""

from __future__ import annotations

from app.extensions import now
from app.history.proof import prove_due, review_stopped
from tasks.celery import task


@task
def prove() -> None:
    prove_due(now())


@task
def look_again() -> None:
    """Every minute: an agent that is stopped goes on soon after its rows are put right."""
    review_stopped()
