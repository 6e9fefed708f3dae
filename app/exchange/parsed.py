"""Parsed: what a file was recognised as, what of it becomes memories, and what is left out; counts, never content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from app.errors import Invalid
from app.exchange.draft import Draft
from app.values.actor import Actor, ActorKind
from app.values.plural import count_nouns
from app.values.text import MAX_TAGS, clean_tags


class ImportFormat(StrEnum):
    """The kinds of files that are taken in, by the names that people give them on the command line."""

    JSON_LINES = "jsonl"
    AGENT_FILE = "af"
    MEM0 = "mem0"
    TEXT = "text"
    BUNDLE = "bundle"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    ImportFormat.JSON_LINES: "JSON Lines",
    ImportFormat.AGENT_FILE: "a Letta agent file",
    ImportFormat.MEM0: "a mem0 export",
    ImportFormat.TEXT: "plain text, one memory a line",
    ImportFormat.BUNDLE: "a bundle of a Whetstone agent",
}

_NOUNS: Mapping[str, tuple[str, ...]] = {
    "constitutional_flags": ("constitutional flag",),
    "settings": ("setting",),
    "messages": ("message",),
    "system_prompts": ("system prompt",),
    "tools": ("tool",),
    "files": ("file",),
    "empty": ("empty text",),
    "deleted": ("deleted text",),
    "other_blocks": ("block that the agent does not use", "blocks that the agent does not use"),
    "relations": ("relation",),
    "tags": ("word that can't be a tag", "words that can't be tags"),
}
"""What can be left out, in the order in which it is told."""


@dataclass(frozen=True)
class ParsedFile:
    """A file, checked whole. `settings` are the agent's own of a bundle, None for a default: for who applies them.

    `left_out` counts by the nouns above. `divided` texts were longer than a memory may be, and became several.
    """

    format: ImportFormat
    drafts: Sequence[Draft] = field(repr=False)
    settings: Mapping[str, str | int | None] = field(default_factory=dict, repr=False)
    left_out: Mapping[str, int] = field(default_factory=dict)
    divided: int = 0
    is_partial: bool = False

    def memories_only(self, *, by: Actor) -> ParsedFile:
        """What an import writes: no settings. An agent that brings in its own never makes it constitutional; an admin
        vouches for what the file says.
        """
        left_out = add_counts({"settings": sum(value is not None for value in self.settings.values())}, self.left_out)
        drafts = self.drafts
        if by.kind == ActorKind.AGENT:
            left_out = add_counts({"constitutional_flags": sum(each.constitutional for each in drafts)}, left_out)
            drafts = [replace(each, constitutional=False) for each in drafts]
        return replace(self, drafts=drafts, settings={}, left_out=left_out)

    @property
    def notes(self) -> list[str]:
        """What is to be said of it besides the number of memories, in sentences."""
        said = [f"Left out: {left_out_words(self.left_out)}."] if self.left_out else []
        if self.left_out.get("constitutional_flags"):
            said.append("Only admins and refinements make a memory constitutional.")
        if self.divided:
            text = count_nouns(self.divided, "text")
            said.append(f"{text} longer than a memory may be became several, cut at blank lines or line ends.")
        if self.is_partial:
            said.append("This is one page of an export that has more.")
        return said


def left_out_words(left_out: Mapping[str, int]) -> str:
    """`3 messages, 1 system prompt`."""
    return ", ".join(count_nouns(left_out[key], *noun) for key, noun in _NOUNS.items() if key in left_out)


def add_counts(*counts: Mapping[str, int]) -> dict[str, int]:
    """These counts together, without the zeros."""
    found = Counter[str]()
    for each in counts:
        found.update(each)
    return {name: count for name, count in found.items() if count}


def usable_tags(words: Iterable[object]) -> tuple[list[str], int]:
    """Those of another system's words that can be tags here, and how many can not."""
    tags: set[str] = set()
    refused = 0
    for word in words:
        try:
            tags |= set(clean_tags([word]))
        except Invalid:
            refused += 1
    kept = sorted(tags)[:MAX_TAGS]
    return kept, refused + len(tags) - len(kept)
