"""`./whetstone models`: renaming one for all agents that have it, and asking one whether it answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from sqlalchemy import or_, select

from app.asking.calls import Dependencies
from app.asking.model_test import check_model
from app.cli.common import CommandContext, as_usage, installation_command, open_installation
from app.cli.printing import print_facts, print_json, print_table, say
from app.extensions import db, writing
from app.installation.model_usage import CALLS_TIMED, ModelUsage, UsedModel
from app.llm.litellm import LiteLLMClients
from app.models import COMMAND_LINE, Account, Agent
from app.models.model_test import ModelTested
from app.values.plural import count_nouns, noun_for

HEADINGS = ("AGENT", "ACCOUNT")
USAGE_HEADINGS = ("MODEL", "AGENTS", "CALLS", "FAILED", "TOKENS", "COST", "MEDIAN S", "KEY")


@click.group()
def models() -> None:
    """List the models in use; test one; rename one for all agents that have it."""


@models.command(name="list")
@installation_command()
def list_models(context: CommandContext) -> None:
    """List the account's models: agents, the month's calls, cost and latency, and whether workers have the key."""
    usage = ModelUsage(context.find_account().id)
    if context.as_json:
        print_json(usage.as_json())
        return
    if not usage.models:
        say("No agent has a model yet, and none was asked this month.")
        return
    print_table(USAGE_HEADINGS, [_usage_row(each) for each in usage.models])
    if usage.left_off:
        say(f"{count_nouns(usage.left_off, 'more model')} not shown.")
    say(f"Since {usage.since:%Y-%m-%d}. Median seconds of the newest {CALLS_TIMED:,} calls at most.")


def _usage_row(used: UsedModel) -> list[str | int | None]:
    seconds = None if used.median_seconds is None else f"{used.median_seconds:.1f}"
    counts = (used.agents, used.calls, used.failures, used.tokens)
    return [used.model_id, *counts, used.cost_words, seconds, used.key_words]


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


@models.command()
@click.argument("name", metavar="AGENT")
@installation_command()
def test(context: CommandContext, name: str) -> None:
    """Ask an agent's model for one word, here, with nothing of the agent; say how long it took, or why it failed.

    The call is paid for and booked like any other. This process needs the model's key, as a worker does.
    """
    agent = context.find_agent(name)
    tested = check_model(agent.id, Dependencies(LiteLLMClients()))
    if context.as_json:
        print_json({"answered": tested.answered, **asdict(tested)})
    else:
        _tell_test(tested)
    if not tested.answered:
        raise click.exceptions.Exit(1)


def _tell_test(tested: ModelTested) -> None:
    answered = f"answered in {tested.seconds:.1f} s" if tested.answered else "did not answer"
    say(f"{tested.model_id} {answered}.")
    window = "not known" if tested.context_window is None else f"{tested.context_window:,} tokens"
    key = f"${tested.key_variable} is {'set' if tested.key_found else 'not set'} here" if tested.key_variable else None
    print_facts([("context window", window), ("key", key), ("why", tested.failure)])


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
