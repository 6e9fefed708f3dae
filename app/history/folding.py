"""Folding: steps that belong together are one row of a refinement's timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from app.history.timeline_row import TimelineRow

MOST_IDS = 20
"""Of the memories that refused calls of one kind named."""


def fold_row(rows: list[TimelineRow], row: TimelineRow, *, is_completed: bool = False) -> None:
    """Put the next row behind those before it, or into one of them. `is_completed` for the end that an agent wanted."""
    fold = _fold_completed if is_completed else _FOLDS.get(row.kind.partition(":")[0], list.append)
    fold(rows, row)


def _fold_answer(rows: list[TimelineRow], row: TimelineRow) -> None:
    if rows and rows[-1].kind == "asked":
        rows.pop()
    rows.append(row)


def _fold_turn(rows: list[TimelineRow], row: TimelineRow) -> None:
    """Turns in which nothing was changed are one row; the others stand with their operations."""
    last = rows.pop() if rows and rows[-1].kind == "turn" else None
    if last is not None and last.turns and row.turns:
        row = replace(
            row,
            turns=(last.turns[0], row.turns[1]),
            calls=row.calls + last.calls,
            searches=row.searches + last.searches,
            model_tokens=row.model_tokens + last.model_tokens,
            parts=(*(last.parts or (last,)), row),
        ).with_turn_words()
    rows.append(row)


def _fold_operation(rows: list[TimelineRow], row: TimelineRow) -> None:
    """It names its turn; a row that says nothing but this turn gives way."""
    last = rows[-1] if rows and rows[-1].kind in ("turn", "operation") else None
    if last is not None and last.turns is not None:
        if last.kind == "turn" and last.turns[0] == last.turns[1] and not last.searches:
            rows.pop()
        row = replace(row, turns=(last.turns[1], last.turns[1]))
    rows.append(row)


def _fold_refusal(rows: list[TimelineRow], row: TimelineRow) -> None:
    for place, earlier in enumerate(rows):
        if earlier.kind == row.kind:
            ids = tuple(dict.fromkeys((*earlier.ids, *row.ids)))[:MOST_IDS]
            rows[place] = replace(earlier, count=earlier.count + row.count, ids=ids)
            return
    rows.append(row)


def _fold_completed(rows: list[TimelineRow], row: TimelineRow) -> None:
    """The turn that only said that it is complete gives way."""
    last = next((each for each in reversed(rows) if each.kind != "note"), None)
    if last is not None and last.kind == "turn" and last.calls == 1:
        rows.remove(last)
    rows.append(row)


_FOLDS: Mapping[str, Callable[[list[TimelineRow], TimelineRow], None]] = {
    "answered": _fold_answer,
    "turn": _fold_turn,
    "operation": _fold_operation,
    "refused": _fold_refusal,
}
