"""Difference: how every step of the proof says what it found first."""

from __future__ import annotations

from app.models import Account, Agent, AuditLog


class Difference(Exception):
    """Something is not as it was written. A sentence without content, that names the entry at fault where one is."""

    def __init__(self, sentence: str, *, agent_id: int | None = None, entry_id: int | None = None) -> None:
        super().__init__(sentence)
        self.agent_id, self.entry_id = agent_id, entry_id


def owner_difference(of: Agent | Account, sentence: str, entry_id: int | None = None) -> Difference:
    """A difference in what belongs to an agent or, beside its agents, to an account."""
    return Difference(f"{of.name} ({of.chain}): {sentence}", agent_id=of.audited_as[1], entry_id=entry_id)


def entry_name(entry: AuditLog) -> str:
    """An entry by its number in its chain and its id, as `./whetstone audit` prints it."""
    return numbered_entry(entry.sequence, entry.id)


def numbered_entry(sequence: int, entry_id: int) -> str:
    return f"entry {sequence} (id {entry_id})"
