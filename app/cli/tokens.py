"""`./whetstone agents token`: create, list, revoke and rotate an agent's API tokens. Each is printed once."""

from __future__ import annotations

import click
from sqlalchemy import select

from app.cli import json_option
from app.cli.common import (
    account_argument,
    account_option,
    as_usage,
    day_and_time,
    find_agent,
    open_installation,
    print_facts,
    print_hint,
    print_json,
    print_table,
    quote_name,
    say,
)
from app.errors import NotFound
from app.extensions import db, writing
from app.keys.provision import ensure_keys
from app.keys.shredding import shred_files
from app.models import COMMAND_LINE, Agent, AgentToken
from app.models.key import SCOPES, live_tokens, share_with_tokens
from app.shapes.token import TokenShape, TokenTold
from app.silo import hash_token

HEADINGS = ("ID", "NAME", "MAY", "MADE (UTC)", "LAST USED (UTC)", "STATE")


@click.group()
def token() -> None:
    """Create, list, revoke and rotate the API tokens of an agent."""


@token.command()
@click.argument("agent_name", metavar="NAME")
@click.option("--name", default="command line", show_default=True, metavar="TOKEN", help="What the token is for.")
@click.option("--scopes", metavar="S,S", help="Of read, write, author and decide; all of them unless given.")
@account_option
@json_option
def create(agent_name: str, name: str, scopes: str | None, account: str | None, as_json: bool) -> None:
    """Make a token of the agent NAME, which is shown this once. It opens the agent's memories at once."""
    with open_installation():
        found = find_agent(agent_name, account)
        wanted = list(SCOPES) if scopes is None else [scope.strip() for scope in scopes.split(",") if scope.strip()]
        with as_usage(), writing():
            agent = Agent.lock(found.id)
            secret = AgentToken.issue(agent, by=COMMAND_LINE, name=name, scopes=wanted)
            _seal_keys(agent)
        _show_once(_row_of(secret), secret, as_json, replaced=None)


@token.command("list")
@click.argument("agent_name", metavar="NAME")
@click.option("--all", "with_revoked", is_flag=True, help="Also those that were revoked.")
@account_option
@json_option
def list_(agent_name: str, with_revoked: bool, account: str | None, as_json: bool) -> None:
    """List the tokens of the agent NAME, newest first, without any secret."""
    with open_installation():
        agent = find_agent(agent_name, account)
        found = [each for each in _agent_tokens(agent) if each.is_live or with_revoked]
        if as_json:
            print_json([TokenShape.of(each).as_json() for each in found])
        elif found:
            print_table(HEADINGS, [_token_cells(each) for each in found])
        else:
            say(
                f"{agent.name} has no {'' if with_revoked else 'live '}token: it can't reach its memories over the API."
            )
            print_hint(f"agents token create {quote_name(agent.name)}{account_argument(account)}", "Make one")


@token.command()
@click.argument("agent_name", metavar="NAME")
@click.argument("which", metavar="TOKEN")
@account_option
@json_option
def revoke(agent_name: str, which: str, account: str | None, as_json: bool) -> None:
    """Revoke a token of the agent NAME for good: whoever uses it is out at once.

    TOKEN is its id, the beginning of it, or its name where one live token has it.
    """
    with open_installation():
        found = find_agent(agent_name, account)
        public_id = _find_token(found, which, account).public_id
        with writing():
            agent = Agent.lock(found.id)
            row = AgentToken.lock(agent, public_id)
            changed = row.revoke(agent, by=COMMAND_LINE)
        shred_files()
        if as_json:
            print_json(TokenShape.of(row).as_json() | {"changed": changed})
            return
        say(f"Revoked {row.name} ({public_id})." if changed else f"{row.name} ({public_id}) was revoked already.")
        if not live_tokens(agent.id):
            say(f"It was the last one: {agent.name} can't reach its memories over the API any more.")
            print_hint(f"agents token create {quote_name(agent.name)}{account_argument(account)}", "Make another")


@token.command()
@click.argument("agent_name", metavar="NAME")
@click.argument("which", metavar="TOKEN")
@account_option
@json_option
def rotate(agent_name: str, which: str, account: str | None, as_json: bool) -> None:
    """Make a token of the same name and scopes in place of TOKEN, which is revoked in the same moment."""
    with open_installation():
        found = find_agent(agent_name, account)
        public_id = _find_token(found, which, account).public_id
        with writing():
            agent = Agent.lock(found.id)
            secret = AgentToken.lock(agent, public_id).rotate(agent, by=COMMAND_LINE)
            _seal_keys(agent)
        shred_files()
        _show_once(_row_of(secret), secret, as_json, replaced=public_id)


def _seal_keys(agent: Agent) -> None:
    """The agent's keys for its new token, in the transaction that makes it: the private key is at hand here."""
    db.session.flush()
    share_with_tokens(agent, ensure_keys(agent))


def _show_once(made: AgentToken, secret: str, as_json: bool, *, replaced: str | None) -> None:
    if as_json:
        told = TokenTold.of(made, id=made.public_id).as_json() | {"token": secret}
        print_json(told | ({"replaced": replaced} if replaced else {}))
        return
    say(f"API token: {secret}  (shown only this once)")
    print_facts(
        [("id", made.public_id), ("name", made.name), ("may", ", ".join(made.scopes)), ("in place of", replaced)]
    )


def _row_of(secret: str) -> AgentToken:
    return db.session.scalars(select(AgentToken).where(AgentToken.token_hash == hash_token(secret))).one()


def _agent_tokens(agent: Agent) -> list[AgentToken]:
    """Newest first, the revoked ones too."""
    query = select(AgentToken).where(AgentToken.agent_id == agent.id).order_by(AgentToken.id.desc())
    return list(db.session.scalars(query))


def _find_token(agent: Agent, which: str, account: str | None) -> AgentToken:
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
            f"`./whetstone agents token list {quote_name(agent.name)}{account_argument(account)}` names them."
        )
    return found[0]


def _token_cells(row: AgentToken) -> list[str | int | None]:
    state = "live" if row.revoked_at is None else f"revoked {day_and_time(row.revoked_at)}"
    may, made, used = ", ".join(row.scopes), day_and_time(row.created_at), day_and_time(row.last_used_at)
    return [row.public_id, row.name, may, made, used, state]
