"""SQLite's one writer: threads of a process write in the order in which they asked, and nobody starves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from flask import Flask
from sqlalchemy import create_engine, text

from app import extensions
from app.config import Settings
from app.errors import Unavailable
from app.extensions import db, writing
from app.write_turns import WriteTurns, awaited
from tests.support.databases import SERVER
from tests.support.processes import wait_for
from tests.support.threads import begun

pytestmark = pytest.mark.skipif(bool(SERVER), reason="SQLite has one writer")

THREADS = 200
WRITES = 3


@pytest.fixture(autouse=True)
def counter(app: Flask) -> None:
    with writing() as session:
        session.execute(text("CREATE TABLE counter (value INTEGER)"))
        session.execute(text("INSERT INTO counter VALUES (0)"))


def count() -> int:
    db.session.rollback()
    return int(db.session.scalar(text("SELECT value FROM counter")) or 0)


def add_one() -> None:
    """Read, then written: a write between the two would be lost."""
    value = db.session.scalar(text("SELECT value FROM counter")) or 0
    db.session.execute(text("UPDATE counter SET value = :value"), {"value": value + 1})


def waiting(app: Flask) -> int:
    turns: WriteTurns = app.extensions["write_turns"]
    return turns.waiting


@contextmanager
def held(app: Flask) -> Iterator[None]:
    """Another thread writes for as long as the block runs."""
    has_it, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with writing():
            has_it.set()
            may_end.wait()

    thread = begun(app, hold)
    assert has_it.wait(20)
    try:
        yield
    finally:
        may_end.set()
        thread.join()


def test_two_hundred_threads_all_write_and_no_write_is_lost(app: Flask) -> None:
    failed: list[Exception] = []

    def work() -> None:
        for _ in range(WRITES):
            try:
                with writing():
                    add_one()
            except Exception as error:  # noqa: BLE001 - whatever it is, the main thread tells
                failed.append(error)

    for thread in [begun(app, work) for _ in range(THREADS)]:
        thread.join()

    assert failed == []
    assert count() == THREADS * WRITES


def test_first_come_first_served(app: Flask) -> None:
    served: list[int] = []

    def ask(number: int) -> None:
        with writing():
            served.append(number)

    threads = []
    with held(app):
        for number in range(50):
            threads.append(begun(app, lambda number=number: ask(number)))  # type: ignore[misc]
            wait_for(lambda: waiting(app) == len(threads))
    for thread in threads:
        thread.join()

    assert served == list(range(50))


def test_what_a_person_waits_for_comes_before_what_came_earlier(app: Flask) -> None:
    served: list[str] = []

    def ask(number: int) -> None:
        with writing():
            served.append(f"refinement {number}")

    @awaited()
    def look(number: int) -> None:
        with writing():
            served.append(f"look {number}")

    threads = []
    with held(app):
        for work in (ask, look):
            for number in range(3):
                threads.append(begun(app, lambda work=work, number=number: work(number)))  # type: ignore[misc]
                wait_for(lambda: waiting(app) == len(threads))
    for thread in threads:
        thread.join()

    assert served == [f"{who} {number}" for who in ("look", "refinement") for number in range(3)]


def test_who_waits_holds_no_connection(app: Flask) -> None:
    """Or else more waiting threads than the pool has connections would keep out those who only read."""

    def write() -> None:
        with writing():
            add_one()

    with held(app):
        threads = [begun(app, write) for _ in range(60)]
        wait_for(lambda: waiting(app) == len(threads))
        assert count() == 0
        db.session.rollback()
        assert db.engine.pool.checkedout() == 1  # type: ignore[attr-defined]
    for thread in threads:
        thread.join()
    assert count() == 60


def test_a_turn_is_passed_on_by_whoever_raises(app: Flask) -> None:
    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error), writing():
            add_one()
            raise error

    with held(app):
        pass
    assert count() == 0


def test_a_turn_is_passed_on_where_the_connection_broke(app: Flask) -> None:
    with pytest.raises(ZeroDivisionError), writing() as session:
        session.connection().invalidate()
        raise ZeroDivisionError

    with held(app):
        pass


def test_a_turn_is_passed_on_where_a_thread_ends_in_the_midst(app: Flask) -> None:
    """Its session ends with its app context."""

    def begin() -> None:
        extensions.begin_immediate(db.session())
        add_one()

    begun(app, begin).join()

    with held(app):
        pass
    assert count() == 0


def test_a_turn_that_does_not_come_in_time_is_told_and_leaves_no_trace(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions, "BUSY_TIMEOUT_MS", 50)
    with held(app):
        with pytest.raises(Unavailable, match="nothing was written"), writing():
            add_one()
        assert waiting(app) == 0

    with writing():
        add_one()
    assert count() == 1


def test_another_process_that_writes_for_too_long_is_told_and_the_turn_is_passed_on(
    app: Flask, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extensions, "BUSY_TIMEOUT_MS", 50)
    engine = create_engine(settings.sqlalchemy_url)
    with engine.connect() as other:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="nothing was written"), writing():
            add_one()
        other.rollback()
    engine.dispose()

    with held(app):
        pass
    with writing():
        add_one()
    assert count() == 1


def test_a_thread_that_writes_is_refused_a_second_transaction_at_once(app: Flask) -> None:
    second = db.engine.connect().execution_options(whetstone_writes=True)
    with writing(), second, pytest.raises(RuntimeError, match="on another connection"):
        second.begin()

    with held(app):
        pass


@pytest.mark.parametrize("turn_came", [False, True], ids=["while it waited", "as its turn came"])
def test_what_waits_is_let_go_by_what_interrupts_it(turn_came: bool) -> None:
    """As a signal does in a main thread: neither the place nor a turn that came at that moment is lost."""

    class Interrupted:
        def acquire(self, timeout: float = 0) -> bool:
            if timeout:
                if turn_came:
                    turns.pass_on()
                raise KeyboardInterrupt
            return True

        def release(self) -> None:
            pass

    turns = WriteTurns()
    begun_by_another = threading.Thread(target=lambda: turns.take(1))
    begun_by_another.start()
    begun_by_another.join()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.write_turns.threading.Lock", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            turns.take(1)

    assert turns.waiting == 0
    if not turn_came:
        turns.pass_on()
    last = turns.take(0)
    assert last is not None
    last.end()
    last.end()
    assert turns._holder is None


def test_a_turn_that_has_ended_takes_no_others_away() -> None:
    turns = WriteTurns()
    first = turns.take(0)
    assert first is not None
    first.end()
    other = threading.Thread(target=lambda: turns.take(0))
    other.start()
    other.join()
    first.end()
    assert turns.take(0) is None
