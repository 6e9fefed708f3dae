"""Difference: how every step of the proof says what it found first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from sqlalchemy import Select

from app.extensions import db
from app.models import Account, Agent, AuditLog

BATCH = 500


class Difference(Exception):
    """Something is not as it was written. A sentence without content, that names the entry at fault where one is."""

    def __init__(self, sentence: str, entry_id: int | None = None, *, agent_id: int | None = None) -> None:
        super().__init__(sentence)
        self.agent_id, self.entry_id = agent_id, entry_id


@contextmanager
def differences_of(owner: Agent | Account) -> Iterator[None]:
    """What is found within belongs to an agent or, beside its agents, to an account: it is named with it."""
    try:
        yield
    except Difference as found:
        sentence = f"{owner.name} ({owner.chain}): {found}"
        raise Difference(sentence, found.entry_id, agent_id=owner.audited_as[1]) from None


def entry_difference(entry: AuditLog, sentence: str) -> Difference:
    """Of an entry; the sentence goes on from its name."""
    return Difference(f"{entry_name(entry)} {sentence}", entry.id)


def entry_name(entry: AuditLog) -> str:
    """An entry by its number in its chain and its id, as `./whetstone audit` prints it."""
    return numbered_entry(entry.sequence, entry.id)


def numbered_entry(sequence: int, entry_id: int) -> str:
    return f"entry {sequence} (id {entry_id})"


def stream_rows(query: Select[Any]) -> Iterator[Any]:
    """Row by row, and never all of them in memory."""
    with closing(db.session.execute(query.execution_options(yield_per=BATCH))) as found:
        yield from found


def as_dict(value: object) -> dict[str, Any]:
    """What is no dictionary in a log that somebody edited says nothing."""
    return value if isinstance(value, dict) else {}
