"""`./whetstone attention`: what waits for an admin's eyes, and marking it as seen."""

from __future__ import annotations

import click

from app.cli.common import CommandContext, as_usage, installation_command
from app.cli.printing import day_and_time, print_hint, print_json, print_table, say
from app.extensions import db, writing
from app.models import COMMAND_LINE, Agent, AttentionItem, AttentionKind
from app.refinement.attention import AttentionFilter, parse_kinds
from app.shapes.audit import AttentionShape

HEADINGS = ("ID", "AT (UTC)", "AGENT", "ABOUT", "WHAT", "SEEN BY")


@click.group()
def attention() -> None:
    """List what needs attention, and mark it as seen: notes, failures, changes to be checked."""


@attention.command("list")
@click.option("--agent", "name", metavar="NAME", help="Only this agent's.")
@click.option("--kind", metavar="KIND", help=f"Only these, with commas between: {', '.join(AttentionKind)}.")
@click.option("--reason", metavar="WORDS", help="Only of refinements that failed for this reason, as the list says it.")
@click.option("--all", "with_seen", is_flag=True, help="Also what was seen, undone or refined since.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The newest so many.")
@installation_command(with_key=False)
def list_(
    context: CommandContext, name: str | None, kind: str | None, reason: str | None, with_seen: bool, limit: int
) -> None:
    """List what nobody has seen yet, newest first. Notes stand there as the agents wrote them."""
    with as_usage():
        wanted = AttentionFilter(parse_kinds(kind or ""), reason=reason or "", with_seen=with_seen)
    newest = AttentionItem.newest(*wanted.conditions(), context.concerns(AttentionItem, name))
    found = list(db.session.scalars(newest.limit(limit)))
    if context.as_json:
        print_json([AttentionShape.of(item).as_json() for item in found])
    elif found:
        print_table(HEADINGS, [_item_row(item) for item in found])
        print_hint("attention seen ID", "Mark one as seen")
    else:
        say("Nothing needs attention.")


@attention.command()
@click.argument("numbers", metavar="ID...", nargs=-1, required=True, type=click.IntRange(1, 2**63 - 1))
@click.option("--undo", is_flag=True, help="Mark them as not seen after all.")
@installation_command(unique=True, with_key=False)
def seen(context: CommandContext, numbers: tuple[int, ...], undo: bool) -> None:
    """Mark items as seen, by their ID. Doing it twice does no harm."""
    account_id = context.given_account_id()
    changed = {number: _mark_item(number, account_id, seen=not undo) for number in dict.fromkeys(numbers)}
    words = "not seen" if undo else "seen"
    if context.as_json:
        print_json([{"id": number, "changed": each} for number, each in changed.items()])
        return
    for number, each in changed.items():
        say(f"{number}: marked as {words}." if each else f"{number}: was {words} already.")


def _mark_item(number: int, account_id: int | None, *, seen: bool) -> bool:
    """Returns whether that changed anything. Raises NotFound."""
    with writing():
        agent = Agent.lock(AttentionItem.agent_of(number, account_id))
        item = AttentionItem.lock(number)
        return (item.mark_seen if seen else item.mark_unseen)(agent, by=COMMAND_LINE)


def _item_row(item: AttentionItem) -> list[str]:
    said = f"{item.line}: “{item.text}”" if item.text else item.line
    about = item.subject.partition(":")
    resolved = "undone since" if item.is_undone else "refined since" if item.settled_by else ""
    seen_by = (item.seen_by or "").partition(":")[2] or resolved
    return [str(item.id), day_and_time(item.at), item.agent.name, f"{about[0]} {about[2][:8]}", said, seen_by]
