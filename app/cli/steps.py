"""One row of a refinement's timeline as one line for people: ids, counts and tokens, never content."""

from __future__ import annotations

from decimal import Decimal

import click

from app.history.timeline import TimelineRow
from app.values.mass_story import percent

_QUIET = {"queued", "begun", "turn"}


def line(row: TimelineRow, limit: Decimal) -> str:
    """What happened, after the time of day (UTC). `limit` is the threshold: what is kept never rounds across it."""
    text = _operation_line(row, limit) if row.kind == "operation" else _step_line(row)
    return f"  {row.at:%H:%M:%S}  {click.style(text, dim=True) if row.kind in _QUIET else text}"


def _step_line(row: TimelineRow) -> str:
    times = f"{row.count:,} × " if row.count > 1 else ""
    rollback = f"rollback {row.rollback[:8]}" if row.rollback else ""
    return " · ".join(part for part in (times + row.title, row.detail, _token_change(row), rollback) if part)


def _operation_line(row: TimelineRow, limit: Decimal) -> str:
    ids = ", ".join(map(str, row.ids)) + (f" → {row.result}" if row.result else "")
    kept = "" if row.retention is None else f"{percent(row.retention, limit)} kept"
    text = f"{row.title:<19}  {ids:<16}  {_token_change(row):<20}  {kept}"
    return f"{text} · reversed" if row.reversed else text.rstrip()


def _token_change(row: TimelineRow) -> str:
    if row.tokens is None:
        return ""
    before, after = row.tokens
    return f"{before:,} tokens" if before == after else f"{before:,} → {after:,} tokens"
