"""The timeline of a refinement: its events folded into rows, one row an operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from flask import url_for

from app.models import Event, Refinement, Rollback, RollbackKind, Status
from app.values.mass_story import exact_percent
from app.values.plural import count_nouns
from app.vocabulary import ROLLBACKS, STATUSES, TRIGGERS
from app.vocabulary.actions import action_term


@dataclass(frozen=True)
class TimelineRow:
    """One line of the timeline. `tokens` is a pair (before, after); `ids` are memories; nothing here is content.

    `quote` is what the agent wrote to the admins. `url` is the page of what the row tells, where it has one of its own.
    `entry` is the audit entry of an operation.
    """

    kind: str
    icon: str
    title: str
    at: datetime
    tone: str = "neutral"
    detail: str = ""
    ids: tuple[int, ...] = ()
    result: int | None = None
    tokens: tuple[int, int] | None = None
    retention: Decimal | None = None
    count: int = 1
    reversed: bool = False
    turns: tuple[int, int] | None = None
    calls: int = 0
    model_tokens: int = 0
    quote: str = ""
    url: str = ""
    entry: int | None = None

    @property
    def undo_url(self) -> str:
        """Where to see what an undo of just this would do; empty where it is no operation, or undone already."""
        if self.entry is None or self.reversed:
            return ""
        return url_for("rollbacks.plan_entry", entry_id=self.entry)

    def as_json(self) -> dict[str, Any]:
        said = {"kind": self.kind, "title": self.title, "at": self.at.isoformat(), "detail": self.detail or None}
        counted = {"ids": list(self.ids) or None, "result": self.result, "tokens": self.tokens and list(self.tokens)}
        rest = {
            "retention": self.retention and float(self.retention),
            "count": self.count,
            "reversed": self.reversed or None,
            "quote": self.quote or None,
        }
        return {key: value for key, value in (said | counted | rest).items() if value is not None}


def read(refinement: Refinement, events: Iterable[Event], rollbacks: Sequence[Rollback] = ()) -> list[TimelineRow]:
    """The rows, oldest first. Turns without an operation between them are one row, refusals one row a kind.

    `rollbacks` took its work back after the end, whole or one change of it, or gave it back.
    """
    rows: list[TimelineRow] = []
    for event in events:
        step = _STEPS.get(event.kind.removeprefix("refinement."))
        if step is not None:
            step(rows, event, refinement)
    reversed_kinds = _reversed_kinds(refinement)
    undone = {rollback.target_entry_id for rollback in rollbacks if rollback.stands}
    rows = [
        replace(row, reversed=True) if row.kind in reversed_kinds or (row.entry and row.entry in undone) else row
        for row in rows
    ]
    return [*rows, *(_rolled_back(rollback, refinement) for rollback in rollbacks)]


def _reversed_kinds(refinement: Refinement) -> tuple[str, ...]:
    """A latch reverses the operations; the Time Machine brings back the exact duplicates too."""
    if refinement.undone_by is not None:
        return ("operation", "deduplicated")
    return ("operation",) if refinement.status == Status.ROLLED_BACK else ()


def _rolled_back(rollback: Rollback, refinement: Refinement) -> TimelineRow:
    detail = f"by {rollback.requested_by.partition(':')[2]}"
    tokens = (rollback.mass_before, rollback.mass_after)
    url = url_for("rollbacks.show", rollback_id=rollback.id)
    if refinement.id in rollback.redid:
        return TimelineRow(
            "given_back", "history", "Its work was given back", rollback.at, "info", detail, tokens=tokens, url=url
        )
    detail += "; that was undone" if rollback.kind == RollbackKind.ENTRY and not rollback.stands else ""
    return TimelineRow(
        "taken_back", "undo", ROLLBACKS[rollback.kind].taken_back, rollback.at, "warn", detail, tokens=tokens, url=url
    )


def _queued(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    who = refinement.started_by.partition(":")[2] or refinement.started_by
    detail = f"{TRIGGERS[refinement.trigger].meaning}, {who}".strip(", ")
    rows.append(TimelineRow("queued", "clock", "Queued", event.at, detail=detail))


def _begun(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    rows.append(TimelineRow("begun", "play", "Started", event.at))


def _deduplicated(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    removed, tokens = int(event.data["removed"]), int(event.data["tokens"])
    title = f"{count_nouns(removed, 'exact duplicate')} removed"
    detail = "matched by hash, content not read" + ("; kept all the same" if _keeps_only_dedup(refinement) else "")
    rows.append(TimelineRow("deduplicated", "copy", title, event.at, "info", detail, tokens=(tokens, 0)))


def _keeps_only_dedup(refinement: Refinement) -> bool:
    return refinement.status in (Status.DECLINED, Status.ROLLED_BACK)


def _asked(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    rows.append(TimelineRow("asked", "chat", "The agent is asked for its consent", event.at, "ask"))


def _answered(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    if rows and rows[-1].kind == "asked":
        rows.pop()
    granted = bool(event.data["granted"])
    title = f"The agent said {'YES' if granted else 'NO'}"
    detail = "its words are sealed" if event.data.get("asked", True) else "it asked for this refinement itself"
    rows.append(TimelineRow("answered", "chat", title, event.at, "ok" if granted else "ask", detail))


def _noted(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    """The event only names the entry of the note: what it says stands with the notes."""
    for note in refinement.notes:
        if note.entry_id == event.data["entry"]:
            rows.append(TimelineRow("note", "chat", "Wrote to the admins", event.at, "ask", quote=note.text or ""))


def _running(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    title = f"Snapshot: {int(event.data['mass']):,} tokens"
    rows.append(
        TimelineRow(
            "snapshot",
            "flag",
            title,
            event.at,
            detail=f"baseline for the limit of {exact_percent(refinement.threshold)}",
        )
    )


def _turn(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    """Turns in which nothing was changed are one row; the others stand with their operations."""
    turn, calls, tokens = (int(event.data.get(name, 0)) for name in ("turn", "calls", "tokens"))
    last = rows.pop() if rows and rows[-1].kind == "turn" else None
    first = last.turns[0] if last and last.turns else turn
    calls, tokens = calls + (last.calls if last else 0), tokens + (last.model_tokens if last else 0)
    title = f"Turn {turn}" if first == turn else f"Turns {first} to {turn}"
    detail = f"{count_nouns(calls, 'call')}, {tokens:,} model tokens"
    rows.append(
        TimelineRow(
            "turn", "agent", title, event.at, detail=detail, turns=(first, turn), calls=calls, model_tokens=tokens
        )
    )


def _operation(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    data = event.data
    term = action_term(data["action"])
    sources = tuple(int(number) for number in data.get("sources", ()))
    before, after = (int(tokens) for tokens in data["tokens"])
    turns = _turn_of(rows)
    rows.append(
        TimelineRow(
            "operation",
            term.icon,
            term.step,
            event.at,
            term.tone,
            ids=sources or (int(data["id"]),),
            result=int(data["id"]) if sources else None,
            tokens=(before, after),
            retention=Decimal(data["retention"]) if data.get("retention") else None,
            turns=turns,
            entry=data.get("entry"),
        )
    )


def _turn_of(rows: list[TimelineRow]) -> tuple[int, int] | None:
    """The turn that an operation belongs to; a row that says nothing but this turn gives way."""
    last = rows[-1] if rows and rows[-1].kind in ("turn", "operation") else None
    if last is None or last.turns is None:
        return None
    if last.kind == "turn" and last.turns[0] == last.turns[1]:
        rows.pop()
    return last.turns[1], last.turns[1]


_CODES = {
    "constitutional": "the memory is constitutional",
    "immutable": "the memory carries an immutable tag",
    "unknown_memory": "no such memory of this agent",
    "cap_reached": "the hard cap was reached",
    "terminated": "the refinement was over already",
    "protections_used": "all 10 protections were used",
    "invalid": "the arguments were not valid",
    "malformed_arguments": "the arguments were no JSON object",
    "unknown_function": "there is no such function",
}


def _refused(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    action, code = str(event.data.get("action", "unknown")), str(event.data.get("code", ""))
    kind, count = f"refused:{action}:{code}", int(event.data.get("count", 1))
    for place, row in enumerate(rows):
        if row.kind == kind:
            rows[place] = replace(row, count=row.count + count)
            return
    reason = _CODES.get(code, code.replace("_", " "))
    title = "Refused: unknown function" if action == "unknown" else f"Refused: {action}"
    rows.append(TimelineRow(kind, "ban", title, event.at, detail=f"{reason}; nothing changed", count=count))


def _stop_requested(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    who = (refinement.stop_requested_by or "").partition(":")[2]
    rows.append(
        TimelineRow("stop_requested", "stop", "Stop pressed", event.at, "warn", detail=f"by {who}" if who else "")
    )


def _ended(rows: list[TimelineRow], event: Event, refinement: Refinement) -> None:
    term = STATUSES[event.data["status"]]
    last = next((row for row in reversed(rows) if row.kind != "note"), None)
    if last is not None and last.kind == "turn" and last.calls == 1 and refinement.status == Status.COMPLETED:
        rows.remove(last)
    rows.append(TimelineRow("ended", term.icon, term.ending, event.at, term.tone))


_STEPS: dict[str, Callable[[list[TimelineRow], Event, Refinement], None]] = {
    "queued": _queued,
    "begun": _begun,
    "deduplicated": _deduplicated,
    "asked": _asked,
    "answered": _answered,
    "noted": _noted,
    "running": _running,
    "turn": _turn,
    "operation": _operation,
    "refused": _refused,
    "stop_requested": _stop_requested,
    "ended": _ended,
}
