"""Leaves of the log of statements that this process has checked: in its copy outside the database, or ahead of it.

Those ahead of it are committed: whoever appends next goes on behind them without waiting for the disk, and whoever
writes takes along all that wait.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from app.models.log_leaves import BATCH, make_durable
from app.models.statement import Statement, StatementKind
from app.models.statement_errors import LogBroken
from app.silo.keptnotes import KeptNotes
from app.silo.logcopy import LeafRecord, LogCopy, LogCopyUnwritable, LogForked
from app.silo.merkle import hash_leaf

KEPT = (StatementKind.TOKEN_ENDED, StatementKind.EXCEPTION_ENDED, StatementKind.ERASURE)
"""Statements that a restored backup must not undo: they are kept whole outside the database, too."""


class CheckedLeaf(NamedTuple):
    """One of them: its place, what the copy says of it, and its note where that is kept whole."""

    position: int
    record: LeafRecord
    kept: bytes | None

    @classmethod
    def of(cls, position: int, kind: str, leaf: bytes, said: Statement | None) -> CheckedLeaf:
        """`said` is None for one that is no statement: the head of a chain is found by its chain."""
        if said is not None:
            whose = said.agent
        else:
            chain = json.loads(leaf).get("chain")
            whose = chain_uuid(chain) if chain else None
        return cls(position, LeafRecord(hash_leaf(leaf), whose), leaf if kind in KEPT else None)


class CheckedLeaves:
    """In the order of their positions, without a gap. Every thread uses the same ones."""

    def __init__(self, folder: Path, installation: str) -> None:
        self.copy = LogCopy(folder / "leaves", installation)
        self.copy.load()
        self.kept = KeptNotes(folder / "kept")
        self.must_write = False
        """Whether some were not written where they should have been: nothing follows them before they are."""
        self._ahead: list[CheckedLeaf] = []
        self._changing, self._writing = threading.Lock(), threading.RLock()

    @property
    def end(self) -> int:
        """The position behind all of them."""
        with self._changing:
            return max(self.copy.size, self._ahead[-1].position + 1 if self._ahead else 0)

    def are_all_of(self, size: int) -> bool:
        """Whether the copy has all leaves of a log of that size, and is as this process knows it."""
        return size == self.copy.size and self.copy.is_whole()

    def go_on_as_usual(self, first: int, size: int) -> bool:
        """Whether a log of that size goes on behind them, at `first`, by so few that these can be added ahead of the
        copy; else who catches up finds out why.
        """
        least = self.copy.size
        in_file = self.copy.size_in_file()
        is_in_file = in_file is not None and least <= in_file <= size
        return is_in_file and first <= size <= first + BATCH and not self.must_write

    def add(self, leaves: Sequence[CheckedLeaf]) -> None:
        """Those that are not ahead yet: a thread that appended behind others may have been first to say so.

        None where something must be written first: what they follow may have been given up since it was looked at.
        """
        with self._changing:
            if self.must_write:
                return
            end = self._ahead[-1].position + 1 if self._ahead else 0
            self._ahead += [leaf for leaf in leaves if leaf.position >= end]

    def has_ahead(self, agent: str) -> bool:
        """Whether one that is ahead of the copy is about this agent, or chain."""
        with self._changing:
            return any(leaf.record.agent == agent for leaf in self._ahead)

    def write_ahead(self) -> None:
        """Write to the copy, durably, what is ahead of it. Who waits for others finds that they wrote it all.

        Where that fails, nothing more is appended or opened before it is written. Raises LogBroken, LogCopyUnwritable.
        """
        if not self._ahead:
            return
        with self._writing:
            with self._changing:
                leaves = list(self._ahead)
            if not leaves:
                return
            in_file = self.copy.size_in_file()
            if in_file is None:  # another copy took its place, and these may be none of its log
                self._give_up()
                return
            try:
                if in_file <= leaves[-1].position:
                    make_durable()
                self._write(leaves)
            except BaseException:
                self._give_up()
                raise
            with self._changing:
                self._ahead = [leaf for leaf in self._ahead if leaf.position > leaves[-1].position]

    def write_of_others(self) -> None:
        """What fails here is nothing of whoever has just committed: who comes next is refused for it."""
        with suppress(LogBroken, LogCopyUnwritable, OSError):
            self.write_ahead()

    @contextmanager
    def catching_up(self) -> Iterator[None]:
        """Nobody else writes meanwhile; behind it nothing is left that must be written."""
        with self._writing:
            yield
            self.must_write = False

    def take_in(self, leaves: Sequence[CheckedLeaf]) -> None:
        """Write what follows the copy at once, for who is `catching_up`. Raises LogBroken, LogCopyUnwritable."""
        make_durable()
        self._write(leaves)

    def forget_ahead(self) -> None:
        """All that is ahead of the copy: who catches up finds it in the database."""
        with self._changing:
            self._ahead = []

    def _give_up(self) -> None:
        self.must_write = True
        self.forget_ahead()

    def _write(self, leaves: Sequence[CheckedLeaf]) -> None:
        """What is kept whole comes first, so that the copy names no leaf that is to be and is not."""
        self.kept.add([(leaf.position, leaf.kept) for leaf in leaves if leaf.kept is not None])
        try:
            self.copy.extend(leaves[0].position, [leaf.record for leaf in leaves])
        except LogForked as error:
            raise LogBroken(error.sentence.rstrip(".")) from None


def chain_uuid(chain: str) -> str:
    """By what the copy finds the leaves of an audit chain, as it finds an agent's by its UUID."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, chain))
