"""The model that histories are compared with sees it when reversed work shows, and only then."""

from __future__ import annotations

from dataclasses import replace

from tests.history.past import Draft, Entry, Kind
from tests.history.reference import Reference
from tests.support.clock import MONDAY


def with_two_merges() -> Reference:
    """Memories 0 to 2 became memory 4, by way of memory 3, in a refinement that is open."""
    reference = Reference()
    reference.save([Draft(text, MONDAY) for text in ("Tea.", "Rum.", "Ink.")], MONDAY)
    reference.start()
    reference.consolidate([0, 1], "Tea. Rum.", MONDAY)
    reference.consolidate([2, 3], "Tea. Rum. Ink.", MONDAY)
    return reference


def test_a_merge_that_the_next_merge_took_in_shows_nothing_once_both_are_reversed() -> None:
    reference = with_two_merges()
    reference.trip("Rolled back.", MONDAY)

    assert [reference.now(memory).is_active for memory in range(5)] == [True, True, True, False, False]
    assert reference.shows_what_a_guard_reversed() == []


def test_a_memory_that_was_there_before_and_did_not_come_back_shows_it() -> None:
    reference = with_two_merges()
    back = {memory: reference.entries[0].wrote[memory] for memory in (0, 1)}
    gone = {4: reference.now(4).discarded(MONDAY)}
    reference.append(Entry(Kind.LATCH, back | gone, reference.open, dict.fromkeys(back, 0)))

    assert reference.shows_what_a_guard_reversed() == [2]


def test_a_merge_that_came_back_shows_it() -> None:
    reference = with_two_merges()
    reference.trip("Rolled back.", MONDAY)
    reference.append(Entry(Kind.ROLLBACK, {3: replace(reference.now(3), discarded_at=None)}, copies={3: 2}))

    assert reference.shows_what_a_guard_reversed() == [3]
