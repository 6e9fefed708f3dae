"""Restoring: memories are given back earlier states, as sets, however many there are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Table, bindparam, select, text, update

from app.extensions import db, is_sqlite
from app.models.base import UtcDateTime
from app.models.memory import Memory
from app.models.state import NO_EARLIER_STATE, STATE_FIELDS, MemoryState, Restoration


def restore_states(entry_id: int, ways: Sequence[Restoration], *, immutable: Mapping[int, bool]) -> None:
    """Write the states that this entry gave back, and let the memories take them. The caller keeps the totals true.

    The constitutional flags are cleared first, so that their protection does not block the rest of a state.
    `immutable` names the memories for which that changes with the tags.
    """
    copied = [
        [w.memory_id, w.source_entry_id, w.restores_entry_id, w.constitutional] for w in ways if w.source_entry_id
    ]
    taken = [[w.memory_id] for w in ways if not w.source_entry_id]
    _insert_states(_COPY, copied, {"entry": entry_id})
    if taken:
        _insert_states(_TAKE_AWAY, taken, {"entry": entry_id, "at": ways[0].at})
    for statement in (_CLEAR_CONSTITUTIONAL, _COPY_STATES_TO_MEMORIES):
        db.session.execute(statement, {"entry": entry_id})
    if immutable:
        values = [{"number": number, "value": value} for number, value in immutable.items()]
        db.session.connection().execute(_SET_IMMUTABLE, values)
    for loaded in list(db.session.identity_map.values()):
        if isinstance(loaded, Memory):
            db.session.expire(loaded)


def _insert_states(statement: str, rows: list[list[Any]], values: dict[str, Any]) -> None:
    """One INSERT … SELECT over rows that are given as JSON: the one form that both databases take as a set."""
    if not rows:
        return
    dialect = _SQLITE if is_sqlite(db.session()) else _POSTGRESQL
    ready = text(statement.format(**dialect))
    if "at" in values:
        ready = ready.bindparams(bindparam("at", type_=UtcDateTime()))
    db.session.execute(ready, values | {"given": json.dumps(rows)})


_COLUMNS = {"memory": "bigint", "source": "bigint", "restores": "bigint", "flag": "boolean"}
"""What is given of each row, in this order."""

_SQLITE = {name: f"json_extract(g.value, '$[{place}]')" for place, name in enumerate(_COLUMNS)}
_SQLITE["given"] = "json_each(:given) AS g"
_POSTGRESQL = {name: f"CAST(g.value ->> {place} AS {kind})" for place, (name, kind) in enumerate(_COLUMNS.items())}
_POSTGRESQL["given"] = "jsonb_array_elements(CAST(:given AS jsonb)) AS g(value)"
_INSERT = (
    "INSERT INTO memory_states (memory_id, entry_id, previous_entry_id, restores_entry_id, "
    f"{', '.join(STATE_FIELDS)}) SELECT m.id, :entry, m.entry_id"
)
_COPIED = ", ".join("{flag}" if name == "constitutional" else f"s.{name}" for name in STATE_FIELDS)
_COPY = (
    f"{_INSERT}, {{restores}}, {_COPIED} FROM {{given}} JOIN memories m ON m.id = {{memory}}"
    " JOIN memory_states s ON s.memory_id = m.id AND s.entry_id = {source}"
)
_CHANGED = {"constitutional": "(1 = 0)", "updated_at": ":at", "discarded_at": ":at", "version": "m.version + 1"}
_TAKEN = ", ".join(_CHANGED.get(name, f"m.{name}") for name in STATE_FIELDS)
_TAKE_AWAY = f"{_INSERT}, {NO_EARLIER_STATE}, {_TAKEN} FROM {{given}} JOIN memories m ON m.id = {{memory}}"

_GIVEN = select(MemoryState.memory_id).where(MemoryState.entry_id == bindparam("entry"))
_CLEAR_CONSTITUTIONAL = (
    update(Memory)
    .where(Memory.constitutional, Memory.id.in_(_GIVEN))
    .values(constitutional=False)
    .execution_options(synchronize_session=False)
)
_COPY_STATES_TO_MEMORIES = (
    update(Memory)
    .where(Memory.id == MemoryState.memory_id, MemoryState.entry_id == bindparam("entry"))
    .values({name: getattr(MemoryState, name) for name in STATE_FIELDS} | {"entry_id": MemoryState.entry_id})
    .execution_options(synchronize_session=False)
)
_TABLE = cast(Table, Memory.__table__)
_SET_IMMUTABLE = update(_TABLE).where(_TABLE.c.id == bindparam("number")).values(immutable=bindparam("value"))
