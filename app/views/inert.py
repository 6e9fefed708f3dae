"""Content on a page: text that can't act, in which everything that can't be seen is shown."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from markupsafe import Markup, escape

from app.values.unseen import MARKED, MARKED_IN_CHANGES

MOST_MARKS = 8
"""Of one unbroken row of unseen characters; the rest is counted."""

_NAMES = {
    0x00: "NUL", 0x07: "BEL", 0x08: "BS", 0x0B: "VT", 0x0C: "FF", 0x0D: "CR", 0x1B: "ESC", 0x7F: "DEL",
    0xA0: "NBSP", 0xAD: "SHY", 0x061C: "ALM", 0x200B: "ZWSP", 0x200C: "ZWNJ", 0x200D: "ZWJ", 0x200E: "LRM",
    0x200F: "RLM", 0x2028: "LSEP", 0x2029: "PSEP", 0x202A: "LRE", 0x202B: "RLE", 0x202C: "PDF", 0x202D: "LRO",
    0x202E: "RLO", 0x2060: "WJ", 0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xFE0F: "VS16",
    0xFEFF: "BOM",
}  # fmt: skip


def inert(text: str, *, changed: bool = False) -> Markup:
    """Escaped text, for an element's inside and never for an attribute, with a mark for each unseen character.

    `changed`: a piece that was added or removed, in which every line's end and every odd space counts.
    """
    if changed:
        text = text.replace("\n", "↵\n")
    parts, place = [], 0
    for found in (MARKED_IN_CHANGES if changed else MARKED).finditer(text):
        parts += [str(escape(text[place : found.start()])), *_mark_characters(found[0])]
        place = found.end()
    return Markup("".join([*parts, str(escape(text[place:]))]))  # noqa: S704 - each part is escaped, or a mark


def _mark_characters(row: str) -> Iterator[str]:
    """One for each kind in turn, with its count, up to the most that anybody reads."""
    shown = 0
    for index, (character, same) in enumerate(groupby(row)):
        if index == MOST_MARKS:
            yield _unseen_mark(f"and {len(row) - shown:,} more unseen characters")
            return
        count = len(list(same))
        shown += count
        name = _NAMES.get(ord(character), f"U+{ord(character):04X}")
        yield _unseen_mark(name + (f" × {count:,}" if count > 1 else ""))


def _unseen_mark(words: str) -> str:
    return f'<span class="unseen">{words}</span>'
