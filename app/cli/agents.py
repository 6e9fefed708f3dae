"""`./whetstone agents`: create, list, show, set, pause, resume and forget; `token` has a module of its own."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from app.cli.agent_facts import brief_change, describe_agents, print_agents, show_facts
from app.cli.common import CommandContext, as_usage, installation_command, open_installation, read_text, text_file
from app.cli.printing import print_facts, print_hint, print_json, say
from app.cli.tokens import token as token_commands
from app.extensions import db, writing
from app.keys.agent_keys import make_keys, share_with_tokens
from app.keys.forgetting import forget_agent as destroy
from app.keys.shredding import shred_files
from app.keys.tokens import issue_token
from app.models import COMMAND_LINE, Account, Agent
from app.models.agent import agents_of
from app.models.agent_settings import PROMPTS
from app.models.key import TokenOrigin
from app.refinement.fleet import DUE, SORTS, STATES, Fleet

F = TypeVar("F", bound=Callable[..., Any])


SETTINGS = (
    click.option("--api-base", metavar="URL", help="Address of a compatible server; '' for the provider's own."),
    click.option("--api-key-env", metavar="VAR", help="NAME of the environment variable that holds the key."),
    click.option("--budget", type=int, metavar="N", help="Tokens of core memory to stay under."),
    click.option("--threshold", metavar="F", help="Retention threshold, e.g. 0.75; 'default' for the default."),
    click.option("--recall-probes", type=int, metavar="N", help="Questions before and after a refinement, 0 to 10."),
    click.option(
        "--max-confirmed-losses", metavar="N", help="Confirmed losses a refinement; 'default' for the operator's."
    ),
    click.option("--second-reader", metavar="M", help="A LiteLLM name of the second reader; '' for none."),
    click.option("--second-reader-api-base", metavar="URL", help="Its address; '' for the provider's own."),
    click.option("--second-reader-api-key-env", metavar="VAR", help="NAME of the variable that holds its key."),
    click.option(
        "--second-reader-action", metavar="A", help="'flag' or 'reverse'; 'default' for the operator's setting."
    ),
    text_file("--system-prompt-file", "Who the agent is; an empty file for none, - for standard input."),
    text_file("--refinement-prompt-file", "The agent's own refinement prompt; an empty file for the default."),
    text_file("--reflection-prompt-file", "The agent's own reflection prompt; an empty file for the default."),
    text_file(
        "--memory-reflection-prompt-file", "The agent's own memory reflection prompt; an empty file for the default."
    ),
)


def settings_options(command: F) -> F:
    """The settings that `create` and `set` share. Each is None when it was not given."""
    for option in reversed(SETTINGS):
        command = option(command)
    return command


@click.group()
def agents() -> None:
    """Create, list, show, set, pause, resume and forget agents, and look after their tokens."""


agents.add_command(token_commands)


@agents.command()
@click.argument("name")
@click.option("--model", required=True, metavar="M", help="A LiteLLM name such as openai/gpt-5, or whetstone/offline.")
@settings_options
@installation_command(opened=False)
def create(context: CommandContext, name: str, model: str, **given: Any) -> None:
    """Create an agent with its keys and its first API token, which is shown this once."""
    fields = _settings_fields(given)
    with open_installation():
        home = context.find_account()
        with as_usage(), writing():
            Account.lock(home.id)
            agent = Agent.create(home.id, name=name, model_id=model, by=COMMAND_LINE, **fields)
            keys = make_keys(agent)
            token = issue_token(agent, by=COMMAND_LINE, how=TokenOrigin.FIRST)
            share_with_tokens(agent, keys)
        if context.as_json:
            print_json({"id": agent.id, "name": agent.name, "token": token})
            return
        say(f"Created {agent.name} ({agent.model_id}) in the account {home.name!r}.")
        say(f"API token: {token}  (shown only this once)")
        print_hint(f"memories import FILE --agent {context.agent_argument(agent)}", "Give it its memories")


@agents.command("list")
@click.option("--query", default="", metavar="TEXT", help="Only those whose name contains it.")
@click.option("--state", default="", metavar="STATE", help=f"Only those that are: {', '.join(filter(None, STATES))}.")
@click.option("--outcome", default="", metavar="STATUS", help="Only those whose last refinement ended so.")
@click.option("--due", default="", metavar="WHEN", help=f"Only those whose next run is within: {', '.join(DUE)}.")
@click.option("--sort", default="", metavar="COLUMN", help=f"{', '.join(SORTS)}; with - before it, turned round.")
@installation_command(opened=False)
def list_(context: CommandContext, **typed: str) -> None:
    """List the agents of an account, by name unless sorted."""
    with open_installation():
        home = context.find_account()
        with as_usage():
            fleet = Fleet.read(home.id, typed)
        found = list(db.session.scalars(fleet.agents().order_by(*fleet.order.order)))
        described = describe_agents(found)
        if context.as_json:
            print_json(described)
        elif found:
            print_agents(found, described)
        elif fleet.is_filtered:
            say(f"No agents of the account {home.name!r} match.")
        else:
            say(f"There are no agents in the account {home.name!r} yet.")
            print_hint("agents create NAME --model MODEL", "Create one")
            print_hint("demo", "Or make two that need no API key")


@agents.command()
@click.argument("name")
@installation_command()
def show(context: CommandContext, name: str) -> None:
    """Show one agent: mass, counts, settings, and whether it needs a refinement."""
    agent = context.find_agent(name)
    described = describe_agents([agent])[0]
    if context.as_json:
        print_json(described)
        return
    show_facts(agent, described)
    if described["stopped_at"]:
        print_hint(f"verify --agent {context.agent_argument(agent)}", "Copy the database, then see where it differs")
    elif described["open_refinement"]:
        print_hint(f"refinements show {described['open_refinement']}", "Look at its refinement")
    elif described["needs_refinement"]:
        print_hint(f"refine {context.agent_argument(agent)} --wait", "Refine it now")


@agents.command("set")
@click.argument("name")
@click.option("--name", "new_name", metavar="NAME", help="A new name.")
@click.option("--model", metavar="M", help="A LiteLLM name.")
@settings_options
@click.option("--active/--inactive", default=None, help="An inactive agent is never refined.")
@installation_command(opened=False)
def set_(
    context: CommandContext, name: str, new_name: str | None, model: str | None, active: bool | None, **given: Any
) -> None:
    """Change settings of an agent, and print what changed. A running refinement keeps those that it began with."""
    fields = _settings_fields(given, name=new_name, model_id=model, active=active)
    if not fields:
        raise click.UsageError("Nothing to set: give at least one option.")
    with open_installation():
        found = context.find_agent(name)
        with as_usage(), writing():
            Account.lock(found.account_id)
            agent = Agent.lock(found.id)
            before = agent.configuration()
            changed = agent.change(by=COMMAND_LINE, **fields)
        after = agent.configuration()
        if context.as_json:
            differences = {field: {"before": before[field], "after": after[field]} for field in changed}
            print_json({"id": agent.id, "name": agent.name, "changed": differences})
        elif not changed:
            say(f"Nothing changed: {agent.name} is set so already.")
        else:
            say(f"Changed {agent.name}:")
            print_facts((field, brief_change(field, before[field], after[field])) for field in changed)


@agents.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="All agents of the account.")
@installation_command(opened=False)
def pause(context: CommandContext, names: tuple[str, ...], everyone: bool) -> None:
    """Start no refinement of these agents by itself; running ones go on, and you can still start one."""
    _set_paused(context, names, everyone, paused=True)


@agents.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="All agents of the account.")
@installation_command(opened=False)
def resume(context: CommandContext, names: tuple[str, ...], everyone: bool) -> None:
    """Let the timetable start refinements of these agents again."""
    _set_paused(context, names, everyone, paused=False)


@agents.command()
@click.argument("name")
@click.option("--yes-forget", "again", metavar="NAME", help="The agent's name once more. Nothing undoes this.")
@installation_command()
def forget(context: CommandContext, name: str, again: str | None) -> None:
    """Destroy the keys of an agent: nobody ever reads its memories again. The only act that nothing undoes.

    Its record stays: audit log, counts and dates. Backups of the database hold its keys until they age out.
    """
    agent = context.find_agent(name)
    agent.check_not_forgotten()
    if again != agent.name:
        command = f"agents forget {shlex.quote(agent.name)} --yes-forget {context.agent_argument(agent)}"
        raise click.UsageError(f"Nothing undoes this. If you mean it, say the name once more: ./whetstone {command}")
    done = destroy(agent.id, by=COMMAND_LINE)
    shredded = shred_files()
    if context.as_json:
        print_json({"id": agent.id, "name": agent.name, **vars(done), "shredded": shredded})
        return
    say(f"Forgot {agent.name}: {done.keys:,} sealed keys are destroyed, {done.memories:,} memories closed for ever.")
    say("Backups of the database from before still hold the keys until they age out.")
    if not shredded:
        say("Others use the database's files just now: a worker's upkeep cleans them of the keys within a minute.")
    print_hint(f"verify --agent {context.agent_argument(agent)}", "Its record stays; check that it is intact")


def _set_paused(context: CommandContext, names: tuple[str, ...], everyone: bool, *, paused: bool) -> None:
    """All of them in one transaction, or none."""
    if bool(names) == everyone:
        raise click.UsageError("Name the agents, or give --all.")
    with open_installation():
        found = list(agents_of(context.find_account().id)) if everyone else [context.find_agent(each) for each in names]
        before = {agent.id: agent.paused for agent in found}
        with writing():
            locked = [Agent.lock(agent_id) for agent_id in sorted(before)]
            for agent in locked:
                agent.pause(by=COMMAND_LINE) if paused else agent.resume(by=COMMAND_LINE)
        done = [
            {"id": agent.id, "name": agent.name, "paused": agent.paused, "changed": before[agent.id] != paused}
            for agent in locked
        ]
        if context.as_json:
            print_json(done if everyone or len(done) > 1 else done[0])
        else:
            _tell_paused(done, paused)


def _tell_paused(done: list[dict[str, Any]], paused: bool) -> None:
    changed = [each["name"] for each in done if each["changed"]]
    same = [each["name"] for each in done if not each["changed"]]
    if changed:
        say(f"{'Paused' if paused else 'Resumed'} {', '.join(changed)}.")
    if same:
        say(f"{', '.join(same)}: {'paused' if paused else 'not paused'} already.")
    if not done:
        say("There are no agents in this account.")


def _settings_fields(given: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What was given, by the names of the agent's columns."""
    fields = {
        "api_base": given["api_base"],
        "api_key_env": given["api_key_env"],
        "core_token_budget": given["budget"],
        "refinement_threshold": _or_default(given["threshold"]),
        "recall_probes": given["recall_probes"],
        "max_confirmed_losses": _parse_count(_or_default(given["max_confirmed_losses"])),
        "second_reader_model": given["second_reader"],
        "second_reader_api_base": given["second_reader_api_base"],
        "second_reader_api_key_env": given["second_reader_api_key_env"],
        "second_reader_action": _or_default(given["second_reader_action"]),
        **{name: read_text(given[f"{name}_file"]) for name in PROMPTS},
    }
    return {field: value for field, value in (fields | more).items() if value is not None}


def _or_default(given: str | None) -> str | None:
    """Empty for the default."""
    return "" if given == "default" else given


def _parse_count(given: str | None) -> int | str | None:
    """A whole number, or the text as it was given, which the setting refuses with its range."""
    return int(given) if given and given.isascii() and given.isdigit() and len(given) < 12 else given
