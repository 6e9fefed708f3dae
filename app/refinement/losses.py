"""What a change would lose, asked of the model before the change is made, and what it may confirm.

`app/meaning` compares the texts. Here is what was asked in one refinement: it lives as long as its Knife, in the
worker's memory, so that no row can say that a question was asked or read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.errors import Refused
from app.meaning import ChangeKind, Specific, compare
from app.values.plural import count_nouns

LONGEST_NAMED = 200
"""Characters of one specific, as it is named."""

MOST_NAMED = 40
"""Specifics that one answer names. What would lose as many can't be confirmed: nobody has read all of it."""


@dataclass(frozen=True)
class Loss:
    """A specific of one memory that the change would lose."""

    memory_id: int
    specific: Specific = field(repr=False)

    def __str__(self) -> str:
        words = " ".join(self.specific.words.split())
        cut = words if len(words) <= LONGEST_NAMED else f"{words[:LONGEST_NAMED]}…"
        return f"{self.specific.kind}: {cut}"


@dataclass(frozen=True)
class Proposal:
    """A change that a call proposes: the texts of the memories that go or change, and the one that stands after it.

    `carrier` is the memory of `new`, where that is no text of the call.
    """

    kind: ChangeKind
    old: Mapping[int, str] = field(repr=False)
    new: str = field(repr=False)
    carrier: int | None = None

    @property
    def key(self) -> tuple[ChangeKind, frozenset[int]]:
        """The function and its ids: what a question is about."""
        return self.kind, frozenset(self.old if self.carrier is None else {*self.old, self.carrier})


@dataclass(frozen=True)
class SpecificsCount:
    """Of one change. `missing` were named in questions before it: those restored, and those confirmed."""

    checked: int
    missing: int = 0
    restored: int = 0
    confirmed: int = 0

    def as_json(self) -> dict[str, int]:
        return dict(vars(self))


@dataclass(frozen=True)
class Allowed:
    """On a change that may be made: what to book, and by question and memory how many of the named ones were restored
    and confirmed."""

    count: SpecificsCount
    settled: tuple[tuple[int, int, int, int], ...]


class WouldLose(Exception):
    """The change is not made: its call is answered with what would be lost."""

    def __init__(self, proposal: Proposal, losses: tuple[Loss, ...]) -> None:
        super().__init__(f"{len(losses)} losses")
        self.proposal, self.losses = proposal, losses


class AskedBefore(Refused):
    """The same call was asked about before, and would still lose the same."""

    code = "asked_before"


class ConfirmationsUsed(Refused):
    """The refinement has confirmed as many losses as it may."""

    code = "confirmations_used"


class Questions:
    """What was asked in this refinement, by function and ids, and which of it the model has read."""

    def __init__(self) -> None:
        self._asked: dict[object, list[_Asked]] = {}
        self._calls: set[tuple[str, frozenset[Loss]]] = set()
        self._number = 0
        self._compared: tuple[Proposal, int, dict[Loss, None]] | None = None

    def compare_ahead(self, proposal: Proposal) -> None:
        """Compare the texts of many memories before any row is locked; `check` of the same texts need not then."""
        self._compared = (proposal, *_compare_texts(proposal))

    def begin_reply(self) -> None:
        """What was answered until now has been read by the model."""
        for asked in self._asked.values():
            for each in asked:
                each.is_read = True

    def check(self, proposal: Proposal, *, confirm: bool, confirmations_left: int) -> Allowed:
        """What to book for a change that may be made. Raises WouldLose, or ConfirmationsUsed."""
        checked, losses = self._compare(proposal)
        asked = self._asked.get(proposal.key, [])
        if losses:
            read = frozenset[Loss]().union(*(each.losses for each in asked if each.is_read))
            is_read = len(losses) < MOST_NAMED and losses.keys() <= read
            if not (confirm and is_read and proposal.kind is not ChangeKind.DELETE):
                raise WouldLose(proposal, tuple(losses))
            if confirmations_left <= 0:
                raise ConfirmationsUsed(
                    "No further loss can be confirmed in this refinement.",
                    "Nothing was changed; put back what is missing, or leave the memory as it is.",
                )
        named = frozenset[Loss]().union(*(each.losses for each in asked))
        restored = len(named.difference(losses))
        count = SpecificsCount(checked, restored + len(losses), restored, len(losses))
        return Allowed(count, tuple(row for each in asked for row in each.settle(losses)))

    def _compare(self, proposal: Proposal) -> tuple[int, dict[Loss, None]]:
        ahead, self._compared = self._compared, None
        return ahead[1:] if ahead is not None and ahead[0] == proposal else _compare_texts(proposal)

    def note(self, question: WouldLose, call: str) -> tuple[int, int]:
        """Remember that it is asked now: its number in the refinement, and how many were not named before.

        Raises AskedBefore for the same call again.
        """
        losses = frozenset(question.losses)
        if (call, losses) in self._calls:
            raise AskedBefore(
                "This call is the same as before, and would still lose what was named then.",
                "Nothing was changed; change the call, or go on without it.",
            )
        self._calls.add((call, losses))
        asked = self._asked.setdefault(question.proposal.key, [])
        new = len(losses.difference(*(each.losses for each in asked)))
        self._number += 1
        asked.append(_Asked(self._number, losses))
        return self._number, new

    def close(self, proposal: Proposal) -> None:
        """The change was made: what was asked about it is settled."""
        self._asked.pop(proposal.key, None)


@dataclass
class _Asked:
    number: int
    losses: frozenset[Loss]
    is_read: bool = False

    def settle(self, left: Collection[Loss]) -> list[tuple[int, int, int, int]]:
        """As in `Allowed`. `left`: what the change still loses."""
        rows = []
        for memory_id in sorted({loss.memory_id for loss in self.losses}):
            mine = {loss for loss in self.losses if loss.memory_id == memory_id}
            rows.append((self.number, memory_id, len(mine.difference(left)), len(mine.intersection(left))))
        return rows


def canonical_call(action: str, arguments: Mapping[str, Any]) -> str:
    """Equal for the same call, however its JSON was spaced and ordered."""
    return f"{action} {json.dumps(arguments, sort_keys=True, default=str)}"


def describe(question: WouldLose) -> list[str]:
    """What would be lost, as the model reads it; with the memory, where several go."""
    several = len(question.proposal.old) > 1
    return [f"{loss} (memory {loss.memory_id})" if several else str(loss) for loss in question.losses]


def advise(question: WouldLose, confirmations_left: int) -> str:
    """What the model can do about it."""
    proposal, lost = question.proposal, count_nouns(len(question.losses), "specific")
    if proposal.kind is ChangeKind.DELETE:
        return (
            f"Nothing was changed: memory {proposal.carrier} does not say {lost} of what would be deleted. "
            f"Put them into memory {proposal.carrier} first, or keep both. A deletion can't be confirmed."
        )
    put_back = f"Nothing was changed: the new text would lose {lost}. Put them back and send the call again"
    if len(question.losses) >= MOST_NAMED:
        return f"{put_back}, or leave the memory as it is. So much can't be confirmed."
    if confirmations_left <= 0:
        return f"{put_back}, or leave the memory as it is. No further loss can be confirmed in this refinement."
    return f"{put_back}. Only if they are truly not worth keeping, send the same call with confirm_loss: true."


def _compare_texts(proposal: Proposal) -> tuple[int, dict[Loss, None]]:
    checked, losses = 0, dict[Loss, None]()
    for memory_id, text in proposal.old.items():
        count, missing = compare(text, proposal.new, kind=proposal.kind)
        checked += count
        losses |= dict.fromkeys(Loss(memory_id, specific) for specific in missing)
        if len(losses) >= MOST_NAMED:
            break
    return checked, dict.fromkeys(list(losses)[:MOST_NAMED])
