"""A refinement as the command line tells it: as a row of a table, as a page, step by step, and as an outcome."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import click

from app.cli.printing import Cell, day_and_time, print_facts, print_hint, print_table, say
from app.history.timeline import TimelineRow, timeline_of
from app.models import Agent, Refinement
from app.values.mass_story import exact_percent, percent
from app.vocabulary import STATUSES

HEADINGS = ("ID", "AGENT", "STATUS", "MODE", "BY", "ASKED FOR (UTC)", "CHANGES", "TOKENS", "KEPT")

FAILED_HEADINGS = ("ID", "AGENT", "STATUS", "ENDED (UTC)", "REASON")

QUIET_STEPS = {"queued", "begun", "turn"}

SHORT = 8
"""Characters of an id that people are shown."""


def print_refinements(found: Iterable[tuple[Refinement, str]], *, failed: bool) -> None:
    """A table of refinements, each with the name of its agent; of those that failed, with the reason."""
    headings, row = (FAILED_HEADINGS, _failed_row) if failed else (HEADINGS, _refinement_row)
    print_table(headings, [row(refinement, agent) for refinement, agent in found])


def show_page(refinement: Refinement, agent: Agent) -> None:
    """All that may be seen of one: figures, the machine's line, the agent's notes to admins, and every step."""
    say(f"Refinement {refinement.id} of {agent.name}: {STATUSES[refinement.status].words}")
    story = refinement.mass_story()
    model_tokens = refinement.prompt_tokens + refinement.completion_tokens
    print_facts(
        [
            ("asked for", f"{day_and_time(refinement.requested_at)} UTC by {refinement.started_by}"),
            ("mode", refinement.mode),
            ("model", refinement.model_id),
            ("result", refinement.machine_line),
            ("why", refinement.reason),
            ("mass", story.line if story else None),
            ("undone by", f"rollback {refinement.undone_by[:SHORT]}" if refinement.undone_by else None),
            ("effort", f"{refinement.turns} turns, {refinement.calls} calls, {model_tokens:,} model tokens"),
            ("specifics", refinement.specifics_line or None),
            ("refusals", _refusal_words(refinement)),
            ("second reading", _reading_words(refinement)),
            ("recall", refinement.probes_line or None),
            *(("note to admins", f"{day_and_time(note.at)}: “{note.text}”") for note in refinement.notes),
        ]
    )
    say()
    for each in timeline_of(refinement):
        say(step_line(each, refinement.threshold))
    short = refinement.id[:SHORT]
    if refinement.is_open:
        print_hint(f"refinements stop {short}", "Stop it")
    else:
        print_hint(f"audit --refinement {short}", "The record of it")
        print_hint(f"rollback {short} --dry-run", "See what it takes to undo it")


def tell_outcome(refinement: Refinement) -> None:
    """How it ended, after its steps were told."""
    say(f"{STATUSES[refinement.status].capitalized}: {refinement.machine_line}.")
    if refinement.reason:
        say(refinement.reason)
    if story := refinement.mass_story():
        say(f"Mass: {story.line}.")
    if refinement.specifics_line:
        say(f"{refinement.specifics_line}.")
    if refinement.refused_calls:
        say(f"{_refusal_words(refinement)}.")
    if reading := _reading_words(refinement):
        say(f"Second reading: {reading}.")
    if refinement.probes_line:
        say(f"Recall: {refinement.probes_line}.")
    for note in refinement.notes:
        say(f"The agent's note to you: “{note.text}”")
    print_hint(f"refinements show {refinement.id[:SHORT]}", "Look at it")


def step_line(row: TimelineRow, limit: Decimal) -> str:
    """What happened, after the time of day (UTC). `limit` is the threshold: what is kept never rounds across it."""
    text = _operation_words(row, limit) if row.kind == "operation" else _step_words(row)
    return f"  {row.at:%H:%M:%S}  {click.style(text, dim=True) if row.kind in QUIET_STEPS else text}"


def _refinement_row(refinement: Refinement, agent: str) -> list[Cell]:
    before, after = refinement.mass_at_start, refinement.mass_after
    return [
        refinement.id[:SHORT],
        agent,
        STATUSES[refinement.status].words,
        refinement.mode,
        refinement.trigger.replace("_", " "),
        day_and_time(refinement.requested_at),
        refinement.mutations,
        "" if before is None or after is None else f"{before:,} → {after:,}",
        _retention_words(refinement),
    ]


def _failed_row(refinement: Refinement, agent: str) -> list[Cell]:
    status, ended = STATUSES[refinement.status].words, day_and_time(refinement.ended_at)
    return [refinement.id[:SHORT], agent, status, ended, refinement.reason or ""]


def _refusal_words(refinement: Refinement) -> str | None:
    return f"{refinement.refusal_line} ({refinement.refusal_kinds})" if refinement.refused_calls else None


def _reading_words(refinement: Refinement) -> str | None:
    if not refinement.reading_line:
        return None
    flagged = "; ".join(", ".join(map(str, group)) for group in refinement.flagged_groups)
    return f"{refinement.reading_line}; not kept: memory {flagged}" if flagged else refinement.reading_line


def _retention_words(refinement: Refinement) -> str:
    if refinement.retention is None or refinement.mode != "full":
        return ""
    kept = percent(refinement.retention, refinement.threshold)
    return f"{kept}, limit {exact_percent(refinement.threshold)}"


def _step_words(row: TimelineRow) -> str:
    times = f"{row.count:,} × " if row.count > 1 else ""
    rollback = f"rollback {row.rollback[:SHORT]}" if row.rollback else ""
    return " · ".join(part for part in (times + row.title, row.detail, _token_change(row), rollback) if part)


def _operation_words(row: TimelineRow, limit: Decimal) -> str:
    ids = ", ".join(map(str, row.ids)) + (f" → {row.result}" if row.result else "")
    kept = "" if row.retention is None else f"{percent(row.retention, limit)} kept"
    text = f"{row.title:<19}  {ids:<16}  {_token_change(row):<20}  {kept}"
    return f"{text} · reversed" if row.reversed else text.rstrip()


def _token_change(row: TimelineRow) -> str:
    if row.tokens is None:
        return ""
    before, after = row.tokens
    return f"{before:,} tokens" if before == after else f"{before:,} → {after:,} tokens"
