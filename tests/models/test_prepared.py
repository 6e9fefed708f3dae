"""A prepared statement finds and writes what SQLAlchemy's execution does, and is heard and fails like one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, cast
from unittest.mock import patch

import pytest
from flask import Flask
from sqlalchemy import Connection, Engine, Table, bindparam, event, func, insert, literal_column, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from app.errors import DiskFull
from app.extensions import db, now, reading, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.models import COMMAND_LINE, Agent, AuditLog, Event, Memory, MemoryState, Refinement
from app.models.attention import settle_attention
from app.models.base import insert_values, lock_row
from app.prepared import Prepared, one_of, send, spread
from app.values.refinement_states import OPEN_STATES, Status
from tests.support.databases import SERVER
from tests.support.factories import begin, make_agent, remember
from tests.support.full_disk import FullDisk
from tests.test_statement_budgets import counted

EVENTS = cast(Table, Event.__table__)
MEMORIES = cast(Table, Memory.__table__)


@contextmanager
def unprepared() -> Iterator[list[str]]:
    """What SQLAlchemy itself executes meanwhile."""
    sent: list[str] = []
    execute = Connection.execute

    def note(self: Connection, statement: Any, *given: Any, **more: Any) -> Any:
        sent.append(str(statement))
        return execute(self, statement, *given, **more)

    with patch.object(Connection, "execute", note):
        yield sent


@pytest.mark.parametrize("model", [Agent, AuditLog, Event, Memory, MemoryState, Refinement])
def test_it_reads_each_column_as_sqlalchemy_does(app: Flask, model: Any) -> None:
    agent = make_agent()
    remember(agent, "Ann likes tea.", "Bob likes rum.", tags=["kept"])
    begin(agent)
    query = select(cast(Table, model.__table__)).order_by(*model.__table__.primary_key)
    with writing() as session, unprepared() as sent:
        found = Prepared(query).fetch(session.connection(), {})

    assert not sent
    assert found == [tuple(row) for row in db.session.execute(query)]
    assert found


def test_it_writes_what_sqlalchemy_does(app: Flask) -> None:
    make_agent()
    rows = [{"account_id": 1, "kind": f"agent.{name}", "data": {"é": [name]}, "at": now()} for name in ("a", "b", "c")]
    with writing() as session, unprepared() as sent:
        done = Prepared(insert(EVENTS), tuple(rows[0])).run(session.connection(), rows)

    assert (done, sent) == (3, [])
    written = db.session.execute(
        select(Event.account_id, Event.kind, Event.data, Event.at).order_by(Event.id.desc()).limit(3)
    )
    assert [row._asdict() for row in written][::-1] == rows


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 1000])
def test_however_many_values_it_finds_those(app: Flask, count: int) -> None:
    ids = remember(make_agent(), *(f"Number {number}." for number in range(7)))
    asked = (ids[1:6] + [10**9 + number for number in range(count)])[:count]
    among, named = spread(asked)
    query = Prepared(select(MEMORIES.c.id).where(one_of(MEMORIES.c.id, among)).order_by(MEMORIES.c.id))
    with writing() as session:
        found = query.fetch(session.connection(), named)

    assert [number for (number,) in found] == [number for number in asked if number in ids]
    assert len(named) == among < 2 * count


def test_its_counts_are_those_of_all_rows_that_changed(app: Flask) -> None:
    ids = remember(make_agent(), "Ann likes tea.", "Bob likes rum.")
    change = update(MEMORIES).where(MEMORIES.c.id == bindparam("row")).values(merges=bindparam("new_merges"))
    with writing() as session:
        rows = [{"row": number, "new_merges": 0} for number in (*ids, 10**9)]
        done = Prepared(change).run(session.connection(), rows)

    assert done == 2


def test_what_only_sqlalchemy_can_run_it_runs(app: Flask) -> None:
    """A list of any length is put into the text at each execution, and a default is asked of the column."""
    ids = remember(make_agent(), "Ann likes tea.", "Bob likes rum.")
    listed = Prepared(select(MEMORIES.c.id).where(MEMORIES.c.id.in_(bindparam("ids", expanding=True))))
    with writing() as session, unprepared() as sent:
        found = listed.fetch(session.connection(), {"ids": ids})

    assert len(sent) == 1
    assert sorted(found) == [(number,) for number in ids]


@pytest.mark.parametrize("name", ["before_execute", "before_cursor_execute", "after_cursor_execute", "after_execute"])
@pytest.mark.parametrize(
    "find_target",
    [lambda _: Engine, lambda _: db.engine, lambda _: Connection, lambda connection: connection],
    ids=["every engine", "this engine", "every connection", "this connection"],
)
def test_listeners_hear_of_it_while_they_listen(
    app: Flask, name: Any, find_target: Callable[[Connection], Any]
) -> None:
    make_agent()
    query = Prepared(lock_row(select(cast(Table, Agent.__table__).c.id)))
    heard: list[Any] = []

    def listen(*given: Any) -> None:
        heard.append(given)

    with writing() as session:
        target = find_target(session.connection())
        for is_heard in (False, True, False):
            if is_heard:
                event.listen(target, name, listen)
            try:
                query.fetch(session.connection(), {})
            finally:
                if is_heard:
                    event.remove(target, name, listen)
            assert len(heard) == is_heard
            heard.clear()


@pytest.mark.parametrize("name", ["before_execute", "before_cursor_execute", "after_cursor_execute", "after_execute"])
def test_listeners_of_an_engine_with_options_hear_of_it(app: Flask, name: Any) -> None:
    query = Prepared(select(cast(Table, Agent.__table__).c.id))
    heard: list[Any] = []
    engine = db.engine.execution_options(whetstone_writes=False)
    event.listen(engine, name, lambda *given: heard.append(given))

    with engine.begin() as connection:
        heard.clear()  # of the transaction's own beginning
        query.fetch(connection, {})

    assert len(heard) == 1


def test_a_listener_keeps_what_is_its_own_from_before_to_behind_and_in_an_error(app: Flask) -> None:
    """As OpenTelemetry's instrumentation of SQLAlchemy does with its spans."""
    begun: list[object] = []
    ended: list[object] = []

    def begin_span(_c: Any, _k: Any, statement: str, parameters: Any, context: Any, _many: bool) -> tuple[str, Any]:
        context._span = object()
        begun.append(context._span)
        return statement, parameters

    def end_span(_c: Any, _k: Any, _s: str, _p: Any, context: Any, _many: bool) -> None:
        ended.append(context._span)

    def end_failed(failed: Any) -> None:
        ended.append(failed.execution_context._span)

    number = make_agent().id
    listeners: list[tuple[Any, Any]] = [("after_cursor_execute", end_span), ("handle_error", end_failed)]
    event.listen(db.engine, "before_cursor_execute", begin_span, retval=True)
    for name, listener in listeners:
        event.listen(db.engine, name, listener)
    with writing():
        Agent.lock(number).core_count = 9
    with pytest.raises(IntegrityError), writing():
        _no_such_account()

    assert len(begun) >= 3  # the lock, the change, and what failed
    assert begun == ended


def test_an_error_while_rows_are_fetched_is_sqlalchemys(app: Flask) -> None:
    """SQLite makes one row after the other: the second one has no absolute value."""
    rows = text("(SELECT 1 AS value UNION ALL SELECT -9223372036854775808 UNION ALL SELECT 2) AS numbers")
    query = Prepared(select(func.abs(literal_column("value"))).select_from(rows))
    with pytest.raises(DBAPIError), writing() as session:
        query.fetch(session.connection(), {})


def test_it_is_counted_once(app: Flask) -> None:
    agent_id = make_agent().id
    with writing(), counted() as sent:
        Agent.lock(agent_id)

    assert len(sent) == 1


def _no_such_account() -> None:
    insert_values(Event, [{"account_id": 10**9, "kind": "a secret", "data": {}, "at": now()}])


def _no_such_accounts() -> None:
    insert_values(Event, [{"account_id": 10**9, "kind": "a secret", "data": {}, "at": now()}] * 2)


@pytest.mark.parametrize("work", [_no_such_account, _no_such_accounts])
def test_its_errors_are_sqlalchemys_and_say_no_values(app: Flask, work: Callable[[], None]) -> None:
    with pytest.raises(IntegrityError) as caught, writing():
        work()

    assert "INSERT INTO events" in str(caught.value)
    assert "a secret" not in str(caught.value)
    assert caught.value.hide_parameters
    with writing():
        pass


def test_a_full_disk_is_named(app: Flask) -> None:
    agent = make_agent()
    disk = FullDisk(app)
    disk.fill()
    try:
        with pytest.raises(DiskFull), writing():
            Agent.lock(agent.id).pause(by=agent.as_actor)
    finally:
        disk.free()


def test_a_mistake_of_ours_comes_as_it_is(app: Flask) -> None:
    query = Prepared(select(MEMORIES.c.id).where(MEMORIES.c.id == bindparam("row")))
    with pytest.raises(KeyError, match="row"), writing() as session:
        query.fetch(session.connection(), {})


@pytest.mark.skipif(bool(SERVER), reason="a server's driver begins transactions by itself")
def test_the_beginning_of_a_reading_is_heard_and_one_that_fails_is_sqlalchemys(app: Flask) -> None:
    heard: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        heard.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with reading():
            db.session.scalar(select(func.count()).select_from(MEMORIES))
    finally:
        event.remove(Engine, "before_cursor_execute", note)

    assert [statement for statement in heard if statement.startswith("BEGIN")] == ["BEGIN DEFERRED"]
    with db.engine.connect() as connection, pytest.raises(OperationalError, match="within a transaction"):
        connection.begin()
        send(connection, "BEGIN DEFERRED")


@pytest.mark.skipif(bool(SERVER), reason="a server's driver begins transactions by itself")
def test_the_beginning_of_a_change_is_heard_too(app: Flask) -> None:
    heard: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        heard.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        with writing():
            pass
    finally:
        event.remove(Engine, "before_cursor_execute", note)

    assert heard == ["BEGIN IMMEDIATE"]


@pytest.mark.parametrize("status", sorted(set(Status) - set(OPEN_STATES)))
def test_what_an_end_answers_is_one_constant_statement(app: Flask, status: Status) -> None:
    with unprepared() as sent, counted() as all_sent, writing():
        settle_attention(1, status, "nobody")

    assert [statement.split()[1] for statement in all_sent] == ["attention_items"]
    assert sent == []


def test_an_undo_and_a_booked_turn_are_constant_statements(app: Flask) -> None:
    agent = make_agent()
    (number,) = remember(agent, "Ann likes tea.")
    run = begin(agent)
    refinement_id = run.refinement.id
    run.tool.execute("update", id=number, content="Ann likes tea, and likes it very much.")
    with unprepared() as booked, writing():
        used = {"prompt_tokens": 1, "completion_tokens": 1, "cost_usd": Decimal(0)}
        assert Refinement.book_turn(refinement_id, run.claim.worker, 1, **used)
    run.tool.execute("complete", summary="I am done.")
    with unprepared() as sent:
        assert roll_back(Target.refinement(refinement_id), by=COMMAND_LINE).applied

    assert (booked, sent) == ([], [])
