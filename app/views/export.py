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
from app.shapes.response import ResponseModel
from app.views.filters import FilterForm

MOST_AT_ONCE = 4
"""Files that one web process sends at the same time: each keeps one of its threads until the last byte."""

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a spreadsheet takes for the beginning of a formula, in full width too."""

COLUMNS = tuple(EntryShape.model_fields)


class ExportsBusy(WhetstoneError):
    """As many files are being sent as this server sends at once. Try again in a minute."""

    code = "exports_busy"
    http_status = 429


@dataclass(frozen=True)
class ExportFormat:
    """How entries become a file."""

    suffix: str
    mimetype: str
    format_batch: Callable[[Iterable[LogEntry]], str]
    header: str = ""


def download_log(form: FilterForm, file: ExportFormat) -> Response:
    """All that the filters leave, as a file. Raises `Wrong` for filters that can't be used, or ExportsBusy."""
    form.check()
    name = f"audit-agent-{form.agent.id}" if form.agent else "audit"
    batches = map(file.format_batch, read_batches(form.filters))
    return send_pieces(chain([file.header], batches) if file.header else batches, name, file)


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


def _format_csv(entries: Iterable[LogEntry]) -> str:
    """RFC 4180; what a program takes for a formula is made text by an apostrophe."""
    text = io.StringIO()
    rows = (map(_cell_text, EntryShape.of(entry).as_json().values()) for entry in entries)
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue()


def _cell_text(value: object) -> str:
    if value is None:
        return ""
    cell = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    return f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell


def json_lines(shapes: Iterable[ResponseModel]) -> Iterator[str]:
    return (f"{json.dumps(shape.as_json())}\n" for shape in shapes)


def _format_json(entries: Iterable[LogEntry]) -> str:
    return "".join(json_lines(map(EntryShape.of, entries)))


CSV = ExportFormat("csv", "text/csv; charset=utf-8; header=present", _format_csv, ",".join(COLUMNS) + "\r\n")
JSON_LINES = ExportFormat("jsonl", "application/jsonl; charset=utf-8", _format_json)
