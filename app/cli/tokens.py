"""`./whetstone agents token`: create, list, revoke and rotate an agent's API tokens. Each is printed once."""

from __future__ import annotations

import click
from sqlalchemy import select

from app.cli.common import CommandContext, as_usage, installation_command
from app.cli.printing import Cell, day_and_time, print_facts, print_hint, print_json, print_table, say
from app.errors import NotFound
from app.extensions import db, writing
from app.keys.provision import settle_keys
from app.keys.shredding import shred_files
from app.keys.tokens import issue_token, revoke_token, rotate_token
from app.models import COMMAND_LINE, Agent, AgentToken
from app.models.key import SCOPES, TokenOrigin, live_tokens
from app.shapes.agent import TokenShape, TokenTold
from app.silo import hash_token

HEADINGS = ("ID", "NAME", "MAY", "MADE (UTC)", "MADE BY", "SHOWN TO", "LAST USED (UTC)", "STATE")
MADE_BY = {
    TokenOrigin.FIRST: "with the agent",
    TokenOrigin.AGENT: "its own token",
    TokenOrigin.MODEL: "its YES",
    TokenOrigin.COMMAND_LINE: "command line",
}


@click.group()
def token() -> None:
    """Create, list, revoke and rotate the API tokens of an agent."""


@token.command()
@click.argument("agent_name", metavar="NAME")
@click.option("--name", default="command line", show_default=True, metavar="TOKEN", help="What the token is for.")
@click.option("--scopes", metavar="S,S", help="Of read, write, author and decide; all of them unless given.")
@installation_command()
def create(context: CommandContext, agent_name: str, name: str, scopes: str | None) -> None:
    """Make a token of the agent NAME, which is shown this once. It opens the agent's memories at once."""
    found = context.find_agent(agent_name)
    wanted = list(SCOPES) if scopes is None else [scope.strip() for scope in scopes.split(",") if scope.strip()]
    with as_usage(), writing():
        agent = Agent.lock(found.id)
        secret = issue_token(agent, by=COMMAND_LINE, name=name, scopes=wanted)
        settle_keys(agent, by=COMMAND_LINE)
    _show_once(context, secret)


@token.command("list")
@click.argument("agent_name", metavar="NAME")
@click.option("--all", "with_revoked", is_flag=True, help="Also those that were revoked.")
@installation_command()
def list_(context: CommandContext, agent_name: str, with_revoked: bool) -> None:
    """List the tokens of the agent NAME, newest first, without any secret."""
    agent = context.find_agent(agent_name)
    found = [each for each in _agent_tokens(agent) if each.is_live or with_revoked]
    if context.as_json:
        print_json([TokenShape.of(each).as_json() for each in found])
    elif found:
        print_table(HEADINGS, [_token_cells(each) for each in found])
        for each in found:
            if each.is_live and each.how == TokenOrigin.FIRST:
                say(f"{each.name} ({each.public_id}) was {each.shown_words}.")
                print_hint(f"agents token rotate {context.agent_argument(agent)} {each.public_id}", "Replace it")
    else:
        say(f"{agent.name} has no {'' if with_revoked else 'live '}token: it can't reach its memories over the API.")
        print_hint(f"agents token create {context.agent_argument(agent)}", "Make one")


@token.command()
@click.argument("agent_name", metavar="NAME")
@click.argument("which", metavar="TOKEN")
@installation_command()
def revoke(context: CommandContext, agent_name: str, which: str) -> None:
    """Revoke a token of the agent NAME for good: whoever uses it is out at once.

    Tokens that it let be made, and exceptions that it granted, end with it; the agent gets a new data key. TOKEN is
    its id, the beginning of it, or its name where one live token has it.
    """
    found = context.find_agent(agent_name)
    public_id = _find_token(context, found, which).public_id
    with writing():
        agent = Agent.lock(found.id)
        ended = revoke_token(agent, public_id, by=COMMAND_LINE)
        settle_keys(agent, by=COMMAND_LINE)
    shred_files()
    row, changed = ended.token, ended.was_live
    if context.as_json:
        print_json(TokenShape.of(row).as_json() | {"changed": changed} | ended.as_json())
        return
    say(f"Revoked {row.name} ({public_id})." if changed else f"{row.name} ({public_id}) was revoked already.")
    if ended.with_it:
        say(f"With it ended {ended.with_it}.")
    if not live_tokens(agent.id):
        say(f"It was the last one: {agent.name} can't reach its memories over the API any more.")
        print_hint(f"agents token create {context.agent_argument(agent)}", "Make another")


@token.command()
@click.argument("agent_name", metavar="NAME")
@click.argument("which", metavar="TOKEN")
@installation_command()
def rotate(context: CommandContext, agent_name: str, which: str) -> None:
    """Make a token of the same name and scopes in place of TOKEN, which is revoked in the same moment."""
    found = context.find_agent(agent_name)
    public_id = _find_token(context, found, which).public_id
    with writing():
        agent = Agent.lock(found.id)
        secret = rotate_token(agent, public_id, by=COMMAND_LINE)
        settle_keys(agent, by=COMMAND_LINE)
    shred_files()
    _show_once(context, secret, replaced=public_id)


def _show_once(context: CommandContext, secret: str, replaced: str | None = None) -> None:
    made = db.session.scalars(select(AgentToken).where(AgentToken.token_hash == hash_token(secret))).one()
    if context.as_json:
        told = TokenTold.of(made, id=made.public_id).as_json() | {"token": secret}
        print_json(told | ({"replaced": replaced} if replaced else {}))
        return
    say(f"API token: {secret}  (shown only this once)")
    print_facts(
        [("id", made.public_id), ("name", made.name), ("may", ", ".join(made.scopes)), ("in place of", replaced)]
    )


def _agent_tokens(agent: Agent) -> list[AgentToken]:
    """Newest first, the revoked ones too."""
    query = select(AgentToken).where(AgentToken.agent_id == agent.id).order_by(AgentToken.id.desc())
    return list(db.session.scalars(query))


def _find_token(context: CommandContext, agent: Agent, which: str) -> AgentToken:
    """By its id or the beginning of it, else by the name of a live one. Raises NotFound or UsageError."""
    tokens = _agent_tokens(agent)
    by_id = [each for each in tokens if len(which) >= 4 and each.public_id.startswith(which)]
    found = by_id or [each for each in tokens if each.name == which and each.is_live]
    if len(found) > 1:
        ids = ", ".join(each.public_id for each in found)
        raise click.UsageError(f"{which!r} means several tokens: {ids}. Say which by its id; nothing was changed.")
    if not found:
        raise NotFound(
            f"{agent.name} has no live token {which!r}. "
            f"`./whetstone agents token list {context.agent_argument(agent)}` names them."
        )
    return found[0]


def _token_cells(row: AgentToken) -> list[Cell]:
    state = "live" if row.revoked_at is None else f"revoked {day_and_time(row.revoked_at)}"
    may, made, used = ", ".join(row.scopes), day_and_time(row.created_at), day_and_time(row.last_used_at)
    return [row.public_id, row.name, may, made, MADE_BY[row.how], row.shown_to, used, state]
