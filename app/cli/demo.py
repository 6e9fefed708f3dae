"""`./whetstone demo`: two agents that need no API key, to try everything on."""

from __future__ import annotations

import click
from flask import current_app

from app.cli.common import CommandContext, installation_command
from app.cli.printing import print_hint, print_json, print_table, say
from app.demo import Demo, make_demo, make_demo_in
from app.models import COMMAND_LINE
from app.processes.datadir import running_address
from app.processes.startup import local_address


@click.command()
@click.option("--own-account", is_flag=True, help="In an account Demo of its own, with an admin to sign in as.")
@installation_command(make=True)
def demo(context: CommandContext, own_account: bool) -> None:
    """Make two agents in an account, with ledgers of months, duplicates and all. "Try the demo" does the same.

    They speak by `whetstone/offline`, a rule-based de-duplicator: no API key, no network. Run twice, it makes nothing.
    """
    if own_account and context.account:
        raise click.UsageError("--own-account makes an account of its own: give it, or --account, not both.")
    settings = current_app.extensions["settings"]
    running = running_address(settings)
    found = make_demo(COMMAND_LINE) if own_account else make_demo_in(context.find_account(), COMMAND_LINE)
    place = running or local_address(settings)
    if context.as_json:
        agents = [{"id": agent.id, "name": agent.name} for agent in found.agents]
        told = {"made": found.made, "account": found.account.name, "email": found.email, "agents": agents}
        print_json(told | {"address": place} | ({"password": found.password} if found.password else {}))
    else:
        _tell_demo(found, place if running else f"{place} (once `./whetstone up` runs)", context.account_argument)


def _tell_demo(found: Demo, place: str, account_argument: str) -> None:
    if found.made:
        say(f"Made in the account {found.account.name!r}, and need no API key:")
    else:
        say(f"The account {found.account.name!r} has them already; nothing was made or changed:")
    print_table(
        ("NAME", "MEMORIES", "TOKENS", "BUDGET", ""),
        [
            (each.name, each.core_count, each.core_token_usage, each.core_token_budget, "over" * each.is_over_budget)
            for each in found.agents
        ],
    )
    if not found.email:
        say(f"Sign in at {place}.")
    elif found.made:
        say(f"Sign in at {place} as {found.email}.")
        say(f"Password: {found.password}  (shown only this once)")
    else:
        say(f"Sign in at {place} as {found.email}, with the password that was shown then.")
        print_hint("users create EMAIL --account Demo", "If it is lost, make another admin")
    own = f" --account {found.account.name}" if found.email else account_argument
    for agent in found.agents[:1]:
        print_hint(f"refine {agent.name}{own} --wait", "Watch a refinement here")
