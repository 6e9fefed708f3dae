"""FoldedRefinement: one whose entries the audit log folds into a row, with its tally and the rules of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.models.tally import Tally
from app.values.refinement_states import OPEN_STATES

FOLDED_REFINEMENT = ("id", "agent_id", "started_by", *Tally.__annotations__)
"""The columns that it has. Anything else of it is an AttributeError."""


class FoldedRefinement(Tally):
    """As its row was when it was read; nothing of it is ever written."""

    id: str
    agent_id: int
    started_by: str

    def __init__(self, row: Sequence[Any]) -> None:
        """`row` has the columns of FOLDED_REFINEMENT."""
        self.__dict__.update(zip(FOLDED_REFINEMENT, row, strict=True))

    @property
    def is_open(self) -> bool:
        return self.status in OPEN_STATES
