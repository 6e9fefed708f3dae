"""Every transaction of every test locks rows in the one order that `LOCK_ORDER` states."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.orm import ORMExecuteState, Session

from app.models.base import LOCK_ORDER

HELD = "locked_tables"

_tables: WeakKeyDictionary[object, str] = WeakKeyDictionary()
"""By statement: those that lock are made once, and used by every test."""


def watch() -> None:
    """From now on a lock out of order is an AssertionError, where it is taken."""
    event.listen(Session, "do_orm_execute", _check)
    for end in ("after_commit", "after_rollback"):
        event.listen(Session, end, _forget)


def unwatch() -> None:
    event.remove(Session, "do_orm_execute", _check)
    for end in ("after_commit", "after_rollback"):
        event.remove(Session, end, _forget)


def _check(state: ORMExecuteState) -> None:
    is_lock = state.is_select and getattr(state.statement, "_for_update_arg", None) is not None
    if not is_lock:
        return
    table = _locked_table(state)
    held: list[str] = state.session.info.setdefault(HELD, [])
    assert table in LOCK_ORDER, f"{table} is locked, and LOCK_ORDER does not say when"
    ahead = [name for name in held if LOCK_ORDER.index(name) > LOCK_ORDER.index(table)]
    assert table in held or not ahead, f"{table} is locked behind {', '.join(ahead)}"
    if table not in held:
        held.append(table)


def _locked_table(state: ORMExecuteState) -> str:
    statement: Any = state.statement
    of = statement._for_update_arg.of
    if of is None and state.bind_mapper is not None:
        return str(state.bind_mapper.local_table.name)  # type: ignore[attr-defined]
    if of is not None:
        return _only_name(of)
    if statement not in _tables:  # what a statement reads from is known when it is compiled, which takes long
        _tables[statement] = _only_name(statement.get_final_froms())
    return _tables[statement]


def _only_name(tables: Any) -> str:
    names = {str(getattr(each, "table", each).name) for each in tables}
    assert len(names) == 1, f"one statement locks {', '.join(sorted(names))}"
    return names.pop()


def _forget(session: Session) -> None:
    session.info.pop(HELD, None)
