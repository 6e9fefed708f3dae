"""Every column of every audited table: whoever edits one in the database is found out, or a reason stands here why not.

A column that somebody adds is swept too, without a word here: so it has to be said in the log, or named with a reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import JSON, Boolean, Column, Connection, DateTime, Integer, LargeBinary, Table, TypeDecorator, text

from app.asking.replies import ConsentAnswer
from app.extensions import db, writing
from app.grants import opening
from app.grants.request import decide_grant, request_access
from app.history.chain import Difference
from app.history.rows import _LatestValues, check_strayed_rows
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.tokens import issue_token, revoke_token
from app.models import (
    COMMAND_LINE,
    Account,
    Action,
    Actor,
    ActorKind,
    Agent,
    AgentToken,
    AuditLog,
    ChannelType,
    NoticeChannel,
    OneTimeLink,
    Passkey,
    TokenRequest,
    Trigger,
    User,
    record,
)
from app.models.logged import Logged, logged_models
from app.models.user import ADMIN
from app.refinement.start import request_stop, start_refinement
from app.tokens.request import decide_token_request
from tests.authoring.conftest import declines
from tests.grants.conftest import WISH
from tests.refinement.driving import call, carry, say
from tests.support import life
from tests.support.clock import FakeClock
from tests.support.databases import SERVER
from tests.support.factories import HOME, begin, make_agent, make_user, remember, toggle
from tests.support.tampering import as_owner, entries, found, hash_anew, tamper
from tests.views.site import NOBODY

LONG_RUN = bool(os.environ.get("WHETSTONE_LONG"))
"""Each column in the first and in the last row."""

LOGGED = {model.__tablename__: model for model in logged_models()}

NOT_AUDITED = {
    **{table: dict(model.NOT_AUDITED) for table, model in LOGGED.items()},
    "memories": {},
    "memory_states": {},
    "memory_texts": {"content_hash": "the seal covers it, and what dedup takes for equal is opened first"},
    "content_keys": {"sealed": "it opens by its own seal or not at all"},
    "rollbacks": {},
    "attention_items": {"id": "nothing but the entries that mark it seen names it"},
    "human_acts": {"id": "nothing names it; the act is found by its entry"},
    "roles_users": {},
    "roles": {
        "id": "users are compared by the names of their roles",
        "description": "no rule reads it",
        "permissions": "no rule reads it: what a role may is in the code",
        "update_datetime": "no rule reads it",
    },
}
"""By audited table: columns that no rule needs, with the reason."""

UNAUDITED = {
    "alembic_version": "the version of the tables",
    "asked_losses": "what they count is proved by the entry of the refinement's end (tests/refinement/test_losses.py)",
    "agent_keys": "each is used only with its statement in the log of statements (tests/adversaries)",
    "audit_log": "the log itself, proved by its hashes (test_tampering.py)",
    "events": "announcements, removed after 90 days",
    "idempotency_keys": "answers of a day, sealed",
    "log_leaves": "the log of statements, proved by its own tree against the copy outside of the database",
    "intakes": "what waits for a worker, sealed; what is taken in is logged",
    "marks": "what this installation remembers about its own work",
    "master_keys": "the files of the keys are the truth, and the log of statements",
    "model_calls": "what calls of models cost: telemetry, removed after 400 days",
    "model_tests": "what came of the newest test of a model: telemetry, replaced by the next",
    "notices": "messages on their way to people, removed after 90 days",
    "notice_attempts": "how their delivery went, removed after 90 days",
    "recall_probes": "what an agent asked itself, sealed, and removed with the memory: the score is logged",
    "second_reading_words": "what a second reader said, sealed, and removed with a memory: what it flagged is logged",
    "user_sessions": "who is signed in where: each sign-in, visit and end is an entry, and a cookie is signed besides",
    "signed_requests": "what waits to be stated: each is signed, and its row is compared with what was signed",
    "setting_proposals": "texts that wait; what becomes of them is a change of settings, which is logged",
}
"""Tables of which the log does not speak, with the reason."""


@pytest.fixture
def agent(app: Flask, clock: FakeClock) -> Agent:
    """With all that rows can say: consents and notes, looks, tokens, people, undone, reversed and open refinements."""
    lived = life.live()
    made, ann = lived.agent, make_user("ann@example.org", ADMIN)
    clock.advance(days=2)
    with writing():
        Agent.lock(made.id).change(by=COMMAND_LINE, refinement_threshold="0.75")
    noted = call("complete_refinement", summary="All is well.", note_to_admins="Nothing to do.")
    assert carry(made, say("YES. Fine.\nTo admins: mind the stone."), noted).status == "completed"
    _look(made, ann)
    declines(made, ann, "No, I keep what I like.")
    with writing():
        locked = Agent.lock(made.id)
        issue_token(locked, by=COMMAND_LINE, name="second", scopes=["read"])
        db.session.flush()
        public_id = db.session.scalars(db.select(AgentToken.public_id).order_by(AgentToken.id)).first()
        assert public_id is not None
        revoke_token(locked, public_id, by=COMMAND_LINE)
        asked, _ = TokenRequest.make(locked, ann, name="laptop", scopes=["read"], by=ann.actor, replaces="0" * 16)
    said = ConsentAnswer(granted=False, words="Not to a laptop.")
    decide_token_request(asked.id, said, agent_id=made.id, by=made.as_actor, keys=open_keys(made))
    with writing():
        issue_token(Agent.lock(made.id), by=COMMAND_LINE, name="third")
    with writing():
        OneTimeLink.invite(Account.lock(HOME), "cy@example.org", ADMIN, by=ann.actor)
    with writing():
        home = Account.lock(made.account_id)
        held = Passkey(credential_id="AAAA", public_key=b"a key", host="localhost", name="phone", sign_count=1)
        User.of_account(home, ann.id).add_passkey(home, held, digests=["one", "two"])
    flagged, changed = remember(made, "One that is toggled.", "One that is changed.")
    toggle(made, flagged)
    with writing():
        home = Account.lock(made.account_id)
        told = {"name": "Ann", "shown": "ann@example.org", "kinds": ["failed", "latch"]}
        NoticeChannel.create(home, ChannelType.EMAIL, by=ann.actor, **told).record_creation(home, by=ann.actor)
    request_stop(start_refinement(made.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id, by=ann.actor)
    run = begin(made)
    assert run.tool.execute("update", id=changed, content="One that is changed!")["type"] == "updated"
    db.session.rollback()
    verdict = verify()
    assert verdict.ok, verdict.first_problem
    db.session.expunge_all()
    return made


def _look(agent: Agent, user: User) -> None:
    """An exception that was asked for, granted, used, and run out of words to say."""
    grant = request_access(agent.id, WISH, for_user=user, by=user.actor)
    decision = ConsentAnswer(True, "Yes, do look.", "Look well.")
    decide_grant(grant.id, decision, agent_id=agent.id, by=Actor(ActorKind.AGENT, agent.name), keys=open_keys(agent))
    look = opening.look(grant, user)
    opening.answer_view(look.view_id)
    opening.fetch_view(look)


def table_of(name: str) -> Table:
    return db.metadata.tables[name]


def test_every_table_is_swept_or_has_a_reason() -> None:
    assert set(NOT_AUDITED) | (set(UNAUDITED) - {"alembic_version"}) == set(db.metadata.tables)
    assert not set(NOT_AUDITED) & set(UNAUDITED)
    for table, columns in NOT_AUDITED.items():
        assert set(columns) <= set(table_of(table).columns.keys()), table


def _parts_of(names: Iterable[str], count: int) -> list[list[str]]:
    """Some tables a test: what they need to hold takes longer to live through than to look at."""
    return [sorted(names)[first::count] for first in range(count)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", _parts_of(NOT_AUDITED, 4), ids=",".join)
def test_an_edit_of_any_column_is_found_and_named(agent: Agent, names: list[str]) -> None:
    missed, unnamed = list[str](), list[str]()
    for table in map(table_of, names):
        for column, edited in _each_edited(table):
            verdict = verify()
            if verdict.ok:
                missed.append(f"{column} of row {edited}")
            elif table.name in LOGGED and not _is_named(
                LOGGED[table.name], column.name, str(verdict.first_problem), edited
            ):
                unnamed.append(f"{column}: {verdict.first_problem}")
    assert missed == []
    assert unnamed == []
    verdict = verify()
    assert verdict.ok, verdict.first_problem


def _is_named(model: type[Logged], column: str, sentence: str, key: str) -> bool:
    """Where the row keeps its key and its owner, the sentence names the row and the column."""
    owners = {"agent_id", "account_id", "grant_id", "refinement_id", "settings_request_id"}
    names_other = column in {model.LOG_KEY, "id", "status"} | owners
    return names_other or column in model.CHECKED_ELSEWHERE or column in sentence or key in sentence


def _each_edited(table: Table) -> Iterator[tuple[Column[Any], str]]:
    """Each audited column with another value, in turn in the first and the last row, of refinements those that ended.

    Then all is as it was.
    """
    keys = [each.name for each in table.primary_key.columns] or [each.name for each in table.columns]
    ended = " WHERE ended_at IS NOT NULL" if table.name == "refinements" else ""
    with _quietly() as connection:
        connection.execute(text(f"CREATE TABLE kept AS SELECT * FROM {table.name}"))
        rows = [dict(row) for row in connection.execute(text(f"SELECT * FROM {table.name}{ended}")).mappings()]
    where = " AND ".join(f"{name} = :key_{name}" for name in keys)
    swept = [each for each in table.columns if each.name not in NOT_AUDITED[table.name]]
    for number, column in enumerate(swept):
        for row in (rows[0], rows[-1])[: len(rows)] if LONG_RUN else (rows[-(number % 2)],):
            place = {f"key_{name}": row[name] for name in keys}
            with _quietly() as connection:
                _put_back(connection, table)
                change = f"UPDATE {table.name} SET {column.name} = {_other(column)} WHERE {where}"
                assert connection.execute(text(change), place | _values(connection, column)).rowcount == 1
            yield column, str(row.get("id", ""))
    with _quietly() as connection:
        _put_back(connection, table)
        connection.execute(text("DROP TABLE kept"))


def _put_back(connection: Connection, table: Table) -> None:
    connection.execute(text(f"DELETE FROM {table.name}"))
    connection.execute(text(f"INSERT INTO {table.name} SELECT * FROM kept"))


@contextmanager
def _quietly() -> Iterator[Connection]:
    with as_owner() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA ignore_check_constraints=ON")
        yield connection
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA ignore_check_constraints=OFF")


def _other(column: Column[Any]) -> str:
    """An SQL value that is another one than the column has, of its type and size."""
    name = column.name
    type_ = column.type.impl if isinstance(column.type, TypeDecorator) else column.type
    if isinstance(type_, Boolean):
        return f"NOT {name}"
    if isinstance(type_, Integer):
        away = "1000" if column.primary_key or column.foreign_keys else "0"
        less = f"CASE WHEN coalesce({name}, 0) > 0 THEN {name} - 1 ELSE 1 END"
        return f"coalesce({name}, 0) + {away}" if away != "0" else less
    if isinstance(type_, JSON):
        listed, named = ("CAST(:list AS json)", "CAST(:dict AS json)") if SERVER else (":list", ":dict")
        return f"CASE WHEN CAST({name} AS TEXT) LIKE '[%' THEN {listed} ELSE {named} END"
    if isinstance(type_, LargeBinary):
        return ":bytes"
    if isinstance(type_, DateTime):
        return ":moment"
    return f"CASE WHEN {name} IS NULL THEN 'y' WHEN {name} LIKE 'y%' THEN 'z' ELSE 'y' || substr({name}, 2) END"


def _values(connection: Connection, column: Column[Any]) -> dict[str, Any]:
    wanted = _other(column)
    sqlite = connection.dialect.name == "sqlite"
    values = {
        "bytes": b"\x07" * 32,
        "moment": "2026-01-01 00:00:00.000000" + ("" if sqlite else "+00"),
        "list": '["other"]',
        "dict": '{"other": 1}',
    }
    return {name: value for name, value in values.items() if f":{name}" in wanted}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("names", _parts_of(LOGGED, 3), ids=",".join)
def test_a_row_that_no_entry_explains_and_an_entry_whose_row_is_gone_are_found(agent: Agent, names: list[str]) -> None:
    for name in names:
        _check_added_and_removed_rows(name)


def _check_added_and_removed_rows(name: str) -> None:
    model, table = LOGGED[name], table_of(name)
    own = {"id", model.LOG_KEY, *(column.name for column in table.columns if column.unique)}
    unlike = {"name", "email", "fs_uniquifier", "fs_webauthn_user_handle", "us_phone_number"} | own
    put = ", ".join(
        _other(column) if column.name in unlike else column.name
        for column in table.columns
        if not column.nullable or column.name not in unlike
    )
    columns = ", ".join(c.name for c in table.columns if not c.nullable or c.name not in unlike)
    with _quietly() as connection:
        # Of an agent's refinements one may be open, and ids come in any order.
        last = f"(SELECT max(id) FROM {name}{' WHERE ended_at IS NOT NULL' if name == 'refinements' else ''})"
        connection.execute(text(f"CREATE TABLE kept AS SELECT * FROM {name}"))
        numbers = connection.scalars(text("SELECT id FROM kept")).all()
        connection.execute(text(f"INSERT INTO {name} ({columns}) SELECT {put} FROM {name} WHERE id = {last}"))
    inserted = verify()
    removed = []
    for number in numbers:
        with _quietly() as connection:
            connection.execute(text(f"DELETE FROM {name}"))
            connection.execute(text(f"INSERT INTO {name} SELECT * FROM kept WHERE id <> :id"), {"id": number})
        removed.append(verify())
    with _quietly() as connection:
        connection.execute(text(f"DELETE FROM {name}"))
        connection.execute(text(f"INSERT INTO {name} SELECT * FROM kept"))
        connection.execute(text("DROP TABLE kept"))

    assert numbers
    assert (inserted.ok, [each.ok for each in removed], verify().ok) == (False, [False] * len(numbers), True)
    if name not in ("agents", "accounts"):
        assert f"{model.NOUN} " in str(inserted.first_problem)
        for each in removed:
            assert re.search(rf"({model.NOUN}|view) .*its row is gone", str(each.first_problem))


def test_a_row_that_names_what_is_not_there_is_found_whatever_it_names(agent: Agent) -> None:
    """Each reference of each table, one at a time; none while all lead somewhere."""
    check_strayed_rows()
    led_nowhere = set()
    for model in LOGGED.values():
        for key in model.__table__.foreign_keys:
            table, column, other = model.__tablename__, key.parent.name, key.column.table.name
            nowhere = "987654321" if isinstance(key.parent.type, Integer) else f"'{NOBODY}'"
            with _quietly() as connection:
                connection.execute(text(f"CREATE TABLE kept AS SELECT * FROM {table}"))
                first = f"(SELECT min({model.LOG_KEY}) FROM {table})"
                changed = connection.execute(
                    text(f"UPDATE {table} SET {column} = {nowhere} WHERE {model.LOG_KEY} = {first}")
                ).rowcount
            if changed:
                led_nowhere.add(f"{table}.{column}")
                said = f"The {model.NOUN} .+ names a row of {other} that is not there\\."
                with pytest.raises(Difference, match=said):
                    check_strayed_rows()
            with _quietly() as connection:
                connection.execute(text(f"DELETE FROM {table}"))
                connection.execute(text(f"INSERT INTO {table} SELECT * FROM kept"))
                connection.execute(text("DROP TABLE kept"))
    assert len(led_nowhere) > 20, led_nowhere
    check_strayed_rows()


def test_what_was_edited_in_an_attack_is_named_with_its_field_and_its_entry(agent: Agent) -> None:
    for change, sentence in {
        "UPDATE consents SET granted = NOT granted WHERE id = 1": "granted of consent",
        "UPDATE agent_tokens SET scopes = '[\"decide\"]' WHERE id = 2": "scopes of token",
        "UPDATE agent_tokens SET revoked_at = NULL WHERE id = 1": "revoked_at of token",
        "UPDATE refinements SET mass_before = mass_before + 1 WHERE status = 'unfinished'": "mass_before of refinement",
        "UPDATE refinements SET started_at = requested_at, kept_mass = 9 WHERE status = 'completed'": "of refinement",
        "UPDATE agents SET last_attempt_at = NULL": "last_attempt_at of agent",
        "UPDATE users SET active = NOT active WHERE id = 1": "active of user 1",
        "UPDATE users SET password = 'known' WHERE id = 1": "password of user 1",
        "UPDATE roles SET name = 'owners' WHERE name = 'admin'": "roles of user 2",
        "UPDATE access_grants SET minutes = 480": "minutes of exception",
        "UPDATE access_views SET seen = NULL": "of which entry",
    }.items():
        tables = change.split()[1]
        with _quietly() as connection:
            connection.execute(text(f"CREATE TABLE kept AS SELECT * FROM {tables}"))
            assert connection.execute(text(change)).rowcount
        verdict = verify()
        with _quietly() as connection:
            connection.execute(text(f"DELETE FROM {tables}"))
            connection.execute(text(f"INSERT INTO {tables} SELECT * FROM kept"))
            connection.execute(text("DROP TABLE kept"))
        assert sentence in str(verdict.first_problem), change
        assert verdict.entry_id is not None
        assert f"(id {verdict.entry_id})" in str(verdict.first_problem)


def test_an_open_refinement_is_compared_as_far_as_it_can_be(agent: Agent) -> None:
    for change in ("kept_mass = 10 * kept_mass", "cap = 9", "threshold = 1", "mutations = 0", "mode = 'dedup_only'"):
        column = change.split()[0]
        with _quietly() as connection:
            connection.execute(text("CREATE TABLE kept AS SELECT * FROM refinements WHERE status = 'running'"))
            connection.execute(text(f"UPDATE refinements SET {change} WHERE status = 'running'"))
        verdict = verify()
        with _quietly() as connection:
            connection.execute(text("DELETE FROM refinements WHERE status = 'running'"))
            connection.execute(text("INSERT INTO refinements SELECT * FROM kept"))
            connection.execute(text("DROP TABLE kept"))
        assert f"{column} of refinement" in str(verdict.first_problem)


def test_more_rows_than_are_held_are_compared_all_the_same(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_LatestValues, "HELD", 1)
    assert verify().ok
    tamper("UPDATE agent_tokens SET name = 'other' WHERE id = 1")
    assert "name of token" in str(verify().first_problem)


def test_a_setting_changed_from_what_it_never_was_is_found(app: Flask) -> None:
    """Every hash fits: only the replay can tell."""
    agent, number = changed_twice()
    change = "UPDATE audit_log SET data = replace(CAST(data AS TEXT), '0.7000', '0.9000'){} WHERE id = :number"
    cast = "" if db.engine.dialect.name == "sqlite" else "::json"
    assert tamper(change.format(cast), number=number) == 1
    hash_anew(agent)

    said = found("changes refinement_threshold from what entry ", at=len(entries()))
    assert str(said.first_problem).endswith("did not say.")


def changed_twice() -> tuple[Agent, int]:
    """An agent whose threshold changed twice, and the entry of the second change, from 0.7."""
    made = make_agent()
    for threshold in ("0.7", "0.8"):
        with writing():
            Agent.lock(made.id).change(by=COMMAND_LINE, refinement_threshold=threshold)
    number = db.session.scalars(db.select(db.func.max(AuditLog.id))).one()
    db.session.rollback()
    db.session.refresh(made)
    db.session.expunge_all()
    return made, number


def test_what_an_entry_says_of_a_row_is_said_anew_after_another_process_changed_it(app: Flask) -> None:
    """Back to what this process said of it in an earlier transaction: its entry must not leave that out."""
    user_id = make_user("ann@example.org").id

    def set_zone(zone: str) -> None:
        with writing() as session:
            account = Account.lock(HOME)
            session.get_one(User, user_id, populate_existing=True).time_zone = zone
            record(Action.USER_TIME_ZONE, actor=COMMAND_LINE, of=account, subject=f"user:{user_id}", data={})

    def set_in_another(zone: str) -> None:
        with app.app_context():
            set_zone(zone)

    set_zone("Europe/Paris")
    other = Thread(target=set_in_another, args=("Asia/Tokyo",))
    other.start()
    other.join()
    set_zone("Europe/Paris")

    assert verify().ok, verify().first_problem
