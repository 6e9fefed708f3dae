"""The timeline of a refinement: each step told in words, and folded into rows, one row an operation; no content.

Pages and the command line print these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from sqlalchemy import select

from app.extensions import db
from app.history.folding import fold_row
from app.history.steps import Step, steps_of
from app.history.timeline_row import TimelineRow
from app.models import COMMAND_LINE, AuditLog, Refinement, Rollback, RollbackKind, Status, Trigger
from app.models.closing import READING_OUTCOMES
from app.values.mass_story import exact_percent
from app.values.plural import count_nouns, noun_for
from app.values.refinement_states import CHANGELESS_STATES
from app.vocabulary import ROLLBACKS, STATUSES, TRIGGERS
from app.vocabulary.actions import action_term, refusal_reason
from app.vocabulary.progress import attempt_failure

LOOKED_AT = 500
"""Rollbacks of an agent that are searched for those of one refinement."""


def timeline_of(refinement: Refinement, steps: Sequence[Step] | None = None) -> list[TimelineRow]:
    """The rows, oldest first; behind its end who took its work back, whole or one change of it, or gave it back.

    `steps` are its own, where they were read already.
    """
    rollbacks = _rollbacks_of(refinement)
    reversed_kinds = _reversed_kinds(refinement)
    undone = {rollback.target_entry_id for rollback in rollbacks if rollback.stands}
    rows = [
        replace(row, reversed=True) if row.kind in reversed_kinds or (row.entry and row.entry in undone) else row
        for row in _fold_steps(refinement, steps_of(refinement) if steps is None else steps)
    ]
    return [*rows, *(_tell_rollback(rollback, refinement) for rollback in rollbacks)]


def _fold_steps(refinement: Refinement, steps: Iterable[Step]) -> list[TimelineRow]:
    """Turns without an operation between them are one row, refusals one row a kind, a question and its answer too."""
    rows: list[TimelineRow] = []
    for step in steps:
        row = tell_step(step, refinement)
        if row is not None:
            fold_row(rows, row, is_completed=step.name == "ended" and step.data["status"] == Status.COMPLETED)
    return rows


def tell_step(step: Step, refinement: Refinement) -> TimelineRow | None:
    """One step by itself; None for one that is told elsewhere."""
    told = _TELLERS.get(step.name)
    return told(step, refinement) if told else None


def _reversed_kinds(refinement: Refinement) -> tuple[str, ...]:
    """A latch reverses the operations; the Time Machine brings back the exact duplicates too."""
    if refinement.undone_by is not None:
        return ("operation", "deduplicated")
    return ("operation",) if refinement.status == Status.ROLLED_BACK else ()


def _rollbacks_of(refinement: Refinement) -> list[Rollback]:
    """Those that took its work back, whole or one entry of it, or gave it back; oldest first."""
    since = (Rollback.agent_id == refinement.agent_id, Rollback.at >= refinement.requested_at)
    newest = select(Rollback).where(*since).order_by(Rollback.at.desc(), Rollback.entry_id.desc()).limit(LOOKED_AT)
    found = reversed(db.session.scalars(newest).all())
    entries = set(db.session.scalars(select(AuditLog.id).where(AuditLog.refinement_id == refinement.id)))
    return [each for each in found if refinement.id in (*each.undid, *each.redid) or each.target_entry_id in entries]


def _tell_rollback(rollback: Rollback, refinement: Refinement) -> TimelineRow:
    by = _actor_words(rollback.requested_by)
    about: dict[str, Any] = {"tokens": (rollback.mass_before, rollback.mass_after), "rollback": rollback.id}
    if refinement.id in rollback.redid:
        return TimelineRow("given_back", "history", "Its work was given back", rollback.at, "info", by, **about)
    term = ROLLBACKS[rollback.kind]
    by += "; that was undone" if rollback.kind == RollbackKind.ENTRY and not rollback.stands else ""
    return TimelineRow("taken_back", term.icon, term.taken_back, rollback.at, term.tone, by, **about)


def _tell_queued(step: Step, refinement: Refinement) -> TimelineRow:
    words = TRIGGERS[refinement.trigger].meaning
    who = _actor_words(refinement.started_by) if refinement.trigger == Trigger.ADMIN else ""
    return TimelineRow("queued", "clock", "Queued", step.at, detail=f"{words}, {who}" if who else words)


def _actor_words(actor: str) -> str:
    """Of a human's act: `from the command line`, `by ann@example.org`."""
    return "from the command line" if actor == str(COMMAND_LINE) else f"by {actor.partition(':')[2]}"


def _tell_deduplicated(step: Step, refinement: Refinement) -> TimelineRow:
    title = f"{count_nouns(step.data['removed'], 'exact duplicate')} removed"
    keeps_only_this = refinement.status in CHANGELESS_STATES
    detail = "matched by hash, content not read" + ("; kept all the same" if keeps_only_this else "")
    tokens = (int(step.data["tokens"]), 0)
    return TimelineRow("deduplicated", "copy", title, step.at, "info", detail, tokens=tokens)


def _tell_answered(step: Step, refinement: Refinement) -> TimelineRow:
    granted = bool(step.data["granted"])
    title = f"The agent said {'YES' if granted else 'NO'}"
    detail = "its words are sealed" if step.data.get("asked", True) else "it asked for this refinement itself"
    return TimelineRow("answered", "chat", title, step.at, "ok" if granted else "ask", detail)


def _tell_noted(step: Step, refinement: Refinement) -> TimelineRow | None:
    """The event only names the entry of the note: what it says stands with the notes."""
    quotes = [note.text or "" for note in refinement.notes if note.entry_id == step.data["entry"]]
    return TimelineRow("note", "chat", "Wrote to the admins", step.at, "ask", quote=quotes[0]) if quotes else None


def _tell_running(step: Step, refinement: Refinement) -> TimelineRow:
    detail = f"baseline for the limit of {exact_percent(refinement.threshold)}"
    return TimelineRow("snapshot", "flag", f"Snapshot: {step.data['mass']:,} tokens", step.at, detail=detail)


def _tell_turn(step: Step, refinement: Refinement) -> TimelineRow:
    turn, calls, searches, tokens = (int(step.data.get(name, 0)) for name in ("turn", "calls", "searches", "tokens"))
    counted: dict[str, Any] = {"calls": calls, "searches": searches, "model_tokens": tokens}
    return TimelineRow("turn", "agent", "", step.at, turns=(turn, turn), **counted).with_turn_words()


def _tell_retried(step: Step, refinement: Refinement) -> TimelineRow:
    data = step.data
    why = attempt_failure(data["why"], data.get("http"))
    title = f"Attempt {data['attempt']} of {data['attempts']} failed"
    return TimelineRow("retried", "alert", title, step.at, "warn", f"{why}; asked again after {data['pause']:.1f} s")


def _tell_operation(step: Step, refinement: Refinement) -> TimelineRow:
    data, term = step.data, action_term(step.data["action"])
    sources = tuple(int(number) for number in data.get("sources", ()))
    before, after = (int(tokens) for tokens in data["tokens"])
    return TimelineRow(
        "operation",
        term.icon,
        term.step or term.words,
        step.at,
        term.tone,
        detail=f"carried by memory {data['carrier']}" if data.get("carrier") else "",
        ids=sources or (int(data["id"]),),
        result=int(data["id"]) if sources else None,
        tokens=(before, after),
        retention=Decimal(data["retention"]) if data.get("retention") else None,
        entry=data.get("entry"),
        specifics=data.get("specifics"),
    )


def _tell_question(step: Step, refinement: Refinement) -> TimelineRow:
    """The model was asked about what its call would have lost. What it was is sealed."""
    missing, ids = int(step.data["missing"]), tuple(int(number) for number in step.data["ids"])
    title = f"Asked about {count_nouns(missing, 'specific')} that would be lost"
    which = f"{noun_for(len(ids), 'memory')} {', '.join(map(str, ids))}"
    return TimelineRow(
        "question", "chat", title, step.at, "ask", f"{step.data['action']} {which}: nothing changed", ids
    )


def _tell_refused(step: Step, refinement: Refinement) -> TimelineRow:
    action, code = str(step.data.get("action", "unknown")), str(step.data.get("code", ""))
    count, name = int(step.data.get("count", 1)), str(step.data.get("name", ""))
    ids = tuple(int(number) for number in step.data.get("ids", ()))
    about: dict[str, Any] = {"count": count, "ids": ids, "name": name}
    if action == "unknown":
        title = f"Refused: {f'`{name}`' if name else 'what it called'} is {refusal_reason(code)}"
        return TimelineRow(f"refused:{action}:{code}:{name}", "ban", title, step.at, detail="nothing changed", **about)
    detail = f"{refusal_reason(code)}; nothing changed"
    return TimelineRow(f"refused:{action}:{code}", "ban", f"Refused: {action}", step.at, detail=detail, **about)


def _stop_requested(step: Step, refinement: Refinement) -> TimelineRow:
    who = _actor_words(refinement.stop_requested_by) if refinement.stop_requested_by else ""
    return TimelineRow("stop_requested", "stop", "Stop pressed", step.at, "warn", who)


def _tell_read(step: Step, refinement: Refinement) -> TimelineRow:
    """Which model it was stands with the figures."""
    groups, kept = int(step.data["groups"]), int(step.data["kept"])
    title = f"Second reading: {kept} of {count_nouns(groups, 'group')} of changes called kept"
    tone = "ok" if kept == groups else "warn"
    return TimelineRow("read", "eye", title, step.at, tone, READING_OUTCOMES.get(step.data["outcome"], ""))


def _tell_ended(step: Step, refinement: Refinement) -> TimelineRow:
    term = STATUSES[step.data["status"]]
    return TimelineRow("ended", term.icon, term.ending, step.at, term.tone)


_TELLERS: Mapping[str, Callable[[Step, Refinement], TimelineRow | None]] = {
    "queued": _tell_queued,
    "begun": lambda step, _: TimelineRow("begun", "play", "Started", step.at),
    "deduplicated": _tell_deduplicated,
    "asked": lambda step, _: TimelineRow("asked", "chat", "The agent is asked for its consent", step.at, "ask"),
    "answered": _tell_answered,
    "noted": _tell_noted,
    "running": _tell_running,
    "turn": _tell_turn,
    "retried": _tell_retried,
    "operation": _tell_operation,
    "would_lose": _tell_question,
    "refused": _tell_refused,
    "stop_requested": _stop_requested,
    "closing": lambda step, _: TimelineRow("closing", "eye", "The last change was made", step.at),
    "read": _tell_read,
    "ended": _tell_ended,
}
