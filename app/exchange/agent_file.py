"""Letta agent files: memory blocks and archival passages become core memories; conversations and settings do not.

Two generations are read. The older file is the agent itself, with its blocks under `core_memory`. The newer one holds
`agents`, which name their blocks by `block_ids` among the file's `blocks`, or carry them as `memory_blocks`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.errors import Invalid
from app.exchange.draft import NOT_IMPORTED, Checking, Draft, parse_moment
from app.exchange.file_text import count_items, load_document, read_objects
from app.exchange.parsed import ImportFormat, ParsedFile, add_counts, usable_tags
from app.values.text import MAX_CONTENT, clean_content, clean_text, is_blank

PASSAGES = ("passages", "archival_passages", "archival_memory")
"""Under which names exporters put the archival memory, in the file or in the agent."""

_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")

Found = Mapping[str, Any]
Item = tuple[str, int, Found]
"""What of the file it is, its number there, and itself."""


def recognises(found: object) -> bool:
    return isinstance(found, dict) and any(isinstance(found.get(key), list) for key in ("agents", "core_memory"))


def parse(data: bytes) -> ParsedFile:
    """Raises ImportRefused with the blocks and passages that can't be used, or Invalid."""
    found = load_document(data)
    if not recognises(found):
        raise Invalid("It is no Letta agent file: it has neither agents nor a core_memory.", NOT_IMPORTED)
    return _Reading(found, _only_agent(found)).parsed()


def divide_text(text: str) -> list[str]:
    """The text, or pieces of it that a memory can hold: cut at the last blank line that fits, else at a line's end.

    Raises Invalid for a line that is too long for a memory by itself.
    """
    pieces, rest = [], text.strip()
    while len(rest) > MAX_CONTENT:
        cut = _last_cut(rest)
        pieces.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*pieces, rest]


def _last_cut(text: str) -> int:
    blank = [match.start() for match in _BLANK_LINE.finditer(text[: MAX_CONTENT + 2])]
    cut = blank[-1] if blank else text.rfind("\n", 0, MAX_CONTENT + 1)
    if cut < 0:
        raise Invalid(f"It has a line of more than {MAX_CONTENT:,} characters, which no memory can hold.")
    return cut


def _only_agent(found: Found) -> Found:
    if not isinstance(found.get("agents"), list):
        return found
    agents = read_objects(found["agents"], "agents")
    if len(agents) != 1:
        raise Invalid(
            f"It holds {len(agents):,} agents, and an import is for one: nothing says whose memories they would be.",
            NOT_IMPORTED,
        )
    return agents[0]


def _numbered_items(holder: Found, key: str) -> Iterator[Item]:
    for number, found in enumerate(read_objects(holder.get(key), key), start=1):
        yield f"{key} item", number, found


@dataclass
class _Reading:
    """One agent of one file, on the way to memories."""

    file: Found
    agent: Found
    checking: Checking = field(default_factory=Checking)
    left_out: dict[str, int] = field(default_factory=dict)
    divided: int = 0

    def parsed(self) -> ParsedFile:
        for noun, number, block in self._used_blocks():
            self._take_item(noun, number, block, block.get("value"), [block.get("label")])
        for noun, number, passage in self._all_passages():
            self._take_item(noun, number, passage, passage.get("text", passage.get("content")), passage.get("tags"))
        self._count_the_rest()
        drafts = self.checking.result()
        return ParsedFile(ImportFormat.AGENT_FILE, drafts, left_out=self.left_out, divided=self.divided)

    def _used_blocks(self) -> Iterator[Item]:
        for key in ("core_memory", "memory_blocks"):
            yield from _numbered_items(self.agent, key)
        named = self.agent.get("block_ids")
        blocks = list(_numbered_items(self.file, "blocks"))
        for noun, number, block in blocks:
            if not isinstance(named, list) or block.get("id") in named:
                yield noun, number, block
            else:
                self._leave_out(other_blocks=1)
        self._check_named(named, [block.get("id") for _, _, block in blocks])

    def _check_named(self, named: object, there: list[object]) -> None:
        """A block that is named and not there is a memory that is missing."""
        for number, name in enumerate(named if isinstance(named, list) else [], start=1):
            if name not in there:
                with self.checking.of("block_ids item", number):
                    raise Invalid("The file holds no block of this id.")

    def _all_passages(self) -> Iterator[Item]:
        for holder in [self.file] if self.file is self.agent else [self.file, self.agent]:
            for key in PASSAGES:
                yield from _numbered_items(holder, key)

    def _take_item(self, noun: str, number: int, item: Found, text: object, words: object) -> None:
        if self.checking.is_over:
            return
        if item.get("is_deleted") is True:
            self._leave_out(deleted=1)
        elif text is None or (isinstance(text, str) and is_blank(text)):
            self._leave_out(empty=1)
        else:
            with self.checking.of(noun, number) as drafts:
                drafts += self._make_drafts(item, text, words)

    def _make_drafts(self, item: Found, text: object, words: object) -> list[Draft]:
        pieces = divide_text(clean_text(text, what="content"))
        tags, refused = usable_tags(words if isinstance(words, list) else [])
        at = parse_moment(item.get("created_at") or self.file.get("created_at"))
        self.divided += len(pieces) > 1
        self._leave_out(tags=refused)
        return [Draft(clean_content(piece), origin_at=at, tags=tuple(tags)) for piece in pieces]

    def _count_the_rest(self) -> None:
        messages = read_objects(self.agent.get("messages"), "messages")
        prompts = [each for each in messages if each.get("role") == "system"]
        self._leave_out(
            messages=len(messages) - len(prompts),
            system_prompts=int(bool(self.agent.get("system") or prompts)),
            tools=max(count_items(self.file.get("tools")), count_items(self.agent.get("tools"))),
            files=count_items(self.file.get("files")),
        )

    def _leave_out(self, **counts: int) -> None:
        self.left_out = add_counts(self.left_out, counts)
