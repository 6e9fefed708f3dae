"""`./whetstone grants request` and `revoke`: ask an agent for an exception, take one back. Content is never printed."""

from __future__ import annotations

import time

import click
from sqlalchemy import select

from app.asking.calls import Dependencies
from app.asking.human_questions import current_rest
from app.cli.common import NOT_QUEUED, REFUSED, CommandContext, as_usage, installation_command
from app.cli.follow import LOOK_SECONDS
from app.cli.found import find_row
from app.cli.grants import grant_json
from app.cli.printing import day_and_time, print_hint, print_json, say, say_on_stderr
from app.cli.refinement_facts import SHORT
from app.errors import NotFound
from app.extensions import db, end_reading
from app.grants.asking import ask_agent
from app.grants.endings import end_what_is_over, tell_ending
from app.grants.request import WantedException, request_access
from app.grants.request import revoke_grant as take_back
from app.llm.litellm import LiteLLMClients
from app.models import COMMAND_LINE, AccessGrant, Agent, GrantStatus, Refinement, User
from app.vocabulary import GRANT_STATUSES
from tasks.grants import enqueue
from tasks.refinement import worker_answers

EXIT_STATUS = {"granted": 0, "pending": 0, "denied": REFUSED, "unanswered": REFUSED, "revoked": REFUSED}
"""Every other end is a failure."""


@click.command()
@click.argument("name", metavar="AGENT")
@click.option("--as", "email", metavar="USER", required=True, help="The admin who will read, by e-mail address.")
@click.option("--category", required=True, help="debugging, safety, legal, agent_asked or other.")
@click.option("--purpose", metavar="TEXT", required=True, help="Why, in your words; the agent reads them, quoted.")
@click.option("--scope", default="ledger", show_default=True, help="ledger, or the ID of one of its refinements.")
@click.option("--minutes", metavar="N", required=True, help="15 to 480, counted from its YES.")
@click.option("--wait", is_flag=True, help="Wait for its answer; without a running worker, ask it here.")
@installation_command()
def request(context: CommandContext, name: str, email: str, wait: bool, **wish: str) -> int:
    """Ask AGENT to let USER read its ledger, or the history of one refinement, on the dashboard.

    Exit status: 0 granted (or asked, without --wait), 3 denied or refused by a rule, 1 any other end.
    """
    agent = context.find_agent(name)
    user = _find_user(agent, email)
    end_what_is_over()
    with as_usage():
        scope = wish["scope"] if wish["scope"].strip().lower() == "ledger" else find_row(Refinement, wish["scope"]).id
        wanted = WantedException.read(wish | {"scope": scope})
    grant = request_access(agent.id, wanted, for_user=user, by=COMMAND_LINE)
    if wait:
        grant = _ask_and_wait(grant)
    elif not enqueue(grant.id):
        say_on_stderr(NOT_QUEUED)
    if context.as_json:
        print_json(grant_json(grant, agent.name, email))
    else:
        _tell_outcome(context, grant, agent)
    return EXIT_STATUS.get(grant.status, 1)


@click.command()
@click.argument("number", metavar="ID")
@installation_command(unique=True)
def revoke(context: CommandContext, number: str) -> None:
    """Take an exception back at once, whoever asked for it. The beginning of its ID is enough."""
    end_what_is_over()
    found = find_row(AccessGrant, number, context.given_account_id())
    had_ended = not found.is_open
    grant = take_back(found.id, by=COMMAND_LINE)
    tell_ending(grant.id)
    if context.as_json:
        agent, user = db.session.get_one(Agent, grant.agent_id), db.session.get_one(User, grant.user_id)
        print_json(grant_json(grant, agent.name, user.email))
    elif had_ended:
        say(f"It had ended already ({grant.status}); there was nothing to take back.")
    else:
        say("Taken back: nobody can read anything through it any more. One may ask again.")


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


def _ask_and_wait(grant: AccessGrant) -> AccessGrant:
    """The same when the agent has answered: asked by a worker that answers, or here. Ctrl-C ends the watching only."""
    if not (worker_answers() and enqueue(grant.id)):
        ask_agent(grant.id, Dependencies(LiteLLMClients()))
    grant_id = grant.id
    while True:
        end_reading()
        grant = db.session.get_one(AccessGrant, grant_id, populate_existing=True)
        if grant.status != GrantStatus.PENDING:
            return grant
        end_reading()
        time.sleep(LOOK_SECONDS)


def _tell_outcome(context: CommandContext, grant: AccessGrant, agent: Agent) -> None:
    short = grant.id[:SHORT]
    until = day_and_time(grant.expires_at, "–")
    rest = current_rest(agent.id)
    said = {"agent": agent.name, "id": grant.id, "status": grant.status, "until": until}
    say(GRANT_STATUSES[grant.status].answer.format(**said, rest=rest.words if rest else "24 hours"))
    match grant.status:
        case "granted":
            say(f"What it covers is shown on the dashboard only: /exceptions/{grant.id}")
            print_hint(f"grants revoke {short}", "Take it back")
        case "pending":
            print_hint(f"grants list --all{context.account_argument}", "See its answer")
        case "failed":
            print_hint(f"audit --agent {context.agent_argument(agent)}", "The reason stands in the log")
    for note in grant.notes:
        say(f"{agent.name} wrote to the admins: “{note.text}”")
