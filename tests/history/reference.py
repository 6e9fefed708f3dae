"""The Time Machine once more in plain Python: what undo and rewind make of a past, written apart from the product."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tests.history.past import Entry, Kind, Past, State

NOTHING = -1
"""No entry."""


@dataclass(frozen=True)
class Written:
    """A state, and the entry that wrote it; `flagged` is an admin's toggle since, whose flag it has."""

    state: State
    entry: int
    flagged: int = NOTHING

    def with_flag_of(self, other: Written) -> Written:
        state = replace(self.state, constitutional=other.state.constitutional)
        return replace(self, state=state, flagged=other.flagged)


@dataclass(frozen=True)
class Noun:
    """What is undone as a whole, and then is undone: a refinement by its number, a rollback by its entry's."""

    name: str
    number: int


@dataclass
class Plan:
    """What a rollback would do: the states that it gives, and why it does not give others.

    `final`: nothing at all, because it would bring back what a guard reversed.
    """

    goals: dict[int, State] = field(default_factory=dict)
    copies: dict[int, int] = field(default_factory=dict)
    conflicts: list[int] = field(default_factory=list)
    stays: list[int] = field(default_factory=list)
    later: set[int] = field(default_factory=set)
    stops: bool = False
    final: bool = False
    undone_by: int | None = None
    mass_before: int = 0
    mass_after: int = 0

    @property
    def restored(self) -> int:
        return len(self.copies)

    @property
    def removed(self) -> int:
        return len(self.goals) - len(self.copies)

    def give_back(self, memory: int, written: Written, state: State) -> None:
        self.goals[memory], self.copies[memory] = state, written.entry

    def take_away(self, memory: int, state: State) -> None:
        self.goals[memory] = state


class Reference(Past):
    """One agent that can go back. `undone_by` says which rollback undid a noun, as long as that one stands."""

    def __init__(self) -> None:
        super().__init__()
        self.undone_by: dict[Noun, int] = {}
        self._undid: dict[int, tuple[list[Noun], list[Noun]]] = {}

    def trip(self, note: str, at: datetime) -> None:
        """The latch: what the Knife did is undone, what dedup did stays, and a journal memory tells of it."""
        assert self.open is not None
        plan = Plan()
        self._undo(plan, [n for n in self.written_by(self.open) if self.entries[n].kind is Kind.OPERATION], at)
        assert not plan.conflicts
        self.append(Entry(Kind.LATCH, plan.goals | self.told(note, at), self.open, plan.copies))
        self.end()

    def plan_undo(self, target: Noun, at: datetime) -> Plan:
        """Take back a refinement, a rollback, or an entry. What is undone as a whole is not undone once more."""
        plan = Plan(mass_before=self.mass(), undone_by=self.undone_by.get(target))
        if plan.undone_by is None:
            self._undo(plan, self._entries_of(target), at)
            plan.stops = not plan.conflicts and (bool(plan.goals) or self._is_open(target))
            plan.final = self._is_part_of_a_reversal(target)
        plan.mass_after = self.mass(plan.goals)
        return self._unless_final(plan)

    def plan_rewind(self, refinement: int, at: datetime) -> Plan:
        """As if neither this refinement nor any that came later, nor a promotion since, had run."""
        since = self.starts[refinement]
        plan = Plan(mass_before=self.mass())
        for memory in range(len(self.past)):
            now, goal = self.now(memory), self._without_refinements(memory, since)
            if goal is not None and _differs(goal.state, now):
                plan.give_back(memory, goal, goal.state)
            elif goal is None and now.is_active and now.constitutional and self._toggled_since(memory, since):
                plan.stays.append(memory)
            elif goal is None and now.is_active:
                plan.take_away(memory, now.discarded(at))
        plan.later = self._standing_since(since)
        plan.stops = bool(plan.goals) or self._is_open(Noun("refinement", refinement))
        plan.mass_after = self.mass(plan.goals)
        return self._unless_final(plan)

    def shows_what_a_guard_reversed(self) -> list[int]:
        """Memories that show such work now: none, ever."""
        reversed_ = self._reversed_work()
        shows = [memory for memory in range(len(self.past)) if self._work(memory) in reversed_]
        return [memory for memory in shows if not self._came_and_went_by(reversed_, memory)]

    def apply(self, plan: Plan, target: Noun, *, rewinds: bool = False) -> None:
        """A plan with conflicts leaves no trace, and one with nothing to do ends at most the refinement it names."""
        if plan.stops:
            self.end()
        if not plan.goals or plan.conflicts:
            return
        number, start = len(self.entries), self.starts[target.number] if rewinds else None
        undid = () if rewinds else tuple(self._entries_of(target))
        self._mark(number, target, plan.later if rewinds else None)
        self.append(Entry(Kind.ROLLBACK, plan.goals, copies=plan.copies, undid=undid, rewound_to=start))

    def _undo(self, plan: Plan, entries: Sequence[int], at: datetime) -> None:
        for memory in self.memories_of(entries):
            mine = [n for n in entries if memory in self.entries[n].wrote]
            before = self._before(memory, mine[0])
            if before is None:
                self._take_away(plan, memory, mine, at)
            elif self._shows_only_flag(memory, mine, before):
                self._give_flag_back(plan, memory, mine, before)
            else:
                self._give_back(plan, memory, mine, before)

    def _take_away(self, plan: Plan, memory: int, mine: list[int], at: datetime) -> None:
        now, is_mine = self.now(memory), self._shows(memory, mine)
        if now.is_active and not is_mine:
            self._conflict(plan, memory, mine)
        elif now.is_active and now.constitutional and self._toggled_since(memory, mine[0]):
            plan.stays.append(memory)
        elif now.is_active:
            plan.take_away(memory, now.discarded(at))
        elif not is_mine and self._work(memory) != NOTHING:
            self._conflict(plan, memory, mine)

    def _give_flag_back(self, plan: Plan, memory: int, mine: list[int], before: Written) -> None:
        """A toggle, or the undo of one, is undone unless an admin toggled again."""
        if self._toggled_since(memory, mine[0]) or before.state.constitutional == self.now(memory).constitutional:
            return
        if self._shows(memory, mine):
            plan.give_back(memory, before, before.state)
        else:
            self._conflict(plan, memory, mine)

    def _give_back(self, plan: Plan, memory: int, mine: list[int], before: Written) -> None:
        holder = self.now(memory) if self._toggled_since(memory, mine[0]) else before.state
        if self._work(memory) == self._origin(memory, before.entry):
            return
        if self._shows(memory, mine):
            plan.give_back(memory, before, replace(before.state, constitutional=holder.constitutional))
        else:
            self._conflict(plan, memory, mine)

    def _conflict(self, plan: Plan, memory: int, mine: list[int]) -> None:
        since = [self.entries[n].refinement for n in self.past[memory] if n > mine[-1]]
        reversed_ = self._reversed()
        plan.later |= {
            refinement
            for refinement in since
            if refinement is not None
            and refinement not in reversed_
            and Noun("refinement", refinement) not in self.undone_by
        }
        plan.conflicts.append(memory)

    def _without_refinements(self, memory: int, since: int) -> Written | None:
        """The state that it would have if no refinement and no promotion had run from this entry on."""
        goal = self._before(memory, since)
        found: dict[int, Written | None] = {}
        """For each entry that counts: what it found."""
        for number in self.past[memory]:
            entry = self.entries[number]
            if number < since or entry.refinement is not None or entry.kind is Kind.PROMOTE:
                continue
            counts, after = True, goal
            if entry.kind is Kind.ROLLBACK:
                counts, after = self._redo(number, memory, since, found, goal)
            elif entry.kind is Kind.TOGGLE and goal is not None:
                after = goal.with_flag_of(Written(entry.wrote[memory], number, number))
            elif entry.kind is not Kind.TOGGLE:
                after = Written(entry.wrote[memory], number)
            if counts:
                found[number], goal = goal, after
        return goal

    def _redo(
        self, number: int, memory: int, since: int, found: dict[int, Written | None], goal: Written | None
    ) -> tuple[bool, Written | None]:
        """Whether a rollback still counts when nothing was refined, and to what it leads then.

        What an admin toggled after what it undoes stays.
        """
        entry = self.entries[number]
        real = Written(entry.wrote[memory], number)
        if entry.rewound_to is not None:
            return entry.rewound_to < since, real
        undone = [n for n in entry.undid if memory in self.entries[n].wrote]
        if any(n < since for n in undone):
            return True, real
        counting = [n for n in undone if n in found]
        if not counting:
            return False, None
        earlier = found[counting[0]]
        if earlier is not None and goal is not None and goal.flagged > counting[0]:
            earlier = earlier.with_flag_of(goal)
        return True, earlier

    def _mark(self, number: int, target: Noun, rewound: set[int] | None) -> None:
        """A rollback of a rollback also turns round what that had undone and redone. One entry's undo marks nothing."""
        undid, redid = [] if target.name == "entry" else [target], list[Noun]()
        if rewound is not None:
            undid = [Noun("refinement", refinement) for refinement in rewound]
        elif target.name == "rollback":
            was_undone, was_redone = self._undid[target.number]
            undid, redid = [target, *was_redone], was_undone
        self._undid[number] = undid, redid
        for noun in redid:
            self.undone_by.pop(noun, None)
        self.undone_by |= dict.fromkeys(undid, number)

    def _entries_of(self, target: Noun) -> list[int]:
        """What a guard reversed is over: of such a refinement only the removal of exact duplicates is left."""
        if target.name != "refinement":
            return [target.number]
        entries = self.written_by(target.number)
        is_over = target.number in self._reversed()
        return [n for n in entries if self.entries[n].kind is Kind.DEDUP] if is_over else entries

    def _reversed(self) -> set[int | None]:
        """The refinements that a guard reversed."""
        return {entry.refinement for entry in self.entries if entry.kind is Kind.LATCH}

    def _reversed_work(self) -> set[int]:
        reversed_ = self._reversed()
        return {
            n for n, entry in enumerate(self.entries) if entry.kind is Kind.OPERATION and entry.refinement in reversed_
        }

    def _came_and_went_by(self, entries: set[int], memory: int) -> bool:
        """What work made and took away again itself is nowhere to be seen, and there was nothing to give back."""
        return self.past[memory][0] in entries and not self.now(memory).is_active

    def _is_part_of_a_reversal(self, target: Noun) -> bool:
        if target.name == "refinement":
            return target.number in self._reversed() and not self._entries_of(target)
        entry = self.entries[target.number]
        return entry.kind in (Kind.OPERATION, Kind.LATCH) and entry.refinement in self._reversed()

    def _unless_final(self, plan: Plan) -> Plan:
        reversed_ = self._reversed_work()
        shows = any(self._origin(memory, source) in reversed_ for memory, source in plan.copies.items())
        if not plan.final and not shows:
            return plan
        return Plan(final=True, mass_before=plan.mass_before, mass_after=plan.mass_before)

    def _is_open(self, target: Noun) -> bool:
        return target.name == "refinement" and target.number == self.open

    def _standing_since(self, since: int) -> set[int]:
        """The refinements from this entry on that changed memories and are not undone."""
        wrote = {entry.refinement for entry in self.entries[since:] if entry.wrote and entry.refinement is not None}
        return {refinement for refinement in wrote if Noun("refinement", refinement) not in self.undone_by}

    def _before(self, memory: int, entry: int) -> Written | None:
        """Its state just before this entry; None where there was no such memory yet."""
        earlier = [n for n in self.past[memory] if n < entry]
        return Written(self.entries[earlier[-1]].wrote[memory], earlier[-1]) if earlier else None

    def _toggled_since(self, memory: int, entry: int) -> bool:
        return any(n > entry and self.entries[n].kind is Kind.TOGGLE for n in self.past[memory])

    def _shows_only_flag(self, memory: int, mine: list[int], before: Written) -> bool:
        """Whether these entries changed nothing but the flag: a toggle and its undo show the work of neither."""
        return {self._origin(memory, n) for n in mine} == {self._origin(memory, before.entry)}

    def _shows(self, memory: int, entries: Iterable[int]) -> bool:
        """Whether the memory shows the work of one of these entries."""
        return self._work(memory) in {self._origin(memory, n) for n in entries}

    def _work(self, memory: int) -> int:
        """The entry whose work the memory shows."""
        return self._origin(memory, self.past[memory][-1])

    def _origin(self, memory: int, number: int) -> int:
        """A copy shows the work of what it copied, an admin's toggle what was there before it, any other its own.

        What was taken away by going back shows nothing, whoever went back.
        """
        entry, past = self.entries[number], self.past[memory]
        if memory in entry.copies:
            return self._origin(memory, entry.copies[memory])
        if entry.kind is Kind.TOGGLE:
            return self._origin(memory, past[past.index(number) - 1])
        goes_back = entry.kind in (Kind.ROLLBACK, Kind.LATCH) and number != past[0]
        return NOTHING if goes_back else number


def _differs(one: State, other: State) -> bool:
    """In more than the version and the date of the last change."""
    return replace(one, version=0, updated_at=one.created_at) != replace(other, version=0, updated_at=other.created_at)
