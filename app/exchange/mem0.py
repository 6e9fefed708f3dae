"""mem0 exports: what `get_all` returns, as `{"results": […]}` or as the list alone; each memory becomes a core one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from app.errors import Invalid
from app.exchange.draft import NOT_IMPORTED, Checking, Draft, parse_moment
from app.exchange.file_text import count_items, load_document
from app.exchange.parsed import ImportFormat, ParsedFile, add_counts, usable_tags
from app.values.text import clean_content


def recognises(found: object) -> bool:
    listed = _result_list(found)
    return isinstance(listed, list) and all(isinstance(each, dict) and "memory" in each for each in listed[:1])


def parse(data: bytes) -> ParsedFile:
    """Raises ImportRefused with the memories that can't be used, or Invalid."""
    found = load_document(data)
    listed = _result_list(found)
    if not isinstance(listed, list):
        raise Invalid("It is no mem0 export: it has no list of results.", NOT_IMPORTED)
    checking, refused = Checking(), 0
    for number, item in enumerate(listed, start=1):
        with checking.of("memory", number) as drafts:
            made, unusable = _parse_memory(item)
            drafts.append(made)
            refused += unusable
        if checking.is_over:
            break
    around = found if isinstance(found, dict) else {}
    left_out = add_counts({"tags": refused, "relations": count_items(around.get("relations"))})
    return ParsedFile(ImportFormat.MEM0, checking.result(), left_out=left_out, is_partial=bool(around.get("next")))


def _result_list(found: object) -> object:
    return found.get("results") if isinstance(found, dict) else found


def _parse_memory(item: object) -> tuple[Draft, int]:
    """The memory, and how many of its categories can't be tags. Raises Invalid."""
    if not isinstance(item, dict) or "memory" not in item:
        raise Invalid("It must be a JSON object that has a memory.")
    tags, refused = usable_tags(_item_categories(item))
    content = clean_content(item["memory"])
    return Draft(content, origin_at=parse_moment(item.get("created_at")), tags=tuple(tags)), refused


def _item_categories(item: Mapping[str, Any]) -> Iterator[object]:
    """One or several, on the memory itself or in its metadata: versions differ."""
    metadata = item.get("metadata")
    for holder in (item, metadata if isinstance(metadata, dict) else {}):
        for value in (holder.get("category"), holder.get("categories")):
            if isinstance(value, list):
                yield from value
            elif value is not None:
                yield value
