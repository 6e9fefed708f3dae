"""The leaves of the log of statements, read from the database: whoever reads them here checks them himself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from flask import current_app
from sqlalchemy import Connection, Engine, NullPool, Select, bindparam, create_engine, func, select
from sqlalchemy.orm import scoped_session

from app.extensions import db, read_rows
from app.models.statement import LogLeaf
from app.models.statement_errors import AgentStopped
from app.prepared import NO_VALUES, Prepared

SIZE_OF_LOG = select(func.coalesce(func.max(LogLeaf.position) + 1, 0))
"""How many leaves the database's log has."""

SIZE = Prepared(SIZE_OF_LOG)


def log_size(connection: Connection | scoped_session[Any]) -> int:
    """How many leaves the database has, as this connection sees it."""
    ((size,),) = SIZE.fetch(connection if isinstance(connection, Connection) else connection.connection(), NO_VALUES)
    return int(size)


@dataclass(frozen=True)
class FoundLeaf:
    """A leaf as it stands in the database: nothing of it is checked yet."""

    position: int
    kind: str
    subject: str
    leaf: bytes
    signature: bytes | None

    @classmethod
    def read(cls, connection: Connection | scoped_session[Any], query: Select[Any]) -> list[FoundLeaf]:
        """In the order of their positions."""
        columns = [getattr(LogLeaf, each.name) for each in fields(cls)]
        found = connection.execute(query.with_only_columns(*columns).order_by(LogLeaf.position))
        return [cls(*row) for row in found.tuples()]


FIRST_LEAF = Prepared(select(*(getattr(LogLeaf, each.name) for each in fields(FoundLeaf))).where(LogLeaf.position == 0))

_IN_ORDER = select(*(getattr(LogLeaf, each.name) for each in fields(FoundLeaf))).order_by(LogLeaf.position)
LEAVES = Prepared(_IN_ORDER.where(LogLeaf.position >= bindparam("first"), LogLeaf.position < bindparam("end")))
"""From `first` to before `end`."""
_LEAVES_OF = Prepared(
    _IN_ORDER.where(
        LogLeaf.agent_id == bindparam("agent"), LogLeaf.position.between(bindparam("first"), bindparam("last"))
    )
)

BATCH = 1000
"""Leaves that are read at a time, by who catches up."""


def read_leaves(connection: Connection, first: int) -> list[FoundLeaf]:
    """From that position on, `BATCH` at most."""
    return FoundLeaf.read(connection, select(LogLeaf).where(LogLeaf.position >= first).limit(BATCH))


def find_leaves(agent_id: int, positions: Sequence[int], size: int = 0) -> list[FoundLeaf]:
    """Exactly these of an agent; `size` is how many leaves the session's own transaction sees.

    Raises AgentStopped where one is missing, or stands in another agent's name.
    """
    if positions[-1] < size:
        values = {"agent": agent_id, "first": positions[0], "last": positions[-1]}
        found = [FoundLeaf(*row) for row in read_rows(_LEAVES_OF, values)]
    else:
        within = LogLeaf.position.between(positions[0], positions[-1])
        with connect_apart() as connection:
            found = FoundLeaf.read(connection, select(LogLeaf).where(LogLeaf.agent_id == agent_id, within))
    check_positions(found, positions, agent_id)
    return found


def check_positions(found: Sequence[FoundLeaf], positions: Sequence[int], agent_id: int) -> None:
    """Raises AgentStopped unless exactly these were found."""
    if [leaf.position for leaf in found] != list(positions):
        other = min({leaf.position for leaf in found} ^ set(positions))
        raise AgentStopped(f"Leaf {other} of the log of statements was removed or moved", agent_id)


@contextmanager
def connect_apart() -> Iterator[Connection]:
    """A connection of its own: it sees what was committed, however old the session's snapshot is. None is kept."""
    extensions = current_app.extensions
    if _APART not in extensions:  # made once: what an engine learns of its database costs more than the connection
        extensions[_APART] = create_engine(db.engine.url, poolclass=NullPool, hide_parameters=True)
    with cast(Engine, extensions[_APART]).connect() as connection:
        yield connection


_APART = "statement_log_engine"


def make_durable() -> None:
    """Let what was committed survive a loss of power before the copy names it: SQLite's WAL syncs later by itself."""
    path = db.engine.url.database
    if db.engine.dialect.name == "sqlite" and path and Path(f"{path}-wal").exists():
        descriptor = os.open(f"{path}-wal", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
