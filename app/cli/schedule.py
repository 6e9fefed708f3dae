"""`./whetstone schedule`: when agents are refined by themselves, and what another crontab would mean."""

from __future__ import annotations

import click

from app.cli.common import CommandContext, installation_command
from app.cli.printing import day_and_time, print_facts, print_json, print_table, say
from app.crontabs import check_crontab
from app.installation.schedule import CrontabPlan, Schedule
from app.models.agent_settings import operator_settings
from app.values.plural import count_nouns

HEADINGS = ("RUN (UTC)", "AGENTS DUE")


@click.command()
@click.option("--try", "tried", metavar="CRONTAB", help="What this crontab would mean, instead of the one that is set.")
@installation_command(with_key=False)
def schedule(context: CommandContext, tried: str | None) -> None:
    """Say in words when agents are refined by themselves, the next five runs, and how many agents are due at each."""
    account_id = context.find_account().id
    if tried is not None:
        plan = CrontabPlan(_checked(tried), account_id)
        _tell_plan(plan, as_json=context.as_json)
        return
    known = Schedule(operator_settings(), account_id)
    if context.as_json:
        print_json(known.as_json())
        return
    _tell_plan(known.plan)
    if known.hold:
        say(known.hold)
    paused = f"{known.paused:,} paused and {known.inactive:,} inactive of {count_nouns(known.agents, 'agent')}"
    print_facts(
        [
            ("from", known.variable if known.is_set else f"the default; {known.variable} changes it"),
            ("interval", f"{count_nouns(known.interval_days, 'day')} between refinements of one agent"),
            ("not refined by themselves", paused),
        ]
    )


def _tell_plan(plan: CrontabPlan, *, as_json: bool = False) -> None:
    if as_json:
        print_json(plan.as_json())
        return
    say(f"{plan.words} ({plan.crontab})")
    print_table(HEADINGS, [[day_and_time(run.at), run.due] for run in plan.runs])


def _checked(crontab: str) -> str:
    try:
        check_crontab(crontab)
    except ValueError as error:
        raise click.UsageError(f"--try {error}.") from None
    return crontab
