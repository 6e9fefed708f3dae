"""`./whetstone refine` and `./whetstone refinements`: start one, watch it, look back at it, stop it."""

from __future__ import annotations

import click
from flask import Flask
from sqlalchemy import select

from app.cli import follow, json_option
from app.cli.common import (
    REFUSED,
    account_argument,
    account_option,
    find_account,
    find_agent,
    open_installation,
    print_hint,
    print_json,
    print_table,
    quote_name,
    say,
    say_on_stderr,
)
from app.cli.found import find_refinement
from app.cli.refinement_facts import (
    FAILED_HEADINGS,
    HEADINGS,
    SHORT,
    failed_row,
    refinement_row,
    show_page,
    steps_as_json,
    tell_outcome,
)
from app.demo.pace import paced_clients
from app.extensions import db
from app.llm.litellm import LiteLLMClients
from app.models import COMMAND_LINE, OPEN_STATES, Agent, Mode, Refinement, Trigger
from app.models.refinement import NEWEST_REFINEMENTS
from app.refinement.failures import failure_conditions
from app.refinement.start import request_stop, start_refinement
from app.refinement.sweep import close_stalled
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
@account_option
@json_option
def refine(name: str, mode: str, wait: bool, account: str | None, as_json: bool) -> int:
    """Start a refinement of AGENT: exact duplicates first, then its consent, then its own guarded changes.

    Exit status: 0 completed (or started), 3 declined or rolled back, 1 any other end.
    """
    with open_installation() as app:
        agent = find_agent(name, account)
        refinement = (
            _start_and_watch(app, agent, mode, as_json) if wait else _start_on_queue(agent, mode, as_json, account)
        )
        if as_json:
            print_json(NamedRefinement.of(refinement, agent=agent.name).as_json())
        elif wait:
            tell_outcome(refinement)
        return EXIT_STATUS.get(refinement.status, 1)


@click.group()
def refinements() -> None:
    """List, show and stop refinements."""


@refinements.command("list")
@click.option("--agent", "name", metavar="NAME", help="Only this agent's.")
@click.option("--open", "only_open", is_flag=True, help="Only those that have not ended.")
@click.option(
    "--failed", is_flag=True, help="Only those that failed or were interrupted in 7 days, and none came since."
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The newest so many.")
@account_option
@json_option
def list_(name: str | None, only_open: bool, failed: bool, limit: int, account: str | None, as_json: bool) -> None:
    """List refinements, newest first."""
    with open_installation():
        found = _newest_refinements(name, only_open, failed, limit, account)
        if as_json:
            print_json([NamedRefinement.of(refinement, agent=agent).as_json() for refinement, agent in found])
        elif found and failed:
            print_table(FAILED_HEADINGS, [failed_row(refinement, agent) for refinement, agent in found])
            print_hint("refinements show ID", "Look at one")
        elif found:
            print_table(HEADINGS, [refinement_row(refinement, agent) for refinement, agent in found])
            print_hint("refinements show ID", "Look at one")
        else:
            say("None is open." if only_open else "None failed in 7 days." if failed else "There are none yet.")
            print_hint("refine AGENT --wait", "Start one")


@refinements.command()
@click.argument("number", metavar="ID")
@json_option
def show(number: str, as_json: bool) -> int:
    """Show one refinement and its steps. The beginning of its ID is enough."""
    with open_installation():
        refinement = find_refinement(number)
        agent = db.session.get_one(Agent, refinement.agent_id)
        if as_json:
            print_json(
                NamedRefinement.of(refinement, agent=agent.name).as_json() | {"steps": steps_as_json(refinement)}
            )
        else:
            show_page(refinement, agent)
        return 0


@refinements.command()
@click.argument("number", metavar="ID")
@json_option
def stop(number: str, as_json: bool) -> None:
    """Stop a refinement: at once if no worker has begun, otherwise before its next change. Earlier changes are kept."""
    with open_installation():
        close_stalled()
        found = find_refinement(number)
        had_ended = not found.is_open
        refinement = request_stop(found.id, by=COMMAND_LINE)
        if as_json:
            print_json(
                NamedRefinement.of(refinement, agent=db.session.get_one(Agent, refinement.agent_id).name).as_json()
            )
        elif had_ended:
            say(f"It had ended already ({STATUSES[refinement.status].words}); there was nothing to stop.")
        elif refinement.is_open:
            say("It stops before its next change; what was changed until then stays.")
            print_hint(f"refinements show {refinement.id[:SHORT]}", "See how it ended")
        else:
            say("Stopped before a worker began; nothing was changed.")


def _start_on_queue(agent: Agent, mode: str, as_json: bool, account: str | None) -> Refinement:
    """Put it on the queue. Without a broker the row waits, and that is said."""
    refinement = _create_refinement(agent, mode)
    taken = enqueue(refinement.id)
    if not as_json:
        say(f"Started refinement {refinement.id} of {agent.name}.")
        print_hint(f"refinements show {refinement.id[:SHORT]}", "Follow it")
    if not taken:
        named = quote_name(agent.name) + account_argument(account)
        say_on_stderr(
            "The task queue did not accept it: it waits in the database until a worker runs (`./whetstone up`). "
            "To do it here: "
            f"./whetstone refinements stop {refinement.id[:SHORT]} && ./whetstone refine {named} --wait"
        )
    return refinement


def _start_and_watch(app: Flask, agent: Agent, mode: str, as_json: bool) -> Refinement:
    """Start it and see it through: by a worker that answers, or here."""
    tell = (lambda line: None) if as_json else say
    by_worker = worker_answers()
    refinement_id = _create_refinement(agent, mode).id
    if not as_json:
        mass = f"{agent.core_count:,} memories, {agent.core_token_usage:,} tokens"
        say(f"Refining {agent.name} ({agent.model_id}): {mass}")
    if by_worker and enqueue(refinement_id):
        follow.watch_refinement(refinement_id, tell)
    else:
        follow.refine_here(app, refinement_id, paced_clients(refinement_id, LiteLLMClients()), tell)
    return db.session.get_one(Refinement, refinement_id, populate_existing=True)


def _create_refinement(agent: Agent, mode: str) -> Refinement:
    """Raises AlreadyRunning and the like. What a dead worker left open is closed first."""
    close_stalled()
    return start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=Mode(mode))


def _newest_refinements(
    name: str | None, only_open: bool, failed: bool, limit: int, account: str | None
) -> list[tuple[Refinement, str]]:
    query = select(Refinement, Agent.name).join(Agent, Agent.id == Refinement.agent_id)
    if name:
        query = query.where(Refinement.agent_id == find_agent(name, account).id)
    else:
        query = query.where(Refinement.account_id == find_account(account).id)
    if failed:
        query = query.where(*failure_conditions(find_account(account).id))
    if only_open:
        query = query.where(Refinement.status.in_(OPEN_STATES))
    newest = query.order_by(*NEWEST_REFINEMENTS.order).limit(limit)
    return list(db.session.execute(newest).tuples())
