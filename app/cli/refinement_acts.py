"""`./whetstone refinements retry`, `seen` and `rollback`: what the list does to many, by the same filters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from app.cli.common import REFUSED, CommandContext, as_usage, installation_command
from app.cli.found import find_row
from app.cli.printing import print_facts, print_hint, print_json, say, say_on_stderr
from app.cli.refinement_filters import filter_options, filter_words, read_filters
from app.errors import Invalid
from app.history.several import (
    LEFT_OUT,
    MOST_ROLLED_BACK,
    Prospect,
    RollbackPreview,
    preview_rollbacks,
    roll_back_several,
)
from app.models import COMMAND_LINE, Refinement
from app.models.base import iso
from app.refinement.attention import MOST_AT_ONCE, unsee_many
from app.refinement.bulk import find_chosen, mark_refinements_seen, retry_refinements
from app.refinement.sweep import close_stalled
from app.values.plural import count_nouns
from app.vocabulary.rollbacks import describe_removed
from tasks.refinement import enqueue

_IDS = click.argument("numbers", metavar="[ID]...", nargs=-1)


@click.command()
@_IDS
@filter_options
@installation_command()
def retry(context: CommandContext, numbers: tuple[str, ...], **typed: str | None) -> int:
    """Start the agents of these refinements anew, in the same mode: those named, or the newest 500 that match.

    Each by the rules of a start by hand: one that is open, that completed or that was refined again since is left out.

    Exit status: 0 at least one is queued, 3 none is.
    """
    close_stalled()
    taken: dict[str, bool] = {}

    def put_on_queue(refinement_id: str) -> None:
        taken[refinement_id] = enqueue(refinement_id)

    done = retry_refinements(_find_chosen(context, numbers, typed), by=COMMAND_LINE, started=put_on_queue)
    if context.as_json:
        print_json({"queued": done.queued, "refused": dict(done.refused)})
    else:
        say(done.line)
        if done.queued:
            print_hint("refinements list --open", "Follow them")
    if not all(taken.values()):
        say_on_stderr("The task queue did not accept all of them: those wait in the database until a worker runs.")
    return 0 if done.queued else REFUSED


@click.command()
@_IDS
@filter_options
@click.option("--undo", metavar="FROM/UNTIL", help="Take back what `seen` marked, as it says.")
@installation_command(with_key=False)
def seen(context: CommandContext, numbers: tuple[str, ...], undo: str | None, **typed: str | None) -> None:
    """Mark all that is open about these refinements as seen: those named, or the newest 500 that match."""
    if undo is not None:
        if numbers or any(typed.values()):
            raise click.UsageError("--undo says by itself what is taken back: leave out ids and filters.")
        with as_usage():
            since, until = _parse_span(undo)
        count = unsee_many(context.find_account().id, since, until, by=COMMAND_LINE)
        if context.as_json:
            print_json({"unseen": count})
        else:
            say(f"{count_nouns(count, 'item')} marked as not seen.")
        return
    marked = mark_refinements_seen(_find_chosen(context, numbers, typed), by=COMMAND_LINE)
    span = f"{iso(marked.since)}/{iso(marked.until)}" if marked.items else None
    if context.as_json:
        print_json({"refinements": marked.refinements, "items": marked.items, "undo": span})
    elif span is None:
        say("Nothing of these waits to be seen.")
    else:
        say(f"{count_nouns(marked.refinements, 'refinement')} marked as seen.")
        print_hint(f"refinements seen --undo {span}{context.account_argument}", "Take it back")


@click.command()
@_IDS
@filter_options
@click.option("--yes", is_flag=True, help="Do it. Without, only say in numbers what would happen.")
@installation_command()
def rollback(context: CommandContext, numbers: tuple[str, ...], yes: bool, **typed: str | None) -> int:
    """Roll back these refinements: those named, or the newest 100 that match. First without --yes, to see what it does.

    The newest go first; each is taken back by itself, whole or not at all, and can be undone again.

    Exit status: 0 at least one is, or would be, rolled back; 3 none.
    """
    chosen = _find_chosen(context, numbers, typed)
    planned, more = chosen[:MOST_ROLLED_BACK], len(chosen) - MOST_ROLLED_BACK
    if yes:
        made = roll_back_several(planned, by=COMMAND_LINE)
        if context.as_json:
            print_json({"applied": True, "rollbacks": made.done, "left_out": dict(made.left_out)})
        else:
            say(made.line)
        count = len(made.done)
    else:
        preview = preview_rollbacks(planned)
        _tell_preview(context, preview)
        count = preview.done
        if count and not context.as_json:
            words = "".join(f" {number}" for number in numbers) + filter_words(typed)
            print_hint(f"refinements rollback{words} --yes{context.account_argument}", "Do it")
    if more > 0 and not context.as_json:
        say(f"{more:,} older ones were left for another time: at most {MOST_ROLLED_BACK} at once.")
    return 0 if count else REFUSED


def _tell_preview(context: CommandContext, preview: RollbackPreview) -> None:
    totals = {
        name: getattr(preview, name) for name in ("done", "agents", "restored", "removed", "removed_notes", "gain")
    }
    left_out = {words: count for prospect, words in LEFT_OUT.items() if (count := preview.count(prospect))}
    if context.as_json:
        planned = [{"id": each.refinement_id, "prospect": str(each.prospect)} for each in preview.planned]
        print_json({"applied": False, "planned": planned, "left_out": left_out, **totals})
        return
    waiting = preview.count(Prospect.WAITS)
    say("Nothing is done yet. It would come to this:")
    print_facts(
        [
            ("rolls back", f"{count_nouns(preview.done, 'refinement')} of {count_nouns(preview.agents, 'agent')}"),
            ("restores", count_nouns(preview.restored, "memory")),
            ("removes", describe_removed(preview.removed, preview.removed_notes)),
            ("mass", f"{preview.gain:+,} tokens"),
            ("after later ones", f"{count_nouns(waiting, 'refinement')}, not in the figures" if waiting else None),
            *(("left out", f"{count:,}: {words}") for words, count in left_out.items()),
        ]
    )


def _find_chosen(context: CommandContext, numbers: Sequence[str], typed: dict[str, str | None]) -> list[str]:
    """Ids, the newest first. Raises UsageError where nothing says which, or both ways do, and NotFound."""
    if bool(numbers) == any(typed.values()):
        raise click.UsageError("Say which refinements: their ids, or filters such as --status failed; not both.")
    if len(numbers) > MOST_AT_ONCE:
        raise click.UsageError(f"{len(numbers):,} refinements named. Name at most {MOST_AT_ONCE}.")
    account_id = context.find_account().id
    if not numbers:
        return find_chosen(account_id, *read_filters(context, account_id, typed).conditions)
    found = {find_row(Refinement, number, account_id).id for number in numbers}
    return find_chosen(account_id, Refinement.id.in_(found))


def _parse_span(typed: str) -> tuple[datetime, datetime]:
    try:
        since, until = (datetime.fromisoformat(each).astimezone(UTC) for each in typed.split("/"))
    except (ValueError, OverflowError):
        raise Invalid(f"{typed!r} is not what `refinements seen` says to take it back.") from None
    return since, until
