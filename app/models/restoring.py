"""Restoring: memories are given back earlier states, as sets, however many there are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple, cast

from sqlalchemy import Table, bindparam, select, text, update

from app.extensions import db, is_sqlite
from app.models.base import UtcDateTime
from app.models.memory import Memory
from app.models.state import NO_EARLIER_STATE, STATE_FIELDS, MemoryState, Restoration
from app.prepared import Prepared


def restore_states(
    entry_id: int, ways: Sequence[Restoration], *, are_protected: bool, immutable: Mapping[int, bool]
) -> None:
    """Write the states that this entry gave back, and let the memories take them. The caller keeps the totals true.

    Where some of them `are_protected`, constitutional by now, these flags are cleared first, so that they do not block
    the rest of a state. `immutable` names the memories for which that changes with the tags.
    """
    connection = db.session.connection()
    copied = {each[0]: each[2] * 2 + each[4] for each in ways if each[2]}
    taken = {each[0]: 0 for each in ways if not each[2]} if len(copied) < len(ways) else {}
    of_database = _Statements.of(is_sqlite(db.session()))
    if copied:
        of_database.copy.run(connection, [{"entry": entry_id, "given": json.dumps(copied)}])
    if taken:
        given = json.dumps(taken)
        of_database.take_away.run(connection, [{"entry": entry_id, "at": ways[0].at, "given": given}])
    if are_protected:
        _CLEAR_CONSTITUTIONAL.run(connection, [{"entry": entry_id}])
    _COPY_STATES_TO_MEMORIES.run(connection, [{"entry": entry_id}])
    if immutable:
        _SET_IMMUTABLE.run(connection, [{"number": number, "value": value} for number, value in immutable.items()])
    for loaded in list(db.session.identity_map.values()):
        if isinstance(loaded, Memory):
            db.session.expire(loaded)


_MEMORY = "CAST(g.key AS bigint)"
_SOURCE, _FLAG = "(CAST(g.value AS bigint) >> 1)", "(CAST(g.value AS bigint) & 1) = 1"
"""A memory is given as `"id": source * 2 + flag`: SQLite reads a key and a number of an object in half the time that
it takes for the parts of an array."""

_INSERT = (
    "INSERT INTO memory_states (memory_id, entry_id, previous_entry_id, restores_entry_id, "
    f"{', '.join(STATE_FIELDS)}) SELECT m.id, :entry, m.entry_id"
)
_COPIED = ", ".join(_FLAG if name == "constitutional" else f"s.{name}" for name in STATE_FIELDS)
_RESTORES = f"coalesce(nullif(s.restores_entry_id, {NO_EARLIER_STATE}), s.entry_id)"
_COPY = (
    f"{_INSERT}, {_RESTORES}, {_COPIED} FROM {{given}} JOIN memories m ON m.id = {_MEMORY}"
    f" JOIN memory_states s ON s.memory_id = m.id AND s.entry_id = {_SOURCE}"
)
_CHANGED = {"constitutional": "(1 = 0)", "updated_at": ":at", "discarded_at": ":at", "version": "m.version + 1"}
_TAKEN = ", ".join(_CHANGED.get(name, f"m.{name}") for name in STATE_FIELDS)
_TAKE_AWAY = f"{_INSERT}, {NO_EARLIER_STATE}, {_TAKEN} FROM {{given}} JOIN memories m ON m.id = {_MEMORY}"


class _Statements(NamedTuple):
    """INSERT … SELECT over rows that are given as JSON: the one form that both databases take as a set."""

    copy: Prepared
    take_away: Prepared

    @classmethod
    @cache
    def of(cls, on_sqlite: bool) -> _Statements:
        given = "json_each(:given) AS g" if on_sqlite else "jsonb_each_text(CAST(:given AS jsonb)) AS g(key, value)"
        take_away = text(_TAKE_AWAY.format(given=given)).bindparams(bindparam("at", type_=UtcDateTime()))
        return cls(Prepared(text(_COPY.format(given=given))), Prepared(take_away))


_MEMORIES, _STATES = (cast(Table, model.__table__) for model in (Memory, MemoryState))
_GIVEN = select(_STATES.c.memory_id).where(_STATES.c.entry_id == bindparam("entry"))
_CLEAR_CONSTITUTIONAL = Prepared(
    update(_MEMORIES).where(_MEMORIES.c.constitutional, _MEMORIES.c.id.in_(_GIVEN)).values(constitutional=False)
)
_COPY_STATES_TO_MEMORIES = Prepared(
    update(_MEMORIES)
    .where(_MEMORIES.c.id == _STATES.c.memory_id, _STATES.c.entry_id == bindparam("entry"))
    .values({name: _STATES.c[name] for name in (*STATE_FIELDS, "entry_id")})
)
_SET_IMMUTABLE = Prepared(
    update(_MEMORIES).where(_MEMORIES.c.id == bindparam("number")).values(immutable=bindparam("value"))
)
