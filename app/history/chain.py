"""A chain followed from its first entry: no number missing, ids that grow, and every hash over what is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, String, cast, literal, select
from sqlalchemy.exc import OperationalError

from app.extensions import db
from app.history.difference import BATCH, Difference, entry_difference, entry_name, numbered_entry
from app.models import Account, Agent, AuditLog, MemoryState
from app.models.keyset import Keyset

_IN_ORDER = Keyset((AuditLog.sequence, AuditLog.id))

Written = tuple[AuditLog, list[MemoryState]]
"""An entry and the states that it wrote, in the order of their memories' ids."""

DAMAGE = (ValueError, TypeError, AttributeError, RecursionError, OperationalError)
"""What reading a row may raise whose bytes no part of the product has written; see `raise_unless_damage`."""


class Chain:
    """How far a chain was followed. It can be followed on: a long log needs no long transaction."""

    def __init__(self, of: Agent | Account) -> None:
        self._of = of
        self._place: tuple[int, int] | None = None
        self.sequence, self.head = 0, b""

    def follow(self, rest: Callable[[], None]) -> Iterator[AuditLog]:
        """Every entry behind the last one seen, once it is proved. `rest` is called after each batch.

        Raises Difference.
        """
        while batch := self._read_batch():
            for entry, states in batch:
                self._check_entry(entry, states)
                yield entry
            db.session.expunge_all()
            rest()

    def check_end(self, of: Agent | Account) -> None:
        """Raises Difference unless the log ends as the row of its owner says."""
        if (self.sequence, self.head) == (of.audit_sequence, of.audit_head):
            return
        last, entry_id = (numbered_entry(*self._place), self._place[1]) if self._place else ("no entry", None)
        if self.sequence < of.audit_sequence:
            raise Difference(f"the log ends at {last}, but {of.audit_sequence} were written.", entry_id)
        if self.sequence > of.audit_sequence:
            raise Difference(f"{last} was appended by hand: {of.audit_sequence} were written.", entry_id)
        raise Difference(f"the head that its row keeps is not the hash of {last}.", entry_id)

    def _read_batch(self) -> list[Written]:
        query = self._query_behind(select(AuditLog))
        try:
            return _with_states(db.session.scalars(query.limit(BATCH)).all())
        except DAMAGE as error:
            raise_unless_damage(error)
            return list(self._up_to_the_damage())

    def _query_behind(self, query: Select[Any]) -> Select[Any]:
        """In order, from the place where we stand; from before the first number where nothing was seen."""
        query = query.where(AuditLog.chain == self._of.chain).order_by(*_IN_ORDER.order)
        return query if self._place is None else query.where(_IN_ORDER.behind(self._place))

    def _up_to_the_damage(self) -> Iterator[Written]:
        """One by one: those that can be read; or, where the first can't, the difference."""
        db.session.expunge_all()
        ids = db.session.execute(self._query_behind(select(AuditLog.sequence, AuditLog.id)).limit(BATCH)).tuples().all()
        for count, (sequence, entry_id) in enumerate(ids):
            try:
                entries = db.session.scalars(select(AuditLog).where(AuditLog.id == entry_id)).all()
                yield from _with_states(entries)
            except DAMAGE as error:
                raise_unless_damage(error)
                if count:
                    return
                sentence = f"{numbered_entry(sequence, entry_id)} can't be read: what is stored of it was damaged."
                raise Difference(sentence, entry_id) from None

    def _check_entry(self, entry: AuditLog, states: Iterable[MemoryState]) -> None:
        expected = self.sequence + 1
        if not isinstance(entry.sequence, int) or entry.sequence < expected:
            raise entry_difference(entry, f"was inserted: number {expected} was to come.")
        if entry.sequence > expected:
            raise Difference(f"entry {expected} is missing: what comes is {entry_name(entry)}.", entry.id)
        if entry.previous_hash != self.head:
            raise entry_difference(entry, "does not follow from the entry before it.")
        if (entry.account_id, entry.agent_id) != self._of.audited_as:
            raise entry_difference(entry, "names another account or agent.")
        if not _is_as_hashed(entry, states):
            raise entry_difference(entry, "was altered, or a state of a memory that it wrote: its hash does not match.")
        if self._place and entry.id < self._place[1]:
            raise entry_difference(entry, f"was moved: the entry before it has the id {self._place[1]}.")
        self.sequence, self.head, self._place = expected, entry.hash, (entry.sequence, entry.id)


def chain_of(model: type[Agent | Account]) -> ColumnElement[str]:
    """The same as the property `chain` of a row."""
    return literal("agent:") + Agent.uuid if model is Agent else literal("account:") + cast(Account.id, String)


def raise_unless_damage(error: Exception) -> None:
    """SQLite says of text that is none that it can't decode it; whatever else it says is about the database."""
    if isinstance(error, OperationalError) and "decode" not in str(error.orig):
        raise error


def _with_states(entries: Iterable[AuditLog]) -> list[Written]:
    ids = [entry.id for entry in entries]
    states = defaultdict(list)
    written = select(MemoryState).where(MemoryState.entry_id.in_(ids)).order_by(MemoryState.memory_id)
    for state in db.session.scalars(written):
        states[state.entry_id].append(state)
    return [(entry, states[entry.id]) for entry in entries]


def _is_as_hashed(entry: AuditLog, states: Iterable[MemoryState]) -> bool:
    try:
        return entry.digest(states) == entry.hash
    except DAMAGE:
        return False
