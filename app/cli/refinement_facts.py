"""A refinement as the command line tells it: for programs, as a row of a table, as a page, and as an outcome."""

from __future__ import annotations

from typing import Any

from app.cli.common import Cell, day_and_time, print_facts, print_hint, say
from app.cli.steps import line
from app.history.steps import steps_of
from app.history.timeline import timeline_of
from app.models import Agent, Refinement
from app.models.base import iso
from app.values.mass_story import exact_percent, percent
from app.vocabulary import STATUSES

HEADINGS = ("ID", "AGENT", "STATUS", "MODE", "BY", "ASKED FOR (UTC)", "CHANGES", "TOKENS", "KEPT")

FAILED_HEADINGS = ("ID", "AGENT", "STATUS", "ENDED (UTC)", "REASON")

SHORT = 8
"""Characters of an id that people are shown."""


def steps_as_json(refinement: Refinement) -> list[dict[str, Any]]:
    """Its events for programs, oldest first."""
    return [{"at": iso(step.at), "step": step.name, "data": step.data} for step in steps_of(refinement)]


def refinement_row(refinement: Refinement, agent: str) -> list[Cell]:
    """One line of the table under HEADINGS."""
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


def failed_row(refinement: Refinement, agent: str) -> list[Cell]:
    """One line of the table under FAILED_HEADINGS."""
    return [
        refinement.id[:SHORT],
        agent,
        STATUSES[refinement.status].words,
        day_and_time(refinement.ended_at),
        refinement.reason or "",
    ]


def show_page(refinement: Refinement, agent: Agent) -> None:
    """All that may be seen of one: figures, the machine's line, the agent's notes to admins, and every step."""
    say(f"Refinement {refinement.id} of {agent.name}: {STATUSES[refinement.status].words}")
    model_tokens = refinement.prompt_tokens + refinement.completion_tokens
    print_facts(
        [
            ("asked for", f"{day_and_time(refinement.requested_at)} UTC by {refinement.started_by}"),
            ("mode", refinement.mode),
            ("model", refinement.model_id),
            ("result", refinement.machine_line),
            ("why", refinement.reason),
            ("mass", _mass_words(refinement) or None),
            ("undone by", f"rollback {refinement.undone_by[:SHORT]}" if refinement.undone_by else None),
            ("effort", f"{refinement.turns} turns, {refinement.calls} calls, {model_tokens:,} model tokens"),
            ("refusals", _refusal_words(refinement)),
            *(("note to admins", f"{day_and_time(note.at)}: “{note.text}”") for note in refinement.notes),
        ]
    )
    say()
    for each in timeline_of(refinement):
        say(line(each, refinement.threshold))
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
    if told := _mass_words(refinement):
        say(f"Mass: {told}.")
    if refinement.refused_calls:
        say(f"{_refusal_words(refinement)}.")
    for note in refinement.notes:
        say(f"The agent's note to you: “{note.text}”")
    print_hint(f"refinements show {refinement.id[:SHORT]}", "Look at it")


def _refusal_words(refinement: Refinement) -> str | None:
    return f"{refinement.refusal_line} ({refinement.refusal_kinds})" if refinement.refused_calls else None


def _retention_words(refinement: Refinement) -> str:
    if refinement.retention is None or refinement.mode != "full":
        return ""
    kept = percent(refinement.retention, refinement.threshold)
    return f"{kept}, limit {exact_percent(refinement.threshold)}"


def _mass_words(refinement: Refinement) -> str:
    story = refinement.mass_story()
    return story.line if story else ""
