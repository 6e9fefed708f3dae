"""`./whetstone accounts`: the tenants of this installation, and the limits that its operator gives them."""

from __future__ import annotations

import shlex

import click

from app.cli.common import CommandContext, installation_command
from app.cli.printing import print_facts, print_hint, print_json, print_table, say
from app.config import load_settings
from app.installation.accounts import AccountInvalid, AccountUse, all_accounts, open_account, set_limits, use_of
from app.models import COMMAND_LINE
from app.models.account_limits import LIMIT_NAMES, LimitsInvalid
from app.models.base import iso

HEADINGS = ("NAME", "AGENTS", "USERS", "RUNNING", "COST THIS MONTH", "STATE")

_OPTIONS = (
    click.option("--max-agents", metavar="N", help="Agents at most; '' for no limit."),
    click.option("--max-refinements", metavar="N", help="Refinements at once; what is over waits; '' for no limit."),
    click.option("--max-monthly-cost", metavar="USD", help="Model cost a calendar month (UTC); '' for no limit."),
)


@click.group()
def accounts() -> None:
    """List and create accounts, and set what each may use at most."""


@accounts.command("list")
@installation_command(account=False, with_key=False)
def list_(context: CommandContext) -> None:
    """List the accounts: agents, users, what runs now, this month's model cost, and each with its limit."""
    found = all_accounts()
    if context.as_json:
        print_json([use.as_json() for use in found])
        return
    print_table(HEADINGS, [[use.account.name, *_figures(use), use.state] for use in found])


@accounts.command()
@click.argument("name")
@click.option("--owner", required=True, metavar="EMAIL", help="Who is invited as its first owner.")
@_OPTIONS[0]
@_OPTIONS[1]
@_OPTIONS[2]
@installation_command(account=False, with_key=False)
def create(context: CommandContext, name: str, owner: str, **limits: str | None) -> None:
    """Create the account NAME and a link for its first owner: it works once, within 7 days, and is shown this once."""
    typed = {"name": name, "owner": owner} | {each: value or "" for each, value in limits.items()}
    try:
        account, link, secret = open_account(typed, by=COMMAND_LINE)
    except AccountInvalid as error:
        raise click.UsageError(error.sentence) from None
    path = f"/welcome/{secret}"
    if context.as_json:
        made = use_of(account.id).as_json() | {"owner": link.email}
        print_json(made | {"path": path, "expires_at": iso(link.expires_at)})
        return
    say(f"Created the account {account.name!r}.")
    say(f"For {link.email}, its owner, until {iso(link.expires_at)}; whoever opens it first chooses the password:")
    say(f"http://127.0.0.1:{load_settings().port}{path}")
    say("Put the address by which they reach Whetstone in front of /welcome.")
    print_hint(f"accounts limits {shlex.quote(account.name)} --max-agents N", "Limit what it uses")


@accounts.command()
@click.argument("name")
@_OPTIONS[0]
@_OPTIONS[1]
@_OPTIONS[2]
@installation_command(account=False, with_key=False)
def limits(context: CommandContext, name: str, **given: str | None) -> None:
    """Show the limits of the account NAME, or set those that are given; the others stay as they are."""
    account = CommandContext(name, context.as_json).find_account()
    stored = {each: "" if value is None else str(value) for each, value in account.limits.as_json().items()}
    typed = stored | {each: value for each, value in given.items() if value is not None}
    changed = False
    if typed != stored:
        try:
            _, _, changed = set_limits(account.id, typed, by=COMMAND_LINE)
        except LimitsInvalid as error:
            raise click.UsageError(error.sentence) from None
    use = use_of(account.id)
    if context.as_json:
        print_json(use.as_json() | {"changed": changed})
        return
    say(f"{use.account.name}: {use.state}{'. The limits are changed.' if changed else '.'}")
    agents, _, running, cost = _figures(use)
    print_facts([("agents", agents), ("refinements at once", running), ("model cost a month", cost)])


def _figures(use: AccountUse) -> list[str]:
    most, at_once, dollars = (vars(use.limits)[name] for name in LIMIT_NAMES)
    return [
        f"{use.agents:,}{_of(most)}",
        f"{use.users:,}",
        f"{use.running:,}{_of(at_once)}",
        f"${use.cost:,.2f}" + ("" if dollars is None else f" of ${dollars:,.2f}"),
    ]


def _of(limit: int | None) -> str:
    return "" if limit is None else f" of {limit:,}"
