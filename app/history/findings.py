"""Findings: what a look at the log says about taking something back, memory by memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.history.trace import PresentMemory, Recorded
from app.models import MemoryType, Restoration
from app.models.state import NOTHING


@dataclass(frozen=True)
class MemoryReversal:
    """One memory's way back. Without a state it is taken away: what is undone had made it."""

    memory: PresentMemory
    state: Recorded | None
    constitutional: bool

    @property
    def gain(self) -> int:
        """What the ledger's mass gains by it, in tokens."""
        return (_core_weight(self.state) if self.state else 0) - _core_weight(self.memory)

    def restoration(self, at: datetime) -> Restoration:
        """The same, ready to be recorded and carried out."""
        return Restoration(
            memory_id=self.memory.id,
            previous_entry_id=self.memory.entry_id,
            source_entry_id=self.state.entry_id if self.state else None,
            restores_entry_id=self.state.origin_entry_id if self.state else NOTHING,
            constitutional=self.constitutional,
            at=at,
        )


@dataclass(frozen=True)
class PlanFindings:
    """`conflicts` are memories that changed since. `stays` are left alone: an admin made them constitutional since.

    `later` are refinements since: those that stand in the way, or those that a rewind reverses.
    """

    changes: tuple[MemoryReversal, ...] = ()
    conflicts: tuple[int, ...] = ()
    stays: tuple[int, ...] = ()
    later: tuple[str, ...] = ()

    @property
    def restored(self) -> int:
        """Memories that get an earlier state back."""
        return sum(change.state is not None for change in self.changes)

    @property
    def removed(self) -> int:
        """Memories that are taken away again: what is undone had made them."""
        return len(self.changes) - self.restored


def _core_weight(of: PresentMemory | Recorded) -> int:
    return of.token_estimate if of.is_active and of.type == MemoryType.CORE else 0
