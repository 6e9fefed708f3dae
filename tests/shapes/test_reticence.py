"""What a shape holds of a memory's text stands in no printed form of it, and in no complaint about it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from app.api.context import Context
from app.api.memories import Found, NewMemory, SavedMemory, Search
from app.shapes.memory import OneMemory

CANARY = "the canary sang at dawn"
AT = "2026-11-16T04:00:00Z"
GIVEN = {
    **{"id": 1, "type": "core", "tokens": 6, "constitutional": False, "tags": [], "origin_at": AT, "other_dates": []},
    **{"merged_sources": 0, "merges": 0, "source": "agent", "created_at": AT, "updated_at": AT, "version": 1},
}


def test_a_memory_is_printed_without_its_text() -> None:
    memory, saved = OneMemory(**GIVEN, content=CANARY), SavedMemory(**GIVEN, content=CANARY, created=True)
    assert memory.content == saved.as_json()["content"] == CANARY
    assert CANARY not in repr(memory) + str(memory) + repr(saved) + str(saved)


def test_a_context_and_what_a_search_found_are_printed_without_their_texts() -> None:
    memory, numbers = OneMemory(**GIVEN, content=CANARY), {"core_token_usage": 6, "core_token_budget": 900}
    context = Context(text=CANARY, core=[memory], journal=[], tokens=9, **numbers)
    found = Found(query=CANARY, count=1, memories=[memory])
    assert CANARY not in repr(context) + str(context) + repr(found) + str(found)


def test_what_does_not_fit_a_shape_is_not_quoted() -> None:
    with pytest.raises(ValidationError) as caught:
        OneMemory.model_validate({**GIVEN, "content": [CANARY]})
    assert CANARY not in str(caught.value) + repr(caught.value)


def test_what_a_caller_sends_is_not_printed() -> None:
    said = [NewMemory(content=CANARY), Search(query=CANARY)]
    assert CANARY not in repr(said) + str(said[0]) + str(said[1])
    with pytest.raises(ValidationError) as caught:
        NewMemory.model_validate({"content": [CANARY]})
    assert CANARY not in str(caught.value)
