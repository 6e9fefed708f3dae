"""A way back is recorded in the same words as the state that it writes."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest

from app.models import MemoryState, Restoration
from app.models.state import NO_EARLIER_STATE
from app.values.canonical import canonical_json

AT = datetime(2026, 11, 25, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("previous", "restores", "constitutional"), list(product([None, 7], [NO_EARLIER_STATE, 3], [False, True]))
)
def test_it_says_what_its_state_says(previous: int | None, restores: int, constitutional: bool) -> None:
    source = None if restores == NO_EARLIER_STATE else 5
    way = Restoration(9, previous, source, restores, constitutional, AT)
    state = MemoryState(
        memory_id=9,
        entry_id=8,
        previous_entry_id=previous,
        restores_entry_id=restores,
        constitutional=constitutional,
        discarded_at=AT,
    )

    assert way.recorded_json() == canonical_json(way.as_recorded()) == state.recorded_json()
