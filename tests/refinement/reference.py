"""The Knife once more in plain Python: ledger, kept mass, cap and latch as the contract words them, no database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

IMMUTABLE = {"audio", "somatic", "voice"}
CAP = 10
PROTECTIONS = 10


def weigh(text: str) -> int:
    return (len(text) + 3) // 4


@dataclass(frozen=True)
class Kept:
    """A memory as the reference sees it."""

    content: str
    tags: frozenset[str] = frozenset()
    constitutional: bool = False
    active: bool = True

    @property
    def touchable(self) -> bool:
        return self.active and not self.constitutional and not self.tags & IMMUTABLE


@dataclass
class Guarded:
    """One refinement: what each memory of its start still keeps, and how each was before it was first touched."""

    threshold: Fraction
    kept: dict[int, int]
    mass: int
    before: dict[int, Kept | None] = field(default_factory=dict)
    flagged_by_admin: set[int] = field(default_factory=set)
    mutations: int = 0
    protections: int = 0
    running: bool = True

    @property
    def retention(self) -> Fraction:
        return Fraction(sum(self.kept.values()), self.mass) if self.mass else Fraction(1)


class Reference:
    """Each method answers with the type of the result that the Knife must give, or a word that its error must hold."""

    def __init__(self) -> None:
        self.memories: dict[int, Kept] = {}
        self.run: Guarded | None = None

    @property
    def ledger(self) -> dict[int, Kept]:
        return {number: memory for number, memory in self.memories.items() if memory.active}

    def begin(self, threshold: Fraction) -> None:
        kept = {number: weigh(memory.content) for number, memory in self.ledger.items()}
        self.run = Guarded(threshold, kept, sum(kept.values()))

    def protect_as_admin(self, number: int) -> None:
        if not self.memories[number].constitutional:
            self.memories[number] = replace(self.memories[number], constitutional=True)
            if self.run is not None:
                self.run.flagged_by_admin.add(number)

    def search(self, query: str) -> str | list[int]:
        if self._over():
            return "terminated"
        if not query.strip():
            return "query"
        wanted = query.strip().casefold()
        return [number for number, memory in self.ledger.items() if wanted in memory.content.casefold()]

    def update(self, number: int, content: str) -> str:
        content = content.strip()
        refusal = self._refusal([number], content)
        if refusal:
            return refusal
        if self.memories[number].content == content:
            return "identical"
        kept = min(self._kept(number), weigh(content))
        self._write(number, replace(self.memories[number], content=content), kept)
        return self._counted("updated")

    def delete(self, number: int, carrier: int) -> str:
        if number == carrier and not self._over():
            return "can't carry itself"
        refusal = self._refusal([number], others=[carrier])
        if refusal:
            return refusal
        other = self.memories[carrier]
        self._write(carrier, replace(other, tags=other.tags | self.memories[number].tags), self._kept(carrier))
        self._write(number, replace(self.memories[number], active=False), 0)
        return self._counted("deleted")

    def consolidate(self, numbers: Iterable[int], content: str, new: int) -> str:
        numbers, content = list(dict.fromkeys(numbers)), content.strip()
        refusal = self._refusal(numbers, content) if len(numbers) > 1 or self._over() else "two different ids"
        if refusal:
            return refusal
        sources = [self.memories[number] for number in numbers]
        if len(content) > sum(len(source.content) for source in sources):
            return "longer than its sources"
        kept = min(sum(map(self._kept, numbers)), weigh(content))
        for number, source in zip(numbers, sources, strict=True):
            self._write(number, replace(source, active=False), 0)
        self._write(new, Kept(content, frozenset().union(*(source.tags for source in sources))), kept)
        return self._counted("consolidated")

    def protect(self, number: int) -> str:
        if self._over():
            return "terminated"
        assert self.run is not None
        if self.run.protections >= PROTECTIONS:
            return "All 10 protections"
        memory = self.memories.get(number)
        if memory is None or not memory.active:
            return "No active core memory"
        if memory.constitutional:
            return "constitutional already"
        self.run.protections += 1
        self._write(number, replace(memory, constitutional=True), self._kept(number))
        return "protected"

    def complete(self) -> str:
        if self._over():
            return "terminated"
        self.end()
        return "refinement_complete"

    def end(self) -> None:
        if self.run is not None:
            self.run.running = False

    @property
    def changes_left(self) -> int:
        return CAP - self.run.mutations if self.run is not None and self.run.running else 0

    def _over(self) -> bool:
        return self.run is None or not self.run.running

    def _refusal(self, numbers: list[int], content: str | None = None, others: Iterable[int] = ()) -> str:
        if self._over():
            return "terminated"
        if content == "":
            return "blank"
        if self.run is not None and self.run.mutations >= CAP:
            return "Hard cap reached"
        if any(number not in self.ledger for number in (*numbers, *others)):
            return "No active core memory"
        return "" if all(self.memories[number].touchable for number in numbers) else "never touched"

    def _kept(self, number: int) -> int:
        assert self.run is not None
        return self.run.kept.get(number, 0)

    def _write(self, number: int, memory: Kept, kept: int) -> None:
        assert self.run is not None
        self.run.before.setdefault(number, self.memories.get(number))
        self.run.kept[number] = kept
        self.memories[number] = memory

    def _counted(self, done: str) -> str:
        assert self.run is not None
        self.run.mutations += 1
        if self.run.retention >= self.run.threshold:
            return done
        for number, before in self.run.before.items():
            if before is None:
                self.memories[number] = replace(self.memories[number], active=False)
            else:
                flag = before.constitutional or number in self.run.flagged_by_admin
                self.memories[number] = replace(before, constitutional=flag)
        self.end()
        return "refinement_rolled_back"
