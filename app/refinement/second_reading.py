"""The second reading: at the close, another model says of each connected group of changes whether all was kept.

It sees the texts before and after, quoted as data, and never why they were changed. Only a reply of the form that it
was asked for, a line for each group, can call a group kept. Whatever else it is, nothing was called kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from app.asking.prompt_memories import CHARACTERS_A_TOKEN, weigh_line
from app.asking.rendering import encode_json, render_prompt
from app.asking.replies import CUT_OFF, MalformedReply, without_code_fence, without_thought
from app.extensions import db
from app.llm.client import Message, ModelError, ModelErrorKind, Reply
from app.models import AuditLog, Memory, MemoryState, MemoryText
from app.models.audit import OPERATIONS
from app.models.memory_text import texts_of
from app.models.second_reading import GroupVerdict, change_groups
from app.silo import AgentKeys

KEPT = "kept"

_LINE = re.compile(r"(?:group[ \t]+)?#?([0-9]{1,3})[ \t*_]*[:.)=\-–—]*(.*)", re.IGNORECASE)
_DECORATION = "*_`\"'>#•-–— \t"
_AROUND = _DECORATION + ".!,;:"


@dataclass(frozen=True)
class GroupTexts:
    """What the memories of one group said before its refinement changed them, and what the active ones say now."""

    before: Sequence[str] = field(repr=False)
    after: Sequence[str] = field(repr=False)


def read_groups(refinement_id: str, keys: AgentKeys) -> list[GroupTexts]:
    """The texts of each group of changes, in the order of the groups. Raises SealBroken."""
    groups = change_groups(refinement_id)
    ids = {number for group in groups for number in group}
    first = _first_changes(refinement_id, ids)
    now = _active_digests(ids)
    unchanged = {number: digest for number, digest in now.items() if number not in first}
    before = unchanged | _digests_at({number: entry_id for number, entry_id in first.items() if entry_id is not None})
    sealed = texts_of(MemoryText.memory_id.in_(ids))

    def reveal(group: Sequence[int], digests: Mapping[int, bytes]) -> list[str]:
        named = [(number, digests[number]) for number in group if number in digests]
        return [keys.reveal_memory(number, sealed[number, digest]) for number, digest in named]

    return [GroupTexts(reveal(group, before), reveal(group, now)) for group in groups]


def reading_messages(groups: Sequence[GroupTexts], window: int | None) -> list[Message]:
    """What the reader is asked. Raises ModelError where that is more than its window of so many tokens holds: who has
    not read everything can't call it kept.
    """
    shown = [(encode_json(list(group.before)), encode_json(list(group.after))) for group in groups]
    if window is not None and sum(weigh_line(line) for pair in shown for line in pair) > window * CHARACTERS_A_TOKEN:
        raise ModelError(
            ModelErrorKind.CONTEXT_TOO_LONG,
            "The changes are too long for the second reader.",
            summary="The changes are too long for the second reader",
        )
    question = render_prompt("second_reading_question.txt", groups=shown)
    return [{"role": "system", "content": render_prompt("second_reading_system.txt")}, _user(question)]


def read_verdicts(reply: Reply, count: int) -> list[GroupVerdict]:
    """One a group, in their order. Raises MalformedReply unless the reply is a line for each group and nothing else.

    One closed leading think block, a code fence around everything, and blank lines are ignored.
    """
    if reply.finish_reason in CUT_OFF:
        raise MalformedReply("it was cut off")
    whole = reply.text.encode("utf-8", "replace").decode()  # half a surrogate pair becomes a question mark
    text = without_code_fence(without_thought(whole).strip())
    lines = [line for each in text.splitlines() if (line := each.strip(_DECORATION))]
    found = [_read_line(line) for line in lines] if len(lines) == count else []
    if sorted(number for number, _ in found) != list(range(1, count + 1)):
        raise MalformedReply("it must have one line for each group, and nothing else")
    return [verdict for _, verdict in sorted(found, key=lambda each: each[0])]


def _read_line(line: str) -> tuple[int, GroupVerdict]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise MalformedReply("each line must be a group's number and what becomes of it")
    words = match[2].strip(_AROUND)
    is_kept = words.casefold() == KEPT
    return int(match[1]), GroupVerdict(is_kept, "" if is_kept else match[2].strip())


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _active_digests(ids: Collection[int]) -> dict[int, bytes]:
    query = select(Memory.id, Memory.content_digest).where(Memory.id.in_(ids), Memory.discarded_at.is_(None))
    return dict(db.session.execute(query).tuples().all())


def _first_changes(refinement_id: str, ids: Collection[int]) -> dict[int, int | None]:
    """By each memory that the refinement changed: the entry of its state before that, None for what it made."""
    query = (
        select(MemoryState.memory_id, MemoryState.previous_entry_id)
        .join(AuditLog, AuditLog.id == MemoryState.entry_id)
        .where(AuditLog.refinement_id == refinement_id, AuditLog.action.in_(OPERATIONS))
        .where(MemoryState.memory_id.in_(ids))
        .order_by(MemoryState.entry_id.desc())
    )
    return dict(db.session.execute(query).tuples().all())


def _digests_at(entries: Mapping[int, int]) -> dict[int, bytes]:
    """By memory: the text of its state that this entry wrote."""
    query = select(MemoryState.memory_id, MemoryState.entry_id, MemoryState.content_digest)
    query = query.where(MemoryState.memory_id.in_(entries), MemoryState.entry_id.in_(entries.values()))
    rows = db.session.execute(query).tuples()
    return {memory_id: digest for memory_id, entry_id, digest in rows if entries[memory_id] == entry_id}
