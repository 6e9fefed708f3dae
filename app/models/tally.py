"""Tally: what one refinement counted and weighed, in figures and in the machine's own words.

Pages, the command line, programs and the agent's journal say it from here, so that all of them say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from decimal import ROUND_DOWN, Decimal
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from app.models.base import ExactRatio
from app.values.kept_specifics import kept_specifics
from app.values.mass_story import NOUNS, MassStory, as_nouns
from app.values.refinement_states import Mode, Status

MAX_PROTECTIONS = 10
"""A refinement. The tables hold it too."""

FEWEST_CALLS = 5
"""Of fewer calls nothing is said about the model."""


class Tally:
    """Masses and kept mass in tokens. `mutations` counts successful consolidations, updates and deletions.

    `memories_merged` counts the memories that went into consolidations, `memories_before` the core memories before
    anything was done, exact duplicates included, `memories_after` those at the end. `calls` counts the calls that the
    Knife answered while the refinement was running, `refused` those of them that it refused, by the refusal's `code`.
    `specifics_checked` counts the specifics that the texts of its changes said before; `specifics_missing` those that
    questions named, of which `specifics_restored` were put back and `specifics_confirmed` given up, by so many
    `confirmed_losses` (calls) of at most `max_confirmed_losses`.
    `undone_by` is the rollback that took this refinement's work back, while it is so.
    """

    mode: Mapped[Mode] = mapped_column(String(16))
    status: Mapped[Status] = mapped_column(String(16))
    threshold: Mapped[Decimal] = mapped_column(ExactRatio)
    mass_before: Mapped[int | None]
    kept_mass: Mapped[int | None]
    mass_after: Mapped[int | None]
    mutations: Mapped[int] = mapped_column(default=0)
    consolidated: Mapped[int] = mapped_column(default=0)
    updated: Mapped[int] = mapped_column(default=0)
    deleted: Mapped[int] = mapped_column(default=0)
    protected: Mapped[int] = mapped_column(default=0)
    deduplicated: Mapped[int] = mapped_column(default=0)
    deduplicated_tokens: Mapped[int] = mapped_column(default=0)
    memories_merged: Mapped[int] = mapped_column(default=0)
    memories_before: Mapped[int | None]
    memories_after: Mapped[int | None]
    calls: Mapped[int] = mapped_column(default=0)
    refused: Mapped[dict[str, int]] = mapped_column(default=dict)
    specifics_checked: Mapped[int] = mapped_column(default=0)
    specifics_missing: Mapped[int] = mapped_column(default=0)
    specifics_restored: Mapped[int] = mapped_column(default=0)
    specifics_confirmed: Mapped[int] = mapped_column(default=0)
    confirmed_losses: Mapped[int] = mapped_column(default=0)
    max_confirmed_losses: Mapped[int] = mapped_column(default=0)
    undone_by: Mapped[str | None] = mapped_column(String(36))

    @property
    def retention(self) -> Decimal | None:
        """Kept mass ÷ mass at the start, four digits, rounded down so that just under never shows as the threshold."""
        if self.mass_before is None or self.kept_mass is None:
            return None
        if self.mass_before == 0:
            return Decimal("1.0000")
        return (Decimal(self.kept_mass) / self.mass_before).quantize(Decimal("0.0001"), ROUND_DOWN)

    @property
    def has_tripped(self) -> bool:
        """Whether less is kept than the threshold allows. Whole numbers only; mass 0 never trips."""
        if not self.mass_before or self.kept_mass is None:
            return False
        return self.kept_mass * 10_000 < int(self.threshold * 10_000) * self.mass_before

    @property
    def mass_at_start(self) -> int | None:
        """Mass before anything was done: exact duplicates go before the snapshot, but for a run that does only that."""
        if self.mass_before is None:
            return None
        return self.mass_before + (self.deduplicated_tokens if self.mode == Mode.FULL else 0)

    def mass_story(self, now: int | None = None) -> MassStory | None:
        """What became of the mass; None until there is anything to tell. `now`: the agent's, while this is open."""
        after = now if self.mass_after is None else self.mass_after
        start = self.mass_at_start
        if start is None and after is not None and self.deduplicated:
            start = after + self.deduplicated_tokens  # it ended before its snapshot, or waits for consent
        if start is None:
            return None
        is_measured = self.mode == Mode.FULL
        return MassStory(
            start,
            self.deduplicated,
            start - self.deduplicated_tokens,
            after,
            self.retention if is_measured else None,
            self.threshold if is_measured else None,
            as_nouns(self.reversed_counts),
            by_guard=self.status == Status.ROLLED_BACK,
        )

    @property
    def reversed_counts(self) -> dict[str, int]:
        """What was done and taken back: by a rollback since everything, by a guard all but the exact duplicates."""
        if self.undone_by is not None:
            return self.counts
        return self._operations if self.status == Status.ROLLED_BACK else {}

    @property
    def _operations(self) -> dict[str, int]:
        return self.counts | {"deduplicated": 0}

    @property
    def counts(self) -> dict[str, int]:
        """What was done, per operation."""
        return {name: getattr(self, name) for name in NOUNS}

    @property
    def stats(self) -> dict[str, Any]:
        """The same, how many memories that were, and what was refused, by kind."""
        memories = {name: getattr(self, name) for name in ("memories_merged", "memories_before", "memories_after")}
        return self.counts | memories | {"refused": dict(self.refused), "specifics": self.specifics}

    @property
    def confirmations_left(self) -> int:
        """Calls that may still confirm a loss."""
        return self.max_confirmed_losses - self.confirmed_losses

    def count_specifics(self, checked: int, missing: int, restored: int, confirmed: int) -> None:
        """Book those of one change; `missing` were booked when they were asked about."""
        self.specifics_checked += checked
        self.specifics_restored += restored
        self.specifics_confirmed += confirmed
        self.confirmed_losses += bool(confirmed)

    @property
    def specifics(self) -> dict[str, int]:
        """Specifics that changes were held to, and what became of those that would have been lost."""
        return {name: getattr(self, f"specifics_{name}") for name in ("checked", "missing", "restored", "confirmed")}

    @property
    def specifics_line(self) -> str:
        """How many specifics its changes kept, in words; empty where none was looked for."""
        return kept_specifics(self.specifics_checked, self.specifics_confirmed)

    @property
    def has_done_something(self) -> bool:
        return any(self.counts.values())

    @property
    def refused_calls(self) -> int:
        return sum(self.refused.values())

    @property
    def model_seems_unable(self) -> bool:
        """Whether most of at least five calls were refused and none changed a memory."""
        return seems_unable(self.calls, self.refused_calls, self.mutations)

    @property
    def refusal_line(self) -> str:
        """How many calls were refused, in words; empty when none was."""
        if not self.refused_calls:
            return ""
        said = f"{self.refused_calls:,} of {self.calls:,} calls were refused"
        return f"{said}: this model may not be able to refine" if self.model_seems_unable else said

    @property
    def refusal_kinds(self) -> str:
        """What was refused, by kind, the most frequent first; empty when nothing was."""
        kinds = sorted(self.refused.items(), key=lambda kind: (-kind[1], kind[0]))
        return ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in kinds)

    def count_calls(self, calls: int, refused: Mapping[str, int]) -> None:
        """Book calls that were answered, and how many of them were refused, by kind."""
        self.calls += calls
        if refused:
            self.refused = dict(Counter(self.refused) + Counter(refused))

    @property
    def machine_line(self) -> str:
        """What happened in the machine's own words: counts and tokens, never content."""
        by_guard = self.status == Status.ROLLED_BACK
        stands = {"deduplicated": self.deduplicated} if by_guard else self.counts
        done = [self._describe_count(name, count) for name, count in stands.items() if count]
        done += [f"{as_nouns(self._operations)} reversed"] if by_guard else []
        line = ", ".join(done) or "no change"
        if None not in (self.memories_before, self.memories_after) and self.memories_before != self.memories_after:
            line += f", {self.memories_before:,} → {self.memories_after:,} memories"
        has_masses = self.mass_before is not None and self.mass_after is not None
        if has_masses and not (by_guard and self.mass_at_start == self.mass_after):
            line += f", {self.mass_at_start:,} → {self.mass_after:,} tokens"
        return line

    def _describe_count(self, name: str, count: int) -> str:
        if name == "consolidated" and self.memories_merged:
            return f"{count} consolidated ({self.memories_merged:,} memories merged into {count})"
        return f"{count} {name}"


def seems_unable(calls: int, refused: int, mutations: int) -> bool:
    """Whether most of at least five calls were refused and none changed a memory: the model may not be able to."""
    return calls >= FEWEST_CALLS and refused * 2 > calls and mutations == 0
