"""`./whetstone grants`: the list of mechanic's exceptions; `grant_acts` asks for one and takes one back."""

from __future__ import annotations

from typing import Any

import click
from sqlalchemy import select

from app.cli import PartlyLazyGroup
from app.cli.common import CommandContext, installation_command
from app.cli.printing import Cell, day_and_time, print_hint, print_json, print_table, say
from app.cli.refinement_facts import SHORT
from app.extensions import db
from app.grants.endings import end_what_is_over
from app.models import OPEN_GRANTS, AccessGrant, Agent, User
from app.models.grant import NEWEST_GRANTS
from app.shapes.exception import NamedException

HEADINGS = ("id", "agent", "for", "status", "scope", "until", "views")

ELSEWHERE = dict.fromkeys(("request", "revoke"), "app.cli.grant_acts")


@click.group(cls=PartlyLazyGroup, elsewhere=ELSEWHERE)
def grants() -> None:
    """List mechanic's exceptions, ask an agent for one, take one back. No command prints what a memory says."""


@grants.command("list")
@click.option("--agent", "name", metavar="NAME", help="Only this agent's.")
@click.option("--all", "with_ended", is_flag=True, help="Also those that have ended.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The newest so many.")
@installation_command()
def list_(context: CommandContext, name: str | None, with_ended: bool, limit: int) -> None:
    """List exceptions, newest first: those that wait for an answer and those that are live."""
    end_what_is_over()
    query = select(AccessGrant, Agent.name, User.email).join(Agent, Agent.id == AccessGrant.agent_id)
    query = query.join(User, User.id == AccessGrant.user_id).where(context.concerns(AccessGrant, name))
    if not with_ended:
        query = query.where(AccessGrant.status.in_(OPEN_GRANTS))
    found = list(db.session.execute(query.order_by(*NEWEST_GRANTS.order).limit(limit)).tuples())
    if context.as_json:
        print_json([grant_json(*each) for each in found])
    elif found:
        print_table(HEADINGS, [_grant_row(*each) for each in found])
    else:
        say("There are none yet." if with_ended else "None is live, and none waits for an answer.")
        print_hint("grants request AGENT --as USER --category debugging --purpose TEXT --minutes 30", "Ask for one")


def grant_json(grant: AccessGrant, agent: str, email: str) -> dict[str, Any]:
    return NamedException.of(grant, agent=agent, user=email).as_json()


def _grant_row(grant: AccessGrant, agent: str, email: str) -> list[Cell]:
    scope = grant.scope if grant.refinement_id is None else f"refinement {grant.refinement_id[:SHORT]}"
    until = day_and_time(grant.expires_at, "–")
    return [grant.id[:SHORT], agent, email, str(grant.status), scope, until, grant.views]
