"""`./whetstone grants`: list mechanic's exceptions, ask an agent for one, take one back. Content is never printed."""

from __future__ import annotations

import time
from typing import Any

import click
from sqlalchemy import select

from app.asking.dependencies import Dependencies
from app.cli import json_option
from app.cli.common import (
    REFUSED,
    account_argument,
    account_option,
    as_usage,
    day_and_time,
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
from app.cli.follow import LOOK_SECONDS
from app.cli.found import find_exception, find_refinement
from app.cli.refinement_facts import SHORT
from app.errors import NotFound
from app.extensions import db, end_reading
from app.grants.asking import ask_agent
from app.grants.endings import end_what_is_over, tell_ending
from app.grants.request import WantedException, request_access
from app.grants.request import revoke_grant as take_back
from app.llm.litellm import LiteLLMClients
from app.models import COMMAND_LINE, OPEN_GRANTS, AccessGrant, Agent, GrantStatus, User
from app.models.grant import NEWEST_GRANTS
from app.shapes.exception import NamedException
from app.vocabulary import GRANT_STATUSES
from tasks.grants import enqueue
from tasks.refinement import worker_answers

EXIT_STATUS = {"granted": 0, "pending": 0, "denied": REFUSED, "unanswered": REFUSED, "revoked": REFUSED}
"""Every other end is a failure."""

HEADINGS = ("id", "agent", "for", "status", "scope", "until", "views")


@click.group()
def grants() -> None:
    """List mechanic's exceptions, ask an agent for one, take one back. No command prints what a memory says."""


@grants.command("list")
@click.option("--agent", "name", metavar="NAME", help="Only this agent's.")
@click.option("--all", "with_ended", is_flag=True, help="Also those that have ended.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The newest so many.")
@account_option
@json_option
def list_(name: str | None, with_ended: bool, limit: int, account: str | None, as_json: bool) -> None:
    """List exceptions, newest first: those that wait for an answer and those that are live."""
    with open_installation():
        end_what_is_over()
        found = _newest_grants(name, with_ended, limit, account)
        if as_json:
            print_json([_grant_json(*each) for each in found])
        elif found:
            print_table(HEADINGS, [_grant_row(*each) for each in found])
        else:
            say("There are none yet." if with_ended else "None is live, and none waits for an answer.")
            print_hint("grants request AGENT --as USER --category debugging --purpose TEXT --minutes 30", "Ask for one")


@grants.command()
@click.argument("name", metavar="AGENT")
@click.option("--as", "email", metavar="USER", required=True, help="The admin who will read, by e-mail address.")
@click.option("--category", required=True, help="debugging, safety, legal, agent_asked or other.")
@click.option("--purpose", metavar="TEXT", required=True, help="Why, in your words; the agent reads them, quoted.")
@click.option("--scope", default="ledger", show_default=True, help="ledger, or the ID of one of its refinements.")
@click.option("--minutes", metavar="N", required=True, help="15 to 480, counted from its YES.")
@click.option("--wait", is_flag=True, help="Wait for its answer; without a running worker, ask it here.")
@account_option
@json_option
def request(name: str, email: str, minutes: str, wait: bool, account: str | None, as_json: bool, **wish: str) -> int:
    """Ask AGENT to let USER read its ledger, or the history of one refinement, on the dashboard.

    Exit status: 0 granted (or asked, without --wait), 3 denied or refused by a rule, 1 any other end.
    """
    with open_installation():
        agent = find_agent(name, account)
        grant = _request_exception(agent, _find_user(agent, email), {**wish, "minutes": minutes})
        grant = _ask_and_wait(grant) if wait else _left_to_a_worker(grant)
        if as_json:
            print_json(_grant_json(grant, agent.name, email))
        else:
            _tell_outcome(grant, agent, account_argument(account))
        return EXIT_STATUS.get(grant.status, 1)


@grants.command()
@click.argument("number", metavar="ID")
@json_option
def revoke(number: str, as_json: bool) -> None:
    """Take an exception back at once, whoever asked for it. The beginning of its ID is enough."""
    with open_installation():
        end_what_is_over()
        found = find_exception(number)
        had_ended = not found.is_open
        grant = take_back(found.id, by=COMMAND_LINE)
        tell_ending(grant.id)
        if as_json:
            print_json(_grant_json(grant, *_agent_and_email(grant)))
        elif had_ended:
            say(f"It had ended already ({grant.status}); there was nothing to take back.")
        else:
            say("Taken back: nobody can read anything through it any more. One may ask again.")


def _request_exception(agent: Agent, user: User, wish: dict[str, str]) -> AccessGrant:
    """Write the question down. Raises UsageError for what can't be asked so, and Refused for what a rule forbids."""
    end_what_is_over()
    with as_usage():
        read = WantedException.read(wish | {"scope": _resolve_scope(wish["scope"])})
    return request_access(agent.id, read, for_user=user, by=COMMAND_LINE)


def _resolve_scope(named: str) -> str:
    """The ledger, or the whole id of a refinement of which the beginning was given."""
    return named if named.strip().lower() == "ledger" else find_refinement(named).id


def _find_user(agent: Agent, email: str) -> User:
    """Raises NotFound, and says whom there is."""
    people = db.session.scalars(select(User).where(User.account_id == agent.account_id).order_by(User.email)).all()
    for user in people:
        if user.email == email.strip().lower():
            return user
    raise NotFound(
        f"There is no user {email!r} in the account of {agent.name}. There are: "
        f"{', '.join(user.email for user in people) or 'none yet; `./whetstone users create` makes one'}."
    )


def _left_to_a_worker(grant: AccessGrant) -> AccessGrant:
    if not enqueue(grant.id):
        say_on_stderr(
            "The task queue did not accept it: it waits in the database until a worker runs (`./whetstone up`)."
        )
    return grant


def _ask_and_wait(grant: AccessGrant) -> AccessGrant:
    """The same when the agent has answered: asked by a worker that answers, or here."""
    if not (worker_answers() and enqueue(grant.id)):
        ask_agent(grant.id, Dependencies(LiteLLMClients()))
    return _wait_for_answer(grant.id)


def _wait_for_answer(grant_id: str) -> AccessGrant:
    """To its answer, which a worker may be waiting for. Ctrl-C ends the watching only."""
    while True:
        end_reading()
        grant = db.session.get_one(AccessGrant, grant_id, populate_existing=True)
        if grant.status != GrantStatus.PENDING:
            return grant
        end_reading()
        time.sleep(LOOK_SECONDS)


def _tell_outcome(grant: AccessGrant, agent: Agent, in_account: str) -> None:
    short = grant.id[:SHORT]
    until = day_and_time(grant.expires_at, "–")
    say(GRANT_STATUSES[grant.status].answer.format(agent=agent.name, id=grant.id, status=grant.status, until=until))
    match grant.status:
        case "granted":
            say(f"What it covers is shown on the dashboard only: /exceptions/{grant.id}")
            print_hint(f"grants revoke {short}", "Take it back")
        case "pending":
            print_hint(f"grants list --all{in_account}", "See its answer")
        case "failed":
            print_hint(f"audit --agent {quote_name(agent.name)}{in_account}", "The reason stands in the log")
    for note in grant.notes:
        say(f"{agent.name} wrote to the admins: “{note.text}”")


def _newest_grants(
    name: str | None, with_ended: bool, limit: int, account: str | None
) -> list[tuple[AccessGrant, str, str]]:
    query = select(AccessGrant, Agent.name, User.email).join(Agent, Agent.id == AccessGrant.agent_id)
    query = query.join(User, User.id == AccessGrant.user_id)
    if name:
        query = query.where(AccessGrant.agent_id == find_agent(name, account).id)
    else:
        query = query.where(AccessGrant.account_id == find_account(account).id)
    if not with_ended:
        query = query.where(AccessGrant.status.in_(OPEN_GRANTS))
    newest = query.order_by(*NEWEST_GRANTS.order).limit(limit)
    return list(db.session.execute(newest).tuples())


def _agent_and_email(grant: AccessGrant) -> tuple[str, str]:
    """Of the agent, and of the user that it is for."""
    return db.session.get_one(Agent, grant.agent_id).name, db.session.get_one(User, grant.user_id).email


def _grant_json(grant: AccessGrant, agent: str, email: str) -> dict[str, Any]:
    return NamedException.of(grant, agent=agent, user=email).as_json()


def _grant_row(grant: AccessGrant, agent: str, email: str) -> list[str | int | None]:
    scope = grant.scope if grant.refinement_id is None else f"refinement {grant.refinement_id[:SHORT]}"
    until = day_and_time(grant.expires_at, "–")
    return [grant.id[:SHORT], agent, email, str(grant.status), scope, until, grant.views]
