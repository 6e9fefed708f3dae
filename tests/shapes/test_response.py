"""What all shapes promise: they are read off a row, print moments alike, refuse unknown keys, and hold no content."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from pydantic import ValidationError

import app.shapes
from app.models import MemoryType
from app.models.memory_rows import SealedRow
from app.shapes.memory import OneMemory
from app.shapes.response import Moment, ResponseModel
from app.silo import SealedMemory

AT = datetime(2026, 11, 2, 6, tzinfo=timezone(timedelta(hours=2)))


@dataclass
class Row:
    name: str = "ezra"
    at: datetime | None = AT
    ratio: Decimal = Decimal("0.75")
    secret: str = "not asked for"


class RowShape(ResponseModel):
    name: str
    at: Moment | None
    ratio: float


def test_a_shape_is_read_off_a_row_and_says_only_what_it_names() -> None:
    assert RowShape.of(Row()).as_json() == {"name": "ezra", "at": "2026-11-02T04:00:00Z", "ratio": 0.75}
    assert RowShape.of(Row(at=None), name="otto").as_json() == {"name": "otto", "at": None, "ratio": 0.75}


def test_a_shape_refuses_a_key_that_it_does_not_know() -> None:
    with pytest.raises(ValidationError):
        RowShape.of(Row(), secret="told all the same")


def test_only_the_agents_own_memories_have_a_text() -> None:
    texts = {"content", "summary", "words", "token", "question"}
    with_text = {shape for shape in shapes() if shape.model_fields.keys() & texts}
    assert with_text == {OneMemory}


def shapes() -> Iterator[type[ResponseModel]]:
    """Those that every door may use, with all that is made from them there."""
    for module in pkgutil.iter_modules(app.shapes.__path__, "app.shapes."):
        for found in vars(importlib.import_module(module.name)).values():
            if isinstance(found, type) and issubclass(found, ResponseModel):
                yield found


def test_a_memory_that_is_not_checked_is_told_like_one_that_is() -> None:
    """`reveal` says again what each field is made of: nothing may be missing there, and nothing told otherwise."""
    later = AT + timedelta(days=1)
    for tags, created_at, other_dates in ((["voice"], later, [later, AT]), ([], AT, [])):
        row = SealedRow(
            *(7, MemoryType.JOURNAL, 3, False, True, tags, AT, other_dates, 2, 1, "agent", None, 4),
            *(created_at, later, SealedMemory(None, None, None, b"")),
        )

        told = OneMemory.reveal(row, "Ann likes tea.")

        assert told.model_dump_json() == OneMemory.of(row, content="Ann likes tea.").model_dump_json()
        assert told == OneMemory.of(row, content="Ann likes tea.")
        assert told.model_fields_set == {*OneMemory.model_fields}
