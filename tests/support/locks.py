"""Every transaction of every test locks rows in the one order that `LOCK_ORDER` states."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, event

from app.models.base import LOCK_ORDER

HELD = WeakKeyDictionary[Connection, list[str]]()
"""By connection, the tables of which its open transaction has locked rows, in that order."""

_tables = WeakKeyDictionary[object, str]()
"""By statement: those that lock are made once, and used by every test."""


def watch() -> None:
    """From now on a lock out of order is an AssertionError, where it is taken."""
    event.listen(Engine, "before_execute", _check)
    for end in ("commit", "rollback"):
        event.listen(Engine, end, _forget)


def unwatch() -> None:
    event.remove(Engine, "before_execute", _check)
    for end in ("commit", "rollback"):
        event.remove(Engine, end, _forget)


def _check(connection: Connection, statement: Any, *_: Any) -> None:
    if getattr(statement, "_for_update_arg", None) is None:
        return
    table = _locked_table(statement)
    held = HELD.setdefault(connection, [])
    assert table in LOCK_ORDER, f"{table} is locked, and LOCK_ORDER does not say when"
    ahead = [name for name in held if LOCK_ORDER.index(name) > LOCK_ORDER.index(table)]
    assert table in held or not ahead, f"{table} is locked behind {', '.join(ahead)}"
    if table not in held:
        held.append(table)


def _locked_table(statement: Any) -> str:
    of = statement._for_update_arg.of
    if of is not None:
        return _only_name(of)
    if statement not in _tables:  # what a statement reads from is known when it is compiled, which takes long
        _tables[statement] = _only_name(statement.get_final_froms())
    return _tables[statement]


def _only_name(tables: Any) -> str:
    names = {str(getattr(each, "table", each).name) for each in tables}
    assert len(names) == 1, f"one statement locks {', '.join(sorted(names))}"
    return names.pop()


def _forget(connection: Connection) -> None:
    HELD.pop(connection, None)
