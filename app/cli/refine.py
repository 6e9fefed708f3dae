"""`./whetstone refine` and `sweep`, `refinements show` and `stop`: start one or what is due, watch it, stop it."""

from __future__ import annotations

from typing import Any

import click

from app.cli.common import NOT_QUEUED, REFUSED, CommandContext, installation_command
from app.cli.follow import refine_here, watch_refinement
from app.cli.found import find_row
from app.cli.printing import print_hint, print_json, say, say_on_stderr
from app.cli.refinement_facts import SHORT, show_page, tell_outcome
from app.demo import paced_clients
from app.extensions import db, now
from app.history.progress import Progress
from app.history.steps import steps_of
from app.llm.litellm import LiteLLMClients
from app.models import COMMAND_LINE, Agent, Mode, Refinement, Trigger
from app.models.base import iso
from app.refinement.start import request_stop, start_refinement
from app.refinement.sweep import close_stalled, sweep_over_budget, sweep_weekly
from app.shapes.refinement import NamedRefinement
from app.vocabulary import STATUSES
from tasks.refinement import enqueue, worker_answers

EXIT_STATUS = {"completed": 0, "queued": 0, "asking": 0, "running": 0, "declined": REFUSED, "rolled_back": REFUSED}
"""Every other end is a failure."""


@click.command()
@click.argument("name", metavar="AGENT")
@click.option(
    "--mode",
    type=click.Choice(["full", "dedup_only"]),
    default="full",
    show_default=True,
    help="dedup_only removes exact duplicates by hash, without consent or model.",
)
@click.option("--wait", is_flag=True, help="Watch it to its end; without a running worker, do the work here.")
@installation_command()
def refine(context: CommandContext, name: str, mode: str, wait: bool) -> int:
    """Start a refinement of AGENT: exact duplicates first, then its consent, then its own guarded changes.

    Exit status: 0 completed (or started), 3 declined or rolled back, 1 any other end.
    """
    agent = context.find_agent(name)
    refinement = (_start_and_watch if wait else _start_on_queue)(context, agent, mode)
    if context.as_json:
        print_json(_refinement_json(refinement, agent))
    elif wait:
        tell_outcome(refinement)
    return EXIT_STATUS.get(refinement.status, 1)


@click.command()
@click.option("--weekly", is_flag=True, help="Only agents due by schedule.")
@click.option("--over-budget", is_flag=True, help="Only what is over its budget.")
@installation_command(account=False)
def sweep(context: CommandContext, weekly: bool, over_budget: bool) -> None:
    """Start what is due now: active, unpaused agents that need a refinement and had no attempt in the last 24 hours.

    Running it twice does no harm.
    """
    taken: dict[str, bool] = {}

    def put_on_queue(refinement_id: str) -> None:
        taken[refinement_id] = enqueue(refinement_id)

    if weekly or not over_budget:
        sweep_weekly(now(), started=put_on_queue)
    if over_budget or not weekly:
        sweep_over_budget(now(), started=put_on_queue)
    if context.as_json:
        print_json({"started": list(taken)})
    elif taken:
        say(f"Started {len(taken):,}:")
        for refinement_id in taken:
            say(f"  {refinement_id}")
        print_hint("refinements list", "Follow them")
    else:
        say("Nothing is due.")
    if not all(taken.values()):
        say_on_stderr(
            "The task queue did not accept them: "
            "they wait in the database until `./whetstone up` or a worker with a beat runs."
        )


@click.command()
@click.argument("number", metavar="ID")
@click.option("--follow", is_flag=True, help="Tell each step as it happens, until it has ended. Ctrl-C only leaves.")
@installation_command(unique=True)
def show(context: CommandContext, number: str, follow: bool) -> None:
    """Show one refinement and its steps. The beginning of its ID is enough."""
    refinement = find_row(Refinement, number, context.given_account_id())
    if follow and refinement.is_open:
        watch_refinement(refinement.id, (lambda line: None) if context.as_json else say)
        db.session.refresh(refinement)
        if not context.as_json:
            return tell_outcome(refinement)
    agent = db.session.get_one(Agent, refinement.agent_id)
    if context.as_json:
        print_json(_refinement_json(refinement, agent) | _steps_json(refinement, agent))
    else:
        show_page(refinement, agent)
    return None


@click.command()
@click.argument("number", metavar="ID")
@installation_command(unique=True)
def stop(context: CommandContext, number: str) -> None:
    """Stop a refinement: at once if no worker has begun, otherwise before its next change. Earlier changes are kept."""
    close_stalled()
    found = find_row(Refinement, number, context.given_account_id())
    had_ended = not found.is_open
    refinement = request_stop(found.id, by=COMMAND_LINE)
    if context.as_json:
        print_json(_refinement_json(refinement, db.session.get_one(Agent, refinement.agent_id)))
    elif had_ended:
        say(f"It had ended already ({STATUSES[refinement.status].words}); there was nothing to stop.")
    elif refinement.is_open:
        say("It stops before its next change; what was changed until then stays.")
        print_hint(f"refinements show {refinement.id[:SHORT]}", "See how it ended")
    else:
        say("Stopped before a worker began; nothing was changed.")


def _refinement_json(refinement: Refinement, agent: Agent) -> dict[str, Any]:
    return NamedRefinement.of(refinement, agent=agent.name).as_json()


def _steps_json(refinement: Refinement, agent: Agent) -> dict[str, Any]:
    steps = steps_of(refinement)
    progress = Progress.of(refinement, agent, steps)
    told = [{"at": iso(step.at), "step": step.name, "data": step.data} for step in steps]
    return {"steps": told, "now": progress.as_json() if progress else None}


def _start_on_queue(context: CommandContext, agent: Agent, mode: str) -> Refinement:
    """Put it on the queue. Without a broker the row waits, and that is said."""
    refinement = _create_refinement(agent, mode)
    taken = enqueue(refinement.id)
    if not context.as_json:
        say(f"Started refinement {refinement.id} of {agent.name}.")
        print_hint(f"refinements show {refinement.id[:SHORT]} --follow", "Follow it")
    if not taken:
        here = f"./whetstone refine {context.agent_argument(agent)} --wait"
        stop_it = f"./whetstone refinements stop {refinement.id[:SHORT]}"
        say_on_stderr(f"{NOT_QUEUED} To do it here: {stop_it} && {here}")
    return refinement


def _start_and_watch(context: CommandContext, agent: Agent, mode: str) -> Refinement:
    """Start it and see it through: by a worker that answers, or here."""
    tell = (lambda line: None) if context.as_json else say
    by_worker = worker_answers()
    refinement_id = _create_refinement(agent, mode).id
    if not context.as_json:
        mass = f"{agent.core_count:,} memories, {agent.core_token_usage:,} tokens"
        say(f"Refining {agent.name} ({agent.model_id}): {mass}")
    if by_worker and enqueue(refinement_id):
        watch_refinement(refinement_id, tell)
    else:
        refine_here(refinement_id, paced_clients(refinement_id, LiteLLMClients()), tell)
    return db.session.get_one(Refinement, refinement_id, populate_existing=True)


def _create_refinement(agent: Agent, mode: str) -> Refinement:
    """Raises AlreadyRunning and the like. What a dead worker left open is closed first."""
    close_stalled()
    return start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=Mode(mode))
