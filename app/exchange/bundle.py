"""A bundle: what an agent takes along of itself, its settings and its active memories, and brings back exactly.

All but the constitutional flag, which only admins and refinements set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import select, tuple_

from app.errors import Invalid
from app.exchange.draft import NO_MEMORIES, NOT_IMPORTED, Checking, check_keys, parse_draft
from app.exchange.file_text import load_document
from app.exchange.parsed import ImportFormat, ParsedFile
from app.extensions import db, end_reading, now
from app.models.agent import Agent
from app.models.agent_settings import PROMPTS, as_json
from app.models.base import iso
from app.models.memory import Memory
from app.models.memory_text import content_columns, join_content
from app.models.state import MemoryState
from app.silo import AgentKeys, SealedMemory
from app.values.text import clean_text

MARK = "whetstone-bundle/"
VERSION = f"{MARK}1"
BATCH = 200

COUNTS = ("recall_probes", "max_confirmed_losses")
"""Settings that are whole numbers."""

SETTINGS = (*PROMPTS, "refinement_threshold", *COUNTS, "second_reader_action")
"""What an agent authors itself, but for what is another's elsewhere: its name, and who its second reader is."""

KEYS = ("format", "exported_at", "agent", "settings", "memories")

Place = tuple[int, int | None]
"""A memory's id, and that of the audit entry that wrote what it shows."""


def recognises(found: object) -> bool:
    return isinstance(found, dict) and str(found.get("format")).startswith(MARK)


def parse(data: bytes) -> ParsedFile:
    """Raises ImportRefused with the memories that can't be used, or Invalid.

    The settings only have to be texts or whole numbers: who applies them checks them.
    """
    found = load_document(data)
    if not recognises(found):
        raise Invalid("It is no bundle: its format is not named so.", NOT_IMPORTED)
    if found["format"] != VERSION:
        raise Invalid(f"It is a bundle of another version; this Whetstone reads {VERSION}.", NOT_IMPORTED)
    check_keys(found, KEYS)
    settings = _parse_settings(found.get("settings"))
    checking = Checking()
    for number, item in enumerate(_parse_memories(found.get("memories")), start=1):
        with checking.of("memory", number) as drafts:
            drafts.append(parse_draft(item, carried=True))
        if checking.is_over:
            break
    drafts = checking.result(or_none=True)
    if not drafts and "memories" not in found and not any(settings.values()):
        raise Invalid(NO_MEMORIES, NOT_IMPORTED)
    return ParsedFile(ImportFormat.BUNDLE, drafts, settings=settings)


def export_bundle(agent: Agent, keys: AgentKeys) -> Iterator[str]:
    """The agent's own bundle, piece by piece, as it is at the first step.

    No transaction is open between two pieces, however slowly they are taken: it reads the states that the memories
    had at first, which nothing ever changes.
    """
    agent = db.session.get_one(Agent, agent.id, populate_existing=True)
    head = {
        "format": VERSION,
        "exported_at": iso(now()),
        "agent": {"name": agent.name},
        "settings": {name: _read_setting(agent, name) for name in SETTINGS},
    }
    places = _find_places(agent.id)
    end_reading()
    yield json.dumps(head, ensure_ascii=False)[:-1] + ', "memories": ['
    begin = "\n"
    for start in range(0, len(places), BATCH):
        for memory in _read_memories(places[start : start + BATCH], keys):
            yield begin + json.dumps(memory, ensure_ascii=False)
            begin = ",\n"
    yield "\n]}\n"


def _read_setting(agent: Agent, name: str) -> object:
    """Null stands for the default."""
    value = getattr(agent, name)
    return None if name == "recall_probes" and value == 0 else as_json(value)


def _parse_settings(found: object) -> dict[str, str | int | None]:
    if not isinstance(found or {}, dict):
        raise Invalid("The settings must be a JSON object.")
    settings: dict[str, Any] = dict(found or {})  # type: ignore[call-overload]
    check_keys(settings, SETTINGS)
    return {name: None if value is None else _parse_setting(name, value) for name, value in settings.items()}


def _parse_setting(name: str, value: object) -> str | int:
    if name not in COUNTS:
        return clean_text(value, what=name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(f"The {name} must be a whole number.")
    return value


def _parse_memories(found: object) -> list[object]:
    if found is not None and not isinstance(found, list):
        raise Invalid("The memories must be a list.")
    return found or []


def _find_places(agent_id: int) -> list[Place]:
    query = Memory.active(agent_id).with_only_columns(Memory.id, Memory.entry_id)
    return [(row.id, row.entry_id) for row in db.session.execute(query)]


def _read_memories(places: Sequence[Place], keys: AgentKeys) -> list[dict[str, Any]]:
    columns = (
        MemoryState.memory_id,
        MemoryState.type,
        MemoryState.origin_at,
        MemoryState.other_dates,
        MemoryState.constitutional,
        MemoryState.tags,
        *content_columns(MemoryState.content_digest),
    )
    """What was erased since the first step is left out."""
    wanted = tuple_(MemoryState.memory_id, MemoryState.entry_id).in_(places)
    stands = select(*columns).join(Memory, Memory.id == MemoryState.memory_id).where(Memory.erased_at.is_(None))
    query = join_content(stands.where(wanted), MemoryState.memory_id, MemoryState.content_digest)
    found = {row.memory_id: _as_json(row, keys) for row in db.session.execute(query)}
    end_reading()
    return [found[memory_id] for memory_id, _ in places if memory_id in found]


def _as_json(row: Any, keys: AgentKeys) -> dict[str, Any]:
    return {
        "content": keys.reveal_memory(row.memory_id, SealedMemory(*row[-4:])),
        "type": str(row.type),
        "created_at": iso(row.origin_at),
        "other_dates": [iso(moment) for moment in row.other_dates],
        "constitutional": row.constitutional,
        "tags": row.tags,
    }
