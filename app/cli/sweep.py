"""`./whetstone sweep`: what beat says at its times, said by hand: start what is due now."""

from __future__ import annotations

import click

from app.cli import json_option
from app.cli.common import open_installation, print_hint, print_json, say, say_on_stderr
from app.extensions import now
from app.refinement import sweep as sweeps
from tasks.refinement import enqueue


@click.command()
@click.option("--weekly", is_flag=True, help="Only agents due by schedule.")
@click.option("--over-budget", is_flag=True, help="Only what is over its budget.")
@json_option
def sweep(weekly: bool, over_budget: bool, as_json: bool) -> None:
    """Start what is due now: active, unpaused agents that need a refinement and had no attempt in the last 24 hours.

    Running it twice does no harm.
    """
    with open_installation():
        taken: dict[str, bool] = {}

        def put_on_queue(refinement_id: str) -> None:
            taken[refinement_id] = enqueue(refinement_id)

        everything = weekly == over_budget
        if weekly or everything:
            sweeps.sweep_weekly(now(), started=put_on_queue)
        if over_budget or everything:
            sweeps.sweep_over_budget(now(), started=put_on_queue)
    if as_json:
        print_json({"started": list(taken)})
    elif not taken:
        say("Nothing is due.")
        return
    else:
        say(f"Started {len(taken):,}:")
        for refinement_id in taken:
            say(f"  {refinement_id}")
        print_hint("refinements list", "Follow them")
    if not all(taken.values()):
        say_on_stderr(
            "The task queue did not accept them: "
            "they wait in the database until `./whetstone up` or a worker with a beat runs."
        )
