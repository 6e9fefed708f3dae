"""On a server, who has not begun a write transaction can write nothing, and what is prepared outlives his reading."""

from __future__ import annotations

import time

import psycopg
import pytest
from flask import Flask
from sqlalchemy import insert, select, text
from sqlalchemy.exc import InternalError, OperationalError

from app.extensions import WRITES, db, end_reading, reading, writing
from app.models import Account
from app.models.installation import InstallationMark
from tests.support.clock import MONDAY
from tests.support.databases import SERVER

pytestmark = [
    pytest.mark.skipif(not SERVER, reason="SQLite has no transactions that only read"),
    pytest.mark.usefixtures("app"),
]

MARK = insert(InstallationMark).values(name="mine", value="1", at=MONDAY)


def raw() -> psycopg.Connection[object]:
    found = db.session.connection().connection.driver_connection
    assert isinstance(found, psycopg.Connection)
    return found


def prepared() -> int:
    return int(db.session.scalar(text("SELECT count(*) FROM pg_prepared_statements")) or 0)


def ask(times: int = 8) -> None:
    for _ in range(times):
        db.session.scalar(select(Account.name).where(Account.id == 1))
        end_reading()


def test_what_is_prepared_outlives_the_transactions_that_used_it() -> None:
    ask()
    before = prepared()
    end_reading()
    with writing():
        db.session.execute(MARK)
    ask()

    assert 0 < before <= prepared()


def test_a_write_that_nobody_announced_is_refused_by_the_server_and_leaves_nothing() -> None:
    with pytest.raises(InternalError, match="read-only transaction"):
        db.session.execute(MARK)
    db.session.rollback()
    with pytest.raises(InternalError, match="read-only transaction"), reading() as session:
        session.execute(MARK)
    with pytest.raises(InternalError, match="read-only transaction"), db.engine.begin() as connection:
        connection.execute(MARK)

    assert InstallationMark.read("mine") is None


def test_who_writes_after_reading_by_the_same_connection_writes_and_the_next_reads_only() -> None:
    first = raw()
    end_reading()
    with writing() as session:
        assert raw() is first
        session.execute(MARK)
    assert InstallationMark.read("mine") == "1"
    with db.engine.execution_options(**WRITES).begin() as connection:
        assert connection.connection.driver_connection is not first
        connection.execute(MARK.values(name="another"))
    end_reading()
    with db.engine.begin() as connection, pytest.raises(InternalError, match="read-only transaction"):
        connection.execute(MARK.values(name="a third"))


def test_a_write_transaction_that_fails_is_rolled_back() -> None:
    with pytest.raises(RuntimeError, match="half-way"), writing() as session:
        session.execute(MARK)
        raise RuntimeError("half-way")

    assert InstallationMark.read("mine") is None


def test_a_transaction_that_failed_while_reading_leaves_a_connection_that_works() -> None:
    first = raw()
    with pytest.raises(Exception, match="division by zero"):
        db.session.execute(text("SELECT 1 / 0"))
    end_reading()

    assert raw() is first
    assert db.session.scalar(select(Account.id)) == 1


def end_session(pid: int) -> None:
    with psycopg.connect(SERVER, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [pid])


@pytest.mark.parametrize("asks_once_more", [True, False])
def test_a_reader_whose_connection_the_server_ended_is_told_so_once(asks_once_more: bool) -> None:
    db.session.scalar(select(Account.id))
    end_session(raw().info.backend_pid)
    with pytest.raises(OperationalError):
        if asks_once_more:
            db.session.scalar(select(Account.id))
        end_reading()
    end_reading()

    assert db.session.scalar(select(Account.id)) == 1


def test_a_reader_who_paused_for_longer_than_the_server_allows_is_told_so_once() -> None:
    db.session.execute(text("SET LOCAL idle_in_transaction_session_timeout = 50"))
    time.sleep(0.3)
    with pytest.raises(OperationalError):
        end_reading()
    end_reading()

    assert db.session.scalar(select(Account.id)) == 1


def test_a_writer_whose_connection_the_server_ended_is_told_so_once_and_wrote_nothing() -> None:
    with pytest.raises(OperationalError), writing() as session:
        session.execute(MARK)
        end_session(raw().info.backend_pid)
        session.execute(select(Account.id))
    assert InstallationMark.read("mine") is None
    with writing() as session:
        session.execute(MARK)
    assert InstallationMark.read("mine") == "1"


def test_the_web_process_reads_only_too(web: Flask) -> None:
    with web.app_context(), pytest.raises(InternalError, match="read-only transaction"):
        db.session.execute(MARK)


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Every connection that was asked whether it answers."""
    asked: list[object] = []
    ask_first = type(db.engine.dialect).do_ping
    monkeypatch.setattr(type(db.engine.dialect), "do_ping", lambda self, raw: asked.append(raw) or ask_first(self, raw))
    return asked


def test_who_comes_back_at_once_is_not_asked_whether_the_server_answers(questions: list[object]) -> None:
    first = raw()
    ask()
    assert raw() is first
    assert questions == []


def test_a_connection_that_rested_and_does_not_answer_is_made_anew_unnoticed(
    monkeypatch: pytest.MonkeyPatch, questions: list[object]
) -> None:
    first = raw()
    end_session(first.info.backend_pid)
    db.session.remove()
    monkeypatch.setattr("app.extensions.TRUSTED_SECONDS", 0.0)

    assert db.session.scalar(select(Account.id)) == 1
    assert raw() is not first
    assert questions == [first]


def test_a_connection_that_was_ended_a_moment_ago_fails_one_transaction_and_writes_nothing() -> None:
    ended = raw()
    end_session(ended.info.backend_pid)
    db.session.remove()
    with pytest.raises(OperationalError), writing() as session:
        session.execute(MARK)
    assert InstallationMark.read("mine") is None
    with writing() as session:
        session.execute(MARK)
    assert InstallationMark.read("mine") == "1"
    assert raw() is not ended
