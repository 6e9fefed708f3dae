"""`./whetstone demo`: two agents that need no API key, to try everything on."""

from __future__ import annotations

import click

from app.cli import json_option
from app.cli.common import account_argument, find_account, open_installation, print_hint, print_json, print_table, say
from app.demo import Demo, make_demo, make_demo_in
from app.models import COMMAND_LINE
from app.processes.datadir import running_address
from app.processes.startup import local_address


@click.command()
@click.option("--own-account", is_flag=True, help="In an account Demo of its own, with an admin to sign in as.")
@json_option
def demo(own_account: bool, as_json: bool) -> None:
    """Make two agents in the first account, with ledgers of months, duplicates and all. "Try the demo" does the same.

    They speak by `whetstone/offline`, a rule-based de-duplicator: no API key, no network. Run twice, it makes nothing.
    """
    with open_installation(make=True) as app:
        settings = app.extensions["settings"]
        running = running_address(settings)
        found = make_demo(COMMAND_LINE) if own_account else make_demo_in(find_account(None), COMMAND_LINE)
        place = running or local_address(settings)
        if as_json:
            agents = [{"id": agent.id, "name": agent.name} for agent in found.agents]
            print_json(
                {"made": found.made, "account": found.account.name, "email": found.email, "agents": agents}
                | {"address": place}
                | ({"password": found.password} if found.password else {})
            )
        else:
            _tell_demo(found, place if running else f"{place} (once `./whetstone up` runs)")


def _tell_demo(found: Demo, place: str) -> None:
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
    own = account_argument(found.account.name) if found.email else ""
    for agent in found.agents[:1]:
        print_hint(f"refine {agent.name}{own} --wait", "Watch a refinement here")
