"""Databases that tests get on a server: each is as the template is, whoever had it before."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from app.config import Settings
from tests.support.databases import LENT_AT_MOST, RESTING, SERVER, SESSIONS, Template

pytestmark = pytest.mark.skipif(not SERVER, reason="a file is copied anew for every test")

DIGEST = "SELECT string_agg(t::text, ';' ORDER BY t::text) FROM {} t"

LOCKS = (
    "SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database"
    " WHERE locktype = 'advisory' AND datname = current_database()"
)


def connected(settings: Settings) -> psycopg.Connection[tuple[object, ...]]:
    url = make_url(settings.database_url).set(drivername="postgresql")
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)


def name_of(settings: Settings) -> str:
    return str(make_url(settings.database_url).database)


def lend_until(template: Template, folder: Path, name: str) -> tuple[Settings | None, ExitStack]:
    """Settings of that database, once it is lent again, or None where it is not."""
    for number in range(RESTING + LENT_AT_MOST):
        (own := folder / f"{name} {number}").mkdir()
        stack = ExitStack()
        settings = stack.enter_context(template.copy(own))
        if name_of(settings) == name:
            return settings, stack
        stack.close()
    return None, ExitStack()


def lend_once(template: Template, folder: Path) -> tuple[Settings, ExitStack]:
    """One of which no test before has left a session."""
    folder.mkdir()
    stack = ExitStack()
    settings = stack.enter_context(template.copy(folder))
    SESSIONS.end(name_of(settings))
    return settings, stack


def test_the_next_one_finds_the_template_s_rows_and_numbers(template: Template, tmp_path: Path) -> None:
    first, stack = lend_once(template, tmp_path / "first")
    with stack, connected(first) as connection:
        accounts = connection.execute(DIGEST.format("accounts")).fetchone()
        roles = connection.execute(DIGEST.format("roles")).fetchone()
        connection.execute("SELECT setval(pg_get_serial_sequence('roles', 'id'), 1000)")
        connection.execute("INSERT INTO marks (name, value, at) VALUES ('left', '1', now())")
        connection.execute("SET session_replication_role = replica")
        connection.execute("DELETE FROM roles")
        connection.execute("UPDATE accounts SET name = 'another'")

    again, stack = lend_until(template, tmp_path, name_of(first))

    assert again is not None
    with stack, connected(again) as connection:
        assert connection.execute(DIGEST.format("accounts")).fetchone() == accounts
        assert connection.execute(DIGEST.format("roles")).fetchone() == roles
        assert connection.execute("SELECT count(*) FROM marks WHERE name = 'left'").fetchone() == (0,)
        number = connection.execute("SELECT nextval(pg_get_serial_sequence('roles', 'id'))").fetchone()
        assert number is not None and int(str(number[0])) < 1000


def test_who_holds_the_address_of_a_test_that_ended_is_refused_and_who_was_in_is_sent_away(
    template: Template, tmp_path: Path
) -> None:
    first, stack = lend_once(template, tmp_path / "first")
    with stack:
        staying = connected(first)

    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        connected(first)
    with pytest.raises(psycopg.OperationalError):
        staying.execute("INSERT INTO marks (name, value, at) VALUES ('late', '1', now())")

    again, stack = lend_until(template, tmp_path, name_of(first))
    assert again is not None
    with stack, pytest.raises(psycopg.OperationalError, match="does not exist"):
        connected(first)


@pytest.mark.parametrize(
    "change",
    [
        "DROP TRIGGER {trigger} ON audit_log",
        "ALTER TABLE audit_log DISABLE TRIGGER {trigger}",
        "CREATE TABLE more (x int)",
        "DROP INDEX {index}",
    ],
)
def test_one_whose_tables_were_changed_is_lent_to_nobody(template: Template, tmp_path: Path, change: str) -> None:
    first, stack = lend_once(template, tmp_path / "first")
    with stack, connected(first) as connection:
        of_log = "SELECT tgname FROM pg_trigger WHERE tgrelid = 'audit_log'::regclass AND NOT tgisinternal"
        index = "SELECT indexname FROM pg_indexes WHERE tablename = 'audit_log' AND indexname NOT LIKE '%%pk%%'"
        trigger_name, index_name = (connection.execute(query).fetchone() for query in (of_log, index))
        assert trigger_name is not None and index_name is not None
        connection.execute(change.format(trigger=trigger_name[0], index=index_name[0]))

    again, _ = lend_until(template, tmp_path, name_of(first))

    assert again is None


def test_a_test_may_end_every_connection(template: Template, tmp_path: Path) -> None:
    first, stack = lend_once(template, tmp_path / "first")
    stack.close()
    again, stack = lend_until(template, tmp_path, name_of(first))
    assert again is not None
    with stack, connected(again) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    more, _ = lend_until(template, tmp_path / "first", name_of(first))

    assert more is None


def test_a_session_that_is_kept_for_the_next_test_has_forgotten_everything(template: Template, tmp_path: Path) -> None:
    first, stack = lend_once(template, tmp_path / "first")
    with stack:
        engine = create_engine(first.database_url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            pid = connection.scalar(text("SELECT pg_backend_pid()"))
            connection.execute(text("SET session_replication_role = replica"))
            connection.execute(text("SET statement_timeout = 1000"))
            connection.execute(text("CREATE TEMPORARY TABLE accounts AS SELECT 1 AS hidden"))
            connection.execute(text("PREPARE mine AS SELECT 1"))
            connection.execute(text("SELECT pg_advisory_lock(7)"))
            connection.execute(text("LISTEN mine"))
        engine.dispose()

    again, stack = lend_until(template, tmp_path, name_of(first))

    assert again is not None
    with stack:
        engine = create_engine(again.database_url)
        stack.callback(engine.dispose)  # also where one of these fails: else a later test is told of its connection
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT pg_backend_pid()")) == pid
            assert connection.scalar(text("SHOW session_replication_role")) == "origin"
            assert connection.scalar(text("SHOW statement_timeout")) == "0"
            assert connection.scalar(text("SELECT count(name) FROM accounts")) == 1
            assert connection.scalar(text("SELECT count(*) FROM pg_prepared_statements WHERE name = 'mine'")) == 0
            assert connection.scalar(text(LOCKS)) == 0
            assert connection.scalar(text("SELECT count(*) FROM pg_listening_channels()")) == 0
        engine.dispose()
        with pytest.raises(OperationalError, match="does not exist"):
            create_engine(first.database_url).connect()


def test_a_session_in_the_middle_of_something_is_not_kept_nor_reached_by_who_had_it(
    template: Template, tmp_path: Path
) -> None:
    first, stack = lend_once(template, tmp_path / "first")
    with stack:
        engine = create_engine(first.database_url)
        with engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, psycopg.Connection)
            connection.execute(text("SELECT 1"))
            SESSIONS.do_close(engine.dialect, raw)  # type: ignore[arg-type]
            assert SESSIONS.pids(name_of(first)) == []
            connection.invalidate()
        with engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert isinstance(raw, psycopg.Connection)
        engine.dispose()
        assert len(SESSIONS.pids(name_of(first))) == 1
        with pytest.raises(psycopg.OperationalError, match="closed"):
            raw.execute("INSERT INTO marks (name, value, at) VALUES ('late', '1', now())")
