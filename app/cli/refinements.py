"""`./whetstone refinements`: its list, which needs no task queue; its other commands are imported when they run."""

from __future__ import annotations

from typing import Any

import click
from sqlalchemy import select
from sqlalchemy.orm import selectinload

from app.cli import PartlyLazyGroup
from app.cli.common import CommandContext, as_usage, installation_command
from app.cli.found import find_row
from app.cli.printing import print_hint, print_json, say
from app.cli.refinement_facts import SHORT, print_refinements
from app.cli.refinement_filters import filter_options, read_filters
from app.extensions import db
from app.models import OPEN_STATES, Agent, Refinement
from app.models.keyset import cut_page
from app.refinement.failures import failure_conditions
from app.refinement.listing import SORTS, parse_sort, with_open_items
from app.shapes.refinement import ListedRefinement

ELSEWHERE = dict.fromkeys(("show", "stop"), "app.cli.refine") | dict.fromkeys(
    ("retry", "rollback", "seen"), "app.cli.refinement_acts"
)


@click.group(cls=PartlyLazyGroup, elsewhere=ELSEWHERE)
def refinements() -> None:
    """List, show, stop, retry and roll back refinements."""


@refinements.command("list")
@filter_options
@click.option(
    "--sort",
    metavar="ORDER",
    help="started, duration, changes, kept, tokens or cost: the most first; =-cost: the least.",
)
@click.option("--before", metavar="ID", help="Go on behind this one.")
@click.option("--open", "only_open", is_flag=True, help="Only those that have not ended.")
@click.option(
    "--failed", is_flag=True, help="Only those that failed or were interrupted in 7 days, and none came since."
)
@click.option("--lossy", is_flag=True, help="Only those in which the agent confirmed a loss.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The newest so many.")
@installation_command()
def list_(
    context: CommandContext,
    sort: str | None,
    before: str | None,
    only_open: bool,
    failed: bool,
    lossy: bool,
    limit: int,
    **typed: str | None,
) -> None:
    """List refinements, newest first unless sorted otherwise."""
    account_id = context.find_account().id
    wanted = read_filters(context, account_id, typed).conditions
    wanted += failure_conditions(account_id) if failed else []
    wanted += [Refinement.status.in_(OPEN_STATES)] if only_open else []
    wanted += [Refinement.confirmed_losses > 0] if lossy else []
    with as_usage():
        keyset = SORTS[parse_sort(sort or "")]
    position = keyset.find(find_row(Refinement, before).id, *wanted) if before else None
    query = select(Refinement, Agent.name).join(Agent, Agent.id == Refinement.agent_id).where(*wanted)
    query = query.options(selectinload(Refinement.notes))
    found, last = cut_page(db.session.execute(keyset.page(query, limit, position)).tuples(), limit)
    if context.as_json:
        waiting = with_open_items([refinement.id for refinement, _ in found])
        print_json([_listed_json(refinement, agent, refinement.id in waiting) for refinement, agent in found])
    elif found:
        print_refinements(found, failed=failed)
        print_hint("refinements show ID", "Look at one")
        if last:
            print_hint(f"refinements list … --before {last[0].id[:SHORT]}", "See the next")
    else:
        say(_none_words(only_open=only_open, failed=failed, lossy=lossy, filtered=any(typed.values())))
        print_hint("refine AGENT --wait", "Start one")


def _none_words(*, only_open: bool, failed: bool, lossy: bool, filtered: bool) -> str:
    if filtered:
        return "None is like this."
    if lossy:
        return "None has a confirmed loss."
    return "None is open." if only_open else "None failed in 7 days." if failed else "There are none yet."


def _listed_json(refinement: Refinement, agent: str, needs_attention: bool) -> dict[str, Any]:
    return ListedRefinement.of(refinement, agent=agent, needs_attention=needs_attention).as_json()
