"""Plain text: every line that is not blank is a core memory of its own."""

from __future__ import annotations

from app.exchange.draft import MOST_DRAFTS, Checking, Draft, TooManyProblems
from app.exchange.importing import decode_text
from app.exchange.parsed import ImportFormat, ParsedFile
from app.values.text import clean_content


def parse(data: bytes) -> ParsedFile:
    """Raises ImportRefused with the lines that can't be used, or Invalid where there are none. UTF-8 only."""
    checking = Checking()
    for number, line in enumerate(data.split(b"\n", MOST_DRAFTS), start=1):
        with checking.of("line", number) as drafts:
            if number > MOST_DRAFTS:
                raise TooManyProblems(
                    f"One import takes at most {MOST_DRAFTS:,} lines; split the file. The rest was not read."
                )
            text = decode_text(line)
            drafts += [Draft(clean_content(text))] if text else []
    return ParsedFile(ImportFormat.TEXT, checking.result())
