"""What happened to one agent's memories, in plain Python: who wrote which state, as the contract words each change.

No database, no sealed bytes, none of the product's code. Memories, writings, entries and refinements are numbered from
0 in the order of their making; a writing is one sealing of one text, so that two memories never share one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum, auto

CORE, JOURNAL = "core", "journal"


class Kind(StrEnum):
    """What an entry is, as far as the Time Machine cares."""

    START = auto()
    CREATE = auto()
    IMPORT = auto()
    TOGGLE = auto()
    PROMOTE = auto()
    DEDUP = auto()
    OPERATION = auto()
    NOTE = auto()
    TOLD = auto()
    LATCH = auto()
    ROLLBACK = auto()


@dataclass(frozen=True)
class State:
    """A memory at one moment: all that exact restoration needs."""

    type: str
    writing: int
    constitutional: bool
    tags: tuple[str, ...]
    origin_at: datetime
    created_at: datetime
    updated_at: datetime
    discarded_at: datetime | None = None
    version: int = 1
    source: str = "agent"
    other_dates: tuple[datetime, ...] = ()
    merged_sources: int = 0
    merges: int = 0

    @property
    def dates(self) -> set[datetime]:
        return {self.origin_at, *self.other_dates}

    @property
    def is_active(self) -> bool:
        return self.discarded_at is None

    def discarded(self, at: datetime) -> State:
        return replace(self, discarded_at=at, updated_at=at, version=self.version + 1, constitutional=False)


@dataclass(frozen=True)
class Draft:
    """A memory to be, as it is saved or imported."""

    text: str
    origin_at: datetime
    type: str = CORE
    constitutional: bool = False
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """What one audit entry wrote. A rollback says which entries it undid, or before which one it went back.

    `copies` tells, for each memory that got an earlier state back, which entry had written that.
    """

    kind: Kind
    wrote: dict[int, State] = field(default_factory=dict)
    refinement: int | None = None
    copies: dict[int, int] = field(default_factory=dict)
    undid: tuple[int, ...] = ()
    rewound_to: int | None = None


class Past:
    """One agent and everything that was done to it, except going back."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.entries: list[Entry] = []
        self.past: list[list[int]] = []
        """For each memory: the entries that wrote it."""
        self.starts: list[int] = []
        """For each refinement: its first entry."""
        self.open: int | None = None

    def now(self, memory: int) -> State:
        return self.entries[self.past[memory][-1]].wrote[memory]

    def memories(self, type_: str, *, constitutional: bool | None = None) -> list[int]:
        """The active ones."""
        return [
            memory
            for memory in range(len(self.past))
            if self.now(memory).is_active
            and self.now(memory).type == type_
            and constitutional in (None, self.now(memory).constitutional)
        ]

    def text(self, memory: int) -> str:
        return self.texts[self.now(memory).writing]

    def mass(self, instead: dict[int, State] | None = None) -> int:
        """In tokens; `instead` are states that some memories would have."""
        states = {memory: self.now(memory) for memory in range(len(self.past))} | (instead or {})
        core = [state for state in states.values() if state.is_active and state.type == CORE]
        return sum(-(-len(self.texts[state.writing]) // 4) for state in core)

    def totals(self) -> tuple[int, int, int]:
        """Mass, and how many core and journal memories are active."""
        return self.mass(), len(self.memories(CORE)), len(self.memories(JOURNAL))

    def written_by(self, refinement: int) -> list[int]:
        """Every entry of this refinement that wrote a memory."""
        return [n for n, entry in enumerate(self.entries) if entry.refinement == refinement and entry.wrote]

    def memories_of(self, entries: Iterable[int]) -> list[int]:
        return sorted({memory for n in entries for memory in self.entries[n].wrote})

    def save(self, drafts: Sequence[Draft], at: datetime, kind: Kind = Kind.CREATE) -> None:
        first = len(self.past)
        source = "import:jsonl" if kind is Kind.IMPORT else "agent"
        self.append(Entry(kind, {first + n: self._new(draft, at, source) for n, draft in enumerate(drafts)}))

    def toggle(self, memory: int, at: datetime) -> None:
        was = self.now(memory)
        turned = replace(was, constitutional=not was.constitutional, updated_at=at, version=was.version + 1)
        self.append(Entry(Kind.TOGGLE, {memory: turned}))

    def promote(self, memory: int, at: datetime) -> None:
        was = self.now(memory)
        now = replace(was, type=CORE, source="promotion", updated_at=at, version=was.version + 1)
        self.append(Entry(Kind.PROMOTE, {memory: now}))

    def start(self) -> None:
        self.open = len(self.starts)
        self.starts.append(len(self.entries))
        self.append(Entry(Kind.START, refinement=self.open))

    def end(self) -> None:
        self.open = None

    def deduplicate(self, at: datetime) -> None:
        """One entry a group: the constitutional copy stays, else the earliest, with dates and tags of what goes."""
        groups: dict[str, list[int]] = {}
        for memory in self.memories(CORE):
            alike = unicodedata.normalize("NFC", self.text(memory)).strip().replace("\r\n", "\n")
            groups.setdefault(alike, []).append(memory)
        for group in groups.values():
            keeper = min(group, key=lambda m: (not self.now(m).constitutional, self.now(m).origin_at, m))
            extra = [memory for memory in group if memory != keeper and not self.now(memory).constitutional]
            if extra:
                self._keep_one(keeper, extra, at)

    def update(self, memory: int, text: str, at: datetime) -> None:
        was = self.now(memory)
        self._operate({memory: replace(was, writing=self._write(text), updated_at=at, version=was.version + 1)})

    def delete(self, memory: int, carrier: int, at: datetime) -> None:
        """Its dates and tags go on in the carrier, which is no deeper merge for that."""
        was, goes = self.now(carrier), self.now(memory)
        tags = tuple(sorted({*was.tags, *goes.tags}))
        dates = tuple(sorted((was.dates | goes.dates) - {was.origin_at}))
        wrote = {memory: goes.discarded(at)}
        if (tags, dates) != (was.tags, was.other_dates):
            wrote[carrier] = replace(was, tags=tags, other_dates=dates, version=was.version + 1)
        self._operate(wrote)

    def consolidate(self, sources: Sequence[int], text: str, at: datetime) -> None:
        states = [self.now(memory) for memory in sources]
        tags = tuple(sorted({tag for state in states for tag in state.tags}))
        dates = {date for state in states for date in state.dates}
        draft = Draft(text, min(dates), tags=tags)
        merged = replace(
            self._new(draft, at, "refinement"),
            other_dates=tuple(sorted(dates - {min(dates)})),
            merged_sources=sum(state.merged_sources or 1 for state in states),
            merges=1 + sum(state.merges for state in states),
        )
        gone = {memory: state.discarded(at) for memory, state in zip(sources, states, strict=True)}
        self._operate(gone | {len(self.past): merged})

    def protect(self, memory: int) -> None:
        was = self.now(memory)
        self._operate({memory: replace(was, constitutional=True, version=was.version + 1)})

    def complete(self, note: str, at: datetime) -> None:
        """The refinement ends with a journal memory of it."""
        self.append(Entry(Kind.NOTE, self.told(note, at), self.open))
        self.end()

    def tell(self, note: str, at: datetime) -> None:
        """A journal memory about what a human did, that is never undone."""
        self.append(Entry(Kind.TOLD, {len(self.past): self._new(Draft(note, at, JOURNAL), at, "system")}))

    def told(self, note: str, at: datetime) -> dict[int, State]:
        """A new journal memory in the machine's words."""
        return {len(self.past): self._new(Draft(note, at, JOURNAL), at, "refinement")}

    def append(self, entry: Entry) -> None:
        number = len(self.entries)
        self.entries.append(entry)
        for memory in sorted(entry.wrote):
            if memory == len(self.past):
                self.past.append([])
            self.past[memory].append(number)

    def _keep_one(self, keeper: int, extra: list[int], at: datetime) -> None:
        wrote = {memory: self.now(memory).discarded(at) for memory in extra}
        was, states = self.now(keeper), [self.now(memory) for memory in (keeper, *extra)]
        tags = tuple(sorted({tag for state in states for tag in state.tags}))
        dates = tuple(sorted({date for state in states for date in state.dates} - {was.origin_at}))
        sources, merges = max((state.merged_sources, state.merges) for state in states)
        if (tags, dates, sources, merges) != (was.tags, was.other_dates, was.merged_sources, was.merges):
            now = replace(was, tags=tags, other_dates=dates, merged_sources=sources, merges=merges)
            wrote[keeper] = replace(now, version=was.version + 1)
        self.append(Entry(Kind.DEDUP, wrote, self.open))

    def _operate(self, wrote: dict[int, State]) -> None:
        self.append(Entry(Kind.OPERATION, wrote, self.open))

    def _new(self, draft: Draft, at: datetime, source: str) -> State:
        writing = self._write(draft.text)
        return State(draft.type, writing, draft.constitutional, draft.tags, draft.origin_at, at, at, source=source)

    def _write(self, text: str) -> int:
        self.texts.append(text)
        return len(self.texts) - 1
