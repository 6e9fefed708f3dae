"""The overview's worklist: one line a kind, always the same in the same order, so that nothing moves when one fills."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.history.proof import Proof
from app.views.shown.agent_alarms import agents_over_budget, agents_without_keys, eroding_agents, stopped_agents
from app.views.shown.attention import Attention, health_alarms, log_alarms, proof_alarms
from app.views.shown.fleet import AccountFigures, FleetTrend
from app.views.shown.outcomes import OpenItems, alerting_outcomes, unseen_items
from app.views.shown.pending import pending_decisions


@dataclass(frozen=True)
class Slot:
    """The place of one kind: what stands in it while there is nothing to do."""

    kind: str
    label: str
    nothing: str
    icon: str


SLOTS = (
    Slot("system", "System", "all parts answer", "bolt"),
    Slot("failed", "Failed", "none", "alert"),
    Slot("rolled_back", "Rolled back", "none", "undo"),
    Slot("to_check", "To check", "nothing", "eye"),
    Slot("notes", "Notes", "none from agents", "chat"),
    Slot("waiting", "Waiting", "no agent is asked anything", "clock"),
    Slot("declined", "Declined", "none", "ban"),
    Slot("over_budget", "Over budget", "no agent", "budget"),
    Slot("eroding", "Eroding", "no agent", "arrow-right"),
)
"""Worst first."""


@dataclass(frozen=True)
class Line:
    """One line of the worklist. `found` is empty where there is nothing to do."""

    slot: Slot
    found: Sequence[Attention] = field(default=())

    @property
    def first(self) -> Attention:
        return self.found[0]

    @property
    def title(self) -> str:
        """`48 failed, 2 interrupted`."""
        return ", ".join(each.short for each in self.found if each.short) or self.slot.label

    def as_json(self) -> dict[str, Any]:
        said = {"kind": self.slot.kind, "count": sum(each.count for each in self.found)}
        return said | ({"line": self.first.line, "url": self.first.url or None} if self.found else {})


def make_lines(found: Iterable[Attention]) -> list[Line]:
    """All lines, each with what belongs to it."""
    by_kind: dict[str, list[Attention]] = {slot.kind: [] for slot in SLOTS}
    for each in found:
        by_kind[each.kind].append(each)
    return [Line(slot, by_kind[slot.kind]) for slot in SLOTS]


def find_attention(
    account_id: int, figures: AccountFigures, trend: FleetTrend, proofs: tuple[Proof | None, Proof | None]
) -> list[Attention]:
    """All that needs attention, worst first. `proofs`: the account's last one, and that of what is in no account."""
    items = OpenItems.count(account_id)
    return [
        *stopped_agents(account_id, figures.stopped),
        *proof_alarms(account_id, *proofs),
        *log_alarms(),
        *health_alarms(),
        *agents_without_keys(account_id),
        *alerting_outcomes(account_id, items),
        *unseen_items(account_id, items.waiting),
        *pending_decisions(account_id),
        *agents_over_budget(account_id, figures, trend),
        *eroding_agents(trend),
    ]
