"""The audit log as a file, CSV or JSON Lines: oldest first, sent batch by batch as it is read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from threading import BoundedSemaphore

from flask import Response, current_app, stream_with_context

from app.errors import WhetstoneError
from app.history.log import LogEntry, read_batches
from app.shapes.audit import EntryShape
from app.views.filters import FilterForm

MOST_AT_ONCE = 4
"""Files that one web process sends at the same time: each keeps one of its threads until the last byte."""

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the beginning of a formula, in full width too."""

COLUMNS = ("id", "at", "actor", "action", "agent", "refinement", "subject", "data", "hash", "previous_hash")


class ExportsBusy(WhetstoneError):
    """As many files are being sent as this server sends at once. Try again in a minute."""

    code = "exports_busy"
    http_status = 429


@dataclass(frozen=True)
class ExportFormat:
    """How entries become a file."""

    suffix: str
    mimetype: str
    write: Callable[[Iterable[list[LogEntry]]], Iterator[str]]


def download_log(form: FilterForm, file: ExportFormat) -> Response:
    """All that the filters leave, as a file. Raises `Wrong` for filters that can't be used, or ExportsBusy."""
    form.check()
    name = f"audit-agent-{form.agent.id}" if form.agent else "audit"
    return send_pieces(file.write(read_batches(form.filters)), name, file)


def send_pieces(written: Iterator[str], name: str, file: ExportFormat) -> Response:
    """The pieces of a file, sent as they are made. Raises ExportsBusy."""
    text = _one_of_few(written)
    first = next(text, "")
    response = Response(
        stream_with_context(chain([first], text)),
        mimetype=file.mimetype,
        headers={"Content-Disposition": f'attachment; filename="{name}.{file.suffix}"'},
    )
    response.call_on_close(text.close)
    return response


def _one_of_few(text: Iterator[str]) -> Generator[str]:
    """Holds one of the places for as long as it is being sent. Raises ExportsBusy at its first step."""
    places: BoundedSemaphore = current_app.extensions.setdefault("exports", BoundedSemaphore(MOST_AT_ONCE))
    if not places.acquire(blocking=False):
        raise ExportsBusy
    try:
        yield from text
    finally:
        places.release()


def _csv_lines(read: Iterable[list[LogEntry]]) -> Iterator[str]:
    """RFC 4180, with a header; what a program takes for a formula is made text by an apostrophe."""
    yield _format_csv([COLUMNS])
    for entries in read:
        yield _format_csv(_entry_cells(entry) for entry in entries)


def _format_csv(rows: Iterable[Iterable[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def _entry_cells(entry: LogEntry) -> list[str]:
    told = EntryShape.of(entry)
    return [_escape_formula(_cell_text(getattr(told, name))) for name in COLUMNS]


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def _escape_formula(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell


def _json_lines(read: Iterable[list[LogEntry]]) -> Iterator[str]:
    for entries in read:
        yield "".join(f"{json.dumps(EntryShape.of(entry).as_json())}\n" for entry in entries)


CSV = ExportFormat("csv", "text/csv; charset=utf-8; header=present", _csv_lines)
JSON_LINES = ExportFormat("jsonl", "application/jsonl; charset=utf-8", _json_lines)
