"""A refinement as the command line tells it: as a row of a table, as a page, step by step, and as an outcome."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

import click

from app.cli.printing import Cell, day_and_time, print_facts, print_hint, print_table, say
from app.history.progress import Progress
from app.history.steps import steps_of
from app.history.timeline import timeline_of
from app.history.timeline_row import TimelineRow
from app.models import Agent, Refinement
from app.values.durations import running_words
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
            ("cost", f"${refinement.cost_usd:.4f}" if refinement.cost_usd else None),
            ("took", running_words(refinement.seconds_taken) + (" so far" if refinement.is_open else "")),
            ("specifics", refinement.specifics_line or None),
            ("refusals", _refusal_words(refinement)),
            ("second reading", _reading_words(refinement)),
            ("recall", refinement.probes_line or None),
            *(("note to admins", f"{day_and_time(note.at)}: “{note.text}”") for note in refinement.notes),
        ]
    )
    say()
    steps = steps_of(refinement)
    for each in timeline_of(refinement, steps):
        say(step_line(each, refinement.threshold))
    progress = Progress.of(refinement, agent, steps)
    if progress is not None:
        say(progress_line(progress))
    short = refinement.id[:SHORT]
    if refinement.is_open:
        print_hint(f"refinements show {short} --follow", "Follow it")
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


def progress_line(progress: Progress) -> str:
    """What it waits for now, in the time column of the steps: as the last row of its page says it."""
    parts = [progress.title]
    if progress.attempts > 1:
        parts.append(f"attempt {progress.attempt} of {progress.attempts}")
    parts.append(running_words(progress.waited))
    if progress.attempt_ends and progress.deadline:
        parts.append(f"until {progress.attempt_ends:%H:%M:%S} at most; all of it until {progress.deadline:%H:%M:%S}")
    if progress.silent is not None:
        parts.append(f"sign of life {running_words(progress.silent)} ago")
    return "  now       " + " · ".join([*parts, progress.stop_words] if progress.stop_words else parts)


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
    ids = "" if row.kind == "question" else row.ids_words
    parts = (times + row.title, ids, row.detail, _token_change(row), rollback)
    return " · ".join(part for part in parts if part)


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
