"""Numbers of memories that are about to be written: sealing binds a text to its memory's number, so it comes first."""

from __future__ import annotations

from sqlalchemy import Integer, bindparam, column, func, select, table

from app.extensions import db, is_sqlite
from app.prepared import NO_VALUES, Prepared


def reserve_memory_ids(count: int) -> list[int]:
    """Numbers for memories to come, never given twice: content is sealed together with its row's number.

    Call it inside `writing()`: on SQLite its write lock makes the highest number plus one safe; no row is ever removed.
    """
    session = db.session()
    if is_sqlite(session):
        session.flush()
        ((highest,),) = _HIGHEST_MEMORY.fetch(session.connection(), NO_VALUES)
        return list(range(highest + 1, highest + 1 + count))
    return [number for (number,) in _NEXT_MEMORIES.fetch(session.connection(), {"count": count})]


_MEMORY_ID = column("id", Integer)
_HIGHEST_MEMORY = Prepared(select(func.coalesce(func.max(_MEMORY_ID), 0)).select_from(table("memories", _MEMORY_ID)))
_NEXT_MEMORIES = Prepared(
    select(func.nextval(func.pg_get_serial_sequence("memories", "id"))).select_from(
        func.generate_series(1, bindparam("count", type_=Integer)).alias()
    )
)
