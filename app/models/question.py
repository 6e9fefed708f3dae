"""Question: a row about which one worker at a time asks a model; should that worker die, another one takes it over."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Self

from sqlalchemy import ColumnElement, or_
from sqlalchemy.orm import Mapped

from app.extensions import now
from app.models.base import Moment, claim_row

ASKED_AGAIN_AFTER = timedelta(minutes=10)
"""Longer than any question lasts, so that whoever asked is done with it by then, or dead."""


class Question:
    """`asked_at` is when a worker began to ask. What still waits, and where the answer goes, its rows know."""

    if TYPE_CHECKING:
        id: Mapped[str]

    asked_at: Mapped[Moment | None]

    @classmethod
    def is_free(cls) -> ColumnElement[bool]:
        """No worker has it, or its worker's ten minutes are over."""
        return or_(cls.asked_at.is_(None), cls.asked_at < now() - ASKED_AGAIN_AFTER)

    @classmethod
    def claim(cls, number: str, *waits: ColumnElement[bool]) -> Self | None:
        """The row, if it is as `waits` says and free, for exactly one worker."""
        return claim_row(cls, cls.id == number, cls.is_free(), *waits, asked_at=now())
