"""`./whetstone models`: what concerns the models of many agents at once."""

from __future__ import annotations

from typing import Any

import click
from sqlalchemy import or_, select

from app.cli.common import CommandContext, as_usage, installation_command, open_installation
from app.cli.printing import print_json, print_table, say
from app.extensions import db, writing
from app.models import COMMAND_LINE, Account, Agent
from app.values.plural import count_nouns, noun_for

HEADINGS = ("AGENT", "ACCOUNT")


@click.group()
def models() -> None:
    """Rename a model for all agents that have it."""


@models.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--dry-run", is_flag=True, help="Say whose model it is; change nothing.")
@installation_command(opened=False)
def rename(context: CommandContext, old: str, new: str, dry_run: bool) -> None:
    """Give every agent whose model or second reader is OLD the model NEW: of all accounts, unless --account names one.
    All or none.

    As with every change of a model, exceptions that these agents gave end. Nothing else of them changes.
    """
    with open_installation():
        with as_usage(), writing():
            renamed = _rename_locked(_find_accounts(context), old, new, dry_run)
        if context.as_json:
            agents = [{"id": agent.id, "name": agent.name, "account": home} for agent, home in renamed]
            print_json({"old": old, "new": new, "dry_run": dry_run, "agents": agents})
            return
        if not renamed:
            say(f"No agent has the model {old!r}; nothing was changed.")
            return
        print_table(HEADINGS, [[agent.name, home] for agent, home in renamed])
        counted = count_nouns(len(renamed), "agent")
        if dry_run:
            say(f"{counted} would have the model {new!r}. Nothing was changed.")
        else:
            say(f"{counted} now {noun_for(len(renamed), 'has', 'have')} the model {new!r}.")


def _find_accounts(context: CommandContext) -> list[Account]:
    """The named one, or all. Raises NotFound."""
    if context.account is not None:
        return [context.find_account()]
    return list(db.session.scalars(select(Account).order_by(Account.id)))


_MODELS = ("model_id", "second_reader_model")


def _rename_locked(accounts: list[Account], old: str, new: str, dry_run: bool) -> list[tuple[Agent, str]]:
    """The agents and the names of their accounts, in the caller's transaction. Raises Invalid."""
    homes = {account.id: account.name for account in accounts}
    has_it = or_(*(getattr(Agent, name) == old for name in _MODELS))
    query = select(Agent.id).where(has_it, Agent.account_id.in_(homes)).order_by(Agent.id)
    agents = [Agent.lock(agent_id) for agent_id in db.session.scalars(query).all()]
    for agent in agents if not dry_run else ():
        wanted: dict[str, Any] = {name: new for name in _MODELS if getattr(agent, name) == old}
        agent.change(by=COMMAND_LINE, **wanted)
    return [(agent, homes[agent.account_id]) for agent in agents]
