"""`./whetstone users`: the people who run the agents; and what somebody who leaves may take along."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import click
from sqlalchemy import select
from sqlalchemy.orm import selectinload

from app import security
from app.cli import json_option
from app.cli.common import CommandContext, account_option, as_usage, installation_command, open_installation
from app.cli.printing import print_hint, print_json, print_table, say
from app.config import load_settings
from app.extensions import db, writing
from app.keys.leavers import changes_made_by, changing_user, deactivate_user, end_tokens_shown_to, tokens_shown_to
from app.keys.shredding import shred_files
from app.models import COMMAND_LINE, Account, OneTimeLink, User
from app.models.base import iso
from app.models.user import ACCOUNT_ROLES
from app.values.plural import count_nouns


@click.group()
def users() -> None:
    """Create, list, change and deactivate the people who run the agents."""


@users.command()
@click.argument("email")
@click.option(
    "--role",
    type=click.Choice(["owner", "admin", "auditor"]),
    default="admin",
    show_default=True,
    help="An auditor reads, an admin also acts, an owner also manages users and limits.",
)
@click.option("--site-admin", is_flag=True, help="The operator too: looks after accounts and the system's health.")
@account_option
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input instead of making one.")
@json_option
def create(email: str, role: str, site_admin: bool, account: str | None, password_stdin: bool, as_json: bool) -> None:
    """Create a user. Without --password-stdin a password is made, and shown this once."""
    given = _read_password() if password_stdin else None
    password = given if given is not None else secrets.token_urlsafe(12)
    roles = (role, "site_admin") if site_admin else (role,)
    with open_installation() as app:
        security.init_app(app, views=False)
        home = CommandContext(account, as_json).find_account()
        with as_usage(), writing():
            user = security.create_user(Account.lock(home.id), email, password, roles=roles, by=COMMAND_LINE)
        made = {"id": user.id, "email": user.email, "account": home.name, "role": role, "site_admin": site_admin}
    if as_json:
        print_json(made if given is not None else made | {"password": password})
        return
    say(f"Created {made['email']}, {role} of the account {home.name!r}.")
    if given is None:
        say(f"Password: {password}  (shown only this once)")


@users.command("list")
@installation_command()
def list_(context: CommandContext) -> None:
    """List the users of an account, with their roles."""
    home = context.find_account()
    found = db.session.scalars(
        select(User).where(User.account_id == home.id).options(selectinload(User.passkeys)).order_by(User.email)
    ).all()
    described: list[dict[str, Any]] = [
        {"id": user.id, "email": user.email, "roles": user.role_names, "active": user.active}
        | {"two_factor": user.has_second_factor, "last_sign_in_at": iso(user.last_sign_in_at)}
        for user in found
    ]
    if context.as_json:
        print_json(described)
    elif found:
        state = {True: "active", False: "deactivated"}
        factor = {True: "yes", False: "no"}
        cells = [
            [each["email"], ", ".join(each["roles"]), state[each["active"]], factor[each["two_factor"]]]
            for each in described
        ]
        print_table(("EMAIL", "MAY", "STATE", "TWO-FACTOR"), cells)
    else:
        say(f"There are no users in the account {home.name!r}.")


@users.command("set")
@click.argument("email")
@click.option("--role", type=click.Choice(ACCOUNT_ROLES), help="What they may do in their account.")
@click.option("--active", is_flag=True, help="Let a deactivated user sign in again, with the password that they had.")
@installation_command(unique=True)
def set_(context: CommandContext, email: str, role: str | None, active: bool) -> None:
    """Change the role of the user EMAIL, or let a deactivated one in again."""
    if role is None and not active:
        raise click.UsageError("Nothing to change: give --role or --active.")
    with as_usage(), changing_user(email, context.given_account_id()) as (account, user):
        changed = bool(role) and user.change_role(account, str(role), by=COMMAND_LINE)
        changed = (active and user.reactivate(account, by=COMMAND_LINE)) or changed
    if context.as_json:
        print_json({"email": user.email, "roles": user.role_names, "active": user.active, "changed": changed})
        return
    state = "active" if user.active else "deactivated"
    say(f"{user.email}: {', '.join(user.role_names)}, {state}.{'' if changed else ' Nothing was to be changed.'}")


@users.command("reset-password")
@click.argument("email")
@installation_command(unique=True)
def reset_password(context: CommandContext, email: str) -> None:
    """Make a link by which the user EMAIL sets a new password: it works once, within 7 days, and is shown this once.

    It leaves a second factor on; `users reset-second-factor` takes that off.
    """
    with changing_user(email, context.given_account_id()) as (account, user):
        link, secret = OneTimeLink.for_password(account, user, by=COMMAND_LINE)
    path = f"/welcome/{secret}"
    if context.as_json:
        print_json({"email": user.email, "path": path, "expires_at": iso(link.expires_at)})
        return
    say(f"For {user.email}, until {iso(link.expires_at)}; all their sessions end when it is used:")
    say(f"http://127.0.0.1:{load_settings().port}{path}")
    say("Put the address by which they reach Whetstone in front of /welcome.")


@users.command("reset-second-factor")
@click.argument("email")
@installation_command(unique=True)
def reset_second_factor(context: CommandContext, email: str) -> None:
    """Take off the second factor of the user EMAIL, who lost it: the password alone is enough, all sessions end.

    Their authenticator app is off, their passkeys are removed, and no recovery code is good any more.
    """
    with changing_user(email, context.given_account_id()) as (account, user):
        passkeys = len(user.passkeys)
        changed = user.take_off_second_factor(account, by=COMMAND_LINE)
    if context.as_json:
        print_json({"email": user.email, "two_factor": False, "passkeys_removed": passkeys, "changed": changed})
    elif changed:
        say(f"{user.email} signs in by password alone now, and can set up a new second factor. All sessions ended.")
        if passkeys:
            say(f"{count_nouns(passkeys, 'passkey')} removed.")
        print_hint(f"users reset-password {shlex.quote(user.email)}", "Give them a new password too")
    else:
        say(f"{user.email} has no second factor. Nothing was changed.")


@users.command()
@click.argument("email")
@click.option("--end-tokens", is_flag=True, help="Also revoke every live token whose secret they were shown.")
@installation_command(unique=True)
def deactivate(context: CommandContext, email: str, end_tokens: bool) -> None:
    """Deactivate the user EMAIL: nobody signs in as them any more, open sessions and exceptions end.

    Lists what they may take along: live tokens whose secret they were shown, and the settings of agents that they
    changed.
    """
    user, was_active = deactivate_user(email, by=COMMAND_LINE, account_id=context.given_account_id())
    shown, changed = tokens_shown_to(user), changes_made_by(user)
    tokens = [
        {"agent": agent.name, "id": token.public_id, "name": token.name, "scopes": token.scopes}
        for agent, token in shown
    ]
    changes = [{"agent": one.agent, "fields": one.fields, "at": iso(one.at)} for one in changed]
    if not context.as_json:
        say(f"Deactivated {user.email}." if was_active else f"{user.email} was deactivated already.")
        _tell_what_is_left(tokens, changes)
        end_tokens = end_tokens or (bool(tokens) and _is_confirmed(len(tokens)))
    ended = list(end_tokens_shown_to(user, by=COMMAND_LINE)) if end_tokens else []
    if ended:
        shred_files()
    ids = [public_id for each in ended for public_id in each.tokens]
    if context.as_json:
        said = {"email": user.email, "changed": was_active, "tokens": tokens, "settings": changes}
        print_json(said | {"ended_tokens": ids})
    elif ids:
        say(f"Revoked {count_nouns(len(ids), 'token')}: {', '.join(ids)}.")
    elif tokens:
        print_hint(f"users deactivate {shlex.quote(user.email)} --end-tokens", "Revoke these tokens")


def _tell_what_is_left(tokens: Sequence[dict[str, Any]], changes: Sequence[dict[str, Any]]) -> None:
    if tokens:
        say("They were shown these tokens, which still work:")
        cells = [[each["agent"], each["id"], each["name"], ", ".join(each["scopes"])] for each in tokens]
        print_table(("AGENT", "ID", "NAME", "MAY"), cells)
    else:
        say("No live token was shown to them.")
    if changes:
        say("They changed these settings of agents:")
        print_table(
            ("AGENT", "FIELDS", "AT"), [[each["agent"], ", ".join(each["fields"]), each["at"]] for each in changes]
        )
    else:
        say("They changed no setting of an agent.")


def _is_confirmed(count: int) -> bool:
    """Asked only where somebody can answer."""
    return sys.stdin.isatty() and click.confirm(f"Revoke {count_nouns(count, 'token')} now?", default=True)


def _read_password() -> str:
    """The first line of standard input. Raises UsageError when it is no text, or when there is none."""
    try:
        password = sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise click.UsageError("The password on standard input is not UTF-8 text.") from None
    if not password:
        raise click.UsageError("There is no password on standard input.")
    return password
