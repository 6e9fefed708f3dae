"""Files of memories: what a file is, by its content first and by its name second, and what is in it.

Nothing is guessed in silence: what looks like broken JSON is refused as such, never taken as plain text, and whoever
asks is told what the file was recognised as.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import BytesIO
from pathlib import PurePath

from app.errors import Invalid
from app.exchange import agent_file, bundle, mem0
from app.exchange.draft import NO_MEMORIES, NOT_IMPORTED, parse_json
from app.exchange.file_text import MAX_LINE, decode_text, load_document, parse_lines, parse_text, read_lines
from app.exchange.parsed import ImportFormat, ParsedFile

MOST_BYTES = 64_000_000
"""Of one file, whatever it is."""

_SUFFIXES = {
    ".jsonl": ImportFormat.JSON_LINES,
    ".ndjson": ImportFormat.JSON_LINES,
    ".af": ImportFormat.AGENT_FILE,
    ".txt": ImportFormat.TEXT,
    ".text": ImportFormat.TEXT,
}
_BEGINS_LIKE_JSON = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:[{\[]|"(?:\s|\\[nrt])*[{\[])')
_NAME_IT = f"Name its format: {', '.join(ImportFormat)}."


class NotRecognised(Invalid):
    """It can't be told what this file is."""

    code = "format_not_recognised"
    outcome = NOT_IMPORTED


def read_file(data: bytes, *, name: str = "", format: ImportFormat | None = None) -> ParsedFile:
    """All that is in a file, checked. Raises NotRecognised, ImportRefused or Invalid."""
    if len(data) > MOST_BYTES:
        raise Invalid(f"A file of more than {MOST_BYTES // 1_000_000} MB is not taken; split it.", NOT_IMPORTED)
    return parse_as(data, format or detect_format(name, data))


def detect_format(name: str, data: bytes) -> ImportFormat:
    """What it is. `name` is the file's, "" where it has none. Raises NotRecognised, or Invalid for a blank file."""
    if not data.strip():
        raise Invalid(NO_MEMORIES, NOT_IMPORTED)
    named = _SUFFIXES.get(PurePath(name).suffix.lower())
    if _BEGINS_LIKE_JSON.match(data):
        return _detect_json(data, named)
    if named is None:
        raise NotRecognised(f"It is no JSON, and its name does not say what it is. {_NAME_IT}")
    return named


def parse_as(data: bytes, format: ImportFormat) -> ParsedFile:
    """Read it as that, and nothing else. Raises ImportRefused or Invalid."""
    return _PARSERS[format](data)


def _detect_json(data: bytes, named: ImportFormat | None) -> ImportFormat:
    are_lines = named is ImportFormat.JSON_LINES or _begins_with_a_whole_line(data)
    try:
        found = load_document(data)
    except Invalid as error:
        if are_lines:
            return ImportFormat.JSON_LINES
        raise NotRecognised(f"It begins like JSON. {error.sentence} {_NAME_IT}") from None
    kind = _kind_of(found) or (named if named is ImportFormat.JSON_LINES else None)
    if kind is None:
        raise NotRecognised(f"It is JSON, but of no form that is known here. {_NAME_IT}")
    return kind


def _begins_with_a_whole_line(data: bytes) -> bool:
    """Whether the first line is a JSON object by itself: then more of them follow, and their reader names each."""
    line = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:MAX_LINE].partition(b"\n")[0]
    try:
        return isinstance(parse_json(decode_text(line)), dict)
    except Invalid:
        return False


def _kind_of(found: object) -> ImportFormat | None:
    lines = ImportFormat.JSON_LINES if isinstance(found, dict) and "content" in found else None
    return next((kind for kind, recognises in _MARKS.items() if recognises(found)), lines)


_MARKS: dict[ImportFormat, Callable[[object], bool]] = {
    ImportFormat.BUNDLE: bundle.recognises,
    ImportFormat.AGENT_FILE: agent_file.recognises,
    ImportFormat.MEM0: mem0.recognises,
}

_PARSERS: dict[ImportFormat, Callable[[bytes], ParsedFile]] = {
    ImportFormat.JSON_LINES: lambda data: ParsedFile(ImportFormat.JSON_LINES, parse_lines(read_lines(BytesIO(data)))),
    ImportFormat.AGENT_FILE: agent_file.parse,
    ImportFormat.MEM0: mem0.parse,
    ImportFormat.TEXT: lambda data: ParsedFile(ImportFormat.TEXT, parse_text(data)),
    ImportFormat.BUNDLE: bundle.parse,
}
