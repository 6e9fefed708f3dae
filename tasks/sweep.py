"""Beat's sweeps: start what is due. The database decides what that is."""

from __future__ import annotations

from app.extensions import now
from app.refinement import sweep
from tasks.celery import task
from tasks.refinement import enqueue


@task
def weekly() -> None:
    sweep.sweep_weekly(now(), started=enqueue)


@task
def over_budget() -> None:
    sweep.sweep_over_budget(now(), started=enqueue)


@task
def missed_tick() -> None:
    sweep.make_up_missed_tick(now(), started=enqueue)
