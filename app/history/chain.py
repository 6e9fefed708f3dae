"""A chain followed from its first entry: no number missing, ids that grow, and every hash over what is stored.

Difference is how every step of the proof says what it found first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from sqlalchemy import ColumnElement, Result, Select, String, cast, literal, select
from sqlalchemy.exc import OperationalError

from app.extensions import db
from app.models import Account, Agent, AuditLog, MemoryState
from app.models.keyset import Keyset

BATCH = 500

_IN_ORDER = Keyset((AuditLog.sequence, AuditLog.id))

Written = tuple[AuditLog, list[MemoryState]]
"""An entry and the states that it wrote, in the order of their memories' ids."""

DAMAGE = (ValueError, TypeError, AttributeError, RecursionError, OperationalError)
"""What reading a row may raise whose bytes no part of the product has written; see `raise_unless_damage`."""


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


@contextmanager
def stream_rows(query: Select[Any]) -> Iterator[Result[Any]]:
    """Row by row, never all of them in memory; closed also where one of them is wrong."""
    with closing(db.session.execute(query.execution_options(yield_per=BATCH))) as found:
        yield found


def as_dict(value: object) -> dict[str, Any]:
    """What is no dictionary in a log that somebody edited says nothing."""
    return value if isinstance(value, dict) else {}


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
        is_last = False
        while not is_last:
            batch, is_last = self._read_batch()
            for entry, states in batch:
                self._check_entry(entry, states)
                yield entry
            if batch:
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

    def _read_batch(self) -> tuple[list[Written], bool]:
        """The next ones, and whether the chain ends with them now."""
        query = self._query_behind(select(AuditLog))
        try:
            batch = _with_states(db.session.scalars(query.limit(BATCH)).all())
        except DAMAGE as error:
            raise_unless_damage(error)
            batch = list(self._up_to_the_damage())
            return batch, not batch
        return batch, len(batch) < BATCH

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


def _with_states(entries: Sequence[AuditLog]) -> list[Written]:
    if not entries:
        return []
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
