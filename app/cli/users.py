"""`./whetstone users`: the people who run the agents."""

from __future__ import annotations

import secrets
import sys

import click

from app import security
from app.cli import json_option
from app.cli.common import CommandContext, account_option, as_usage, open_installation
from app.cli.printing import print_json, say
from app.extensions import writing
from app.models import COMMAND_LINE, Account


@click.group()
def users() -> None:
    """Create the people who run the agents."""


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


def _read_password() -> str:
    """The first line of standard input. Raises UsageError when it is no text, or when there is none."""
    try:
        password = sys.stdin.buffer.readline().decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise click.UsageError("The password on standard input is not UTF-8 text.") from None
    if not password:
        raise click.UsageError("There is no password on standard input.")
    return password
