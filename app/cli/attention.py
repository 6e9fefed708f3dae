"""`./whetstone attention`: what waits for an admin's eyes, and marking it as seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from app.cli.common import CommandContext, as_usage, installation_command
from app.cli.printing import day_and_time, print_hint, print_json, print_table, say
from app.extensions import db, writing
from app.models import COMMAND_LINE, Agent, AttentionItem, AttentionKind
from app.refinement.attention import MOST_AT_ONCE, AttentionFilter, mark_many_seen, parse_kinds
from app.shapes.audit import AttentionShape
from app.values.plural import count_nouns

F = TypeVar("F", bound=Callable[..., Any])

HEADINGS = ("ID", "AT (UTC)", "AGENT", "ABOUT", "WHAT", "SEEN BY")


@click.group()
def attention() -> None:
    """List what needs attention, and mark it as seen: notes, failures, changes to be checked."""


def _filter_options(command: F) -> F:
    """The filters of the page, by the same names."""
    for option in (_REASON, _KIND, _AGENT):
        command = option(command)
    return command


_AGENT = click.option("--agent", "name", metavar="NAME", help="Only this agent's.")
_KIND = click.option("--kind", metavar="KIND", help=f"Only these, with commas between: {', '.join(AttentionKind)}.")
_REASON = click.option(
    "--reason", metavar="WORDS", help="Only of refinements that failed for this reason, as the list says it."
)


@attention.command("list")
@_filter_options
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
@click.argument("numbers", metavar="[ID]...", nargs=-1, type=click.IntRange(1, 2**63 - 1))
@_filter_options
@click.option("--undo", is_flag=True, help="Mark those with these IDs as not seen after all.")
@installation_command(unique=True, with_key=False)
def seen(
    context: CommandContext,
    numbers: tuple[int, ...],
    name: str | None,
    kind: str | None,
    reason: str | None,
    undo: bool,
) -> None:
    """Mark items as seen: by their ID, or the newest 500 that a filter leaves. Doing it twice does no harm."""
    is_filtered = any((name, kind, reason))
    if bool(numbers) == is_filtered or (undo and is_filtered):
        raise click.UsageError("Say which items: their ids, or filters such as --kind note; --undo takes ids.")
    if is_filtered:
        _mark_matching(context, name, kind, reason)
        return
    account_id = context.given_account_id()
    changed = {number: _mark_item(number, account_id, seen=not undo) for number in dict.fromkeys(numbers)}
    words = "not seen" if undo else "seen"
    if context.as_json:
        print_json([{"id": number, "changed": each} for number, each in changed.items()])
        return
    for number, each in changed.items():
        say(f"{number}: marked as {words}." if each else f"{number}: was {words} already.")


def _mark_matching(context: CommandContext, name: str | None, kind: str | None, reason: str | None) -> None:
    with as_usage():
        wanted = AttentionFilter(parse_kinds(kind or ""), reason=reason or "")
    conditions = (*wanted.conditions(), context.concerns(AttentionItem, name))
    marked = mark_many_seen(*conditions, by=COMMAND_LINE, most=MOST_AT_ONCE)
    if context.as_json:
        print_json({"items": marked.items})
    elif not marked.items:
        say("Nothing matches that is not seen yet.")
    else:
        say(f"{count_nouns(marked.items, 'item')} marked as seen.")
        print_hint(f"attention list --all{context.account_argument}", "See them")


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
