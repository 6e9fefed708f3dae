"""A flush that writes only changed rows does it plainly, and leaves what SQLAlchemy's own would have left."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from flask import Flask
from sqlalchemy import delete, event, func, inspect, select
from sqlalchemy.exc import IntegrityError, InvalidRequestError, PendingRollbackError
from sqlalchemy.orm import Session, attributes
from sqlalchemy.orm.exc import StaleDataError

from app.extensions import db, now, writing
from app.models import Agent, Event, Memory, Role, User
from app.models.base import insert_row
from app.plain_rows import make_row, object_of
from tests.support.factories import make_agent, make_user, remember
from tests.test_statement_budgets import counted


def test_only_what_changed_is_written(app: Flask) -> None:
    number = make_agent().id
    with writing():
        agent = Agent.lock(number)
        agent.core_count, agent.journal_count = 7, agent.journal_count
        with counted() as sent:
            db.session.flush()
            db.session.flush()

    assert len(sent) == 1
    assert sent[0].startswith("UPDATE agents SET core_count=")
    assert "journal_count" not in sent[0]
    assert not db.session.dirty


def test_rows_that_change_alike_are_one_statement(app: Flask) -> None:
    ids = remember(make_agent(), "Ann likes tea.", "Bob likes rum.", "Cleo likes ink.")
    with writing() as session, counted() as sent:
        for memory in session.scalars(select(Memory)):
            memory.tags = [f"number {memory.id}"]
        session.flush()

    assert len([each for each in sent if each.startswith("UPDATE")]) == 1
    db.session.expire_all()
    assert [db.session.get_one(Memory, number).tags for number in ids] == [[f"number {number}"] for number in ids]


def test_a_value_that_was_never_read_is_written(app: Flask) -> None:
    number = make_agent().id
    with writing() as session:
        agent = Agent.lock(number)
        session.expire(agent, ["core_count"])
        agent.core_count = 9

    assert db.session.scalar(select(Agent.core_count)) == 9


def test_a_flush_that_is_rolled_back_leaves_nothing(app: Flask) -> None:
    agent = make_agent()
    with pytest.raises(ZeroDivisionError), writing() as session:
        Agent.lock(agent.id).core_count = 9
        session.flush()
        raise ZeroDivisionError

    assert agent.core_count == 0


def test_a_row_that_is_gone_is_an_error(app: Flask) -> None:
    make_agent()
    with writing() as session:
        insert_row(make_row(Event, {"account_id": 1, "kind": "a", "data": {}, "at": now()}))
        found = session.scalars(select(Event)).one()
        session.execute(delete(Event).execution_options(synchronize_session=False))
        found.kind = "other"
        with pytest.raises(StaleDataError):
            session.flush()
        session.rollback()


def test_an_expression_goes_the_long_way(app: Flask) -> None:
    number = make_agent().id
    with writing():
        Agent.lock(number).core_count = func.coalesce(None, 3)
    db.session.expire_all()

    assert db.session.get_one(Agent, number).core_count == 3


def test_a_relationship_goes_the_long_way(app: Flask) -> None:
    user = make_user("ann@example.org")
    with writing() as session:
        session.get_one(User, user.id).roles = [Role(name="none")]
    db.session.expire_all()

    assert [role.name for role in db.session.get_one(User, user.id).roles] == ["none"]


def test_what_listens_to_a_flush_hears_of_this_one_too(app: Flask) -> None:
    number, heard = make_agent().id, []

    def listen(session: Session, *_: object) -> None:
        heard.extend(session.dirty)

    event.listen(Session, "before_flush", listen)
    try:
        with writing():
            Agent.lock(number).core_count = 9
    finally:
        event.remove(Session, "before_flush", listen)
    assert [agent.id for agent in heard] == [number]


def test_the_unit_of_work_is_not_asked(app: Flask) -> None:
    number = make_agent().id
    with patch("sqlalchemy.orm.session.UOWTransaction", side_effect=AssertionError), writing():
        agent = Agent.lock(number)
        agent.core_count = 9
    assert not attributes.instance_state(agent).modified


def test_a_lock_reads_anew_into_the_object_that_is_there(app: Flask) -> None:
    agent = make_agent()
    agent_id = agent.id
    with writing() as session:
        session.connection().exec_driver_sql("UPDATE agents SET core_count = 5")
        locked = Agent.lock(agent_id)
        assert locked is agent
        assert locked.core_count == 5
        assert not session.dirty


def test_a_lock_writes_first_what_was_changed(app: Flask) -> None:
    number = make_agent().id
    with writing():
        Agent.lock(number).core_count = 9
        assert Agent.lock(number).core_count == 9


def test_a_lock_makes_the_object_where_there_is_none(app: Flask) -> None:
    number = make_agent().id
    db.session.remove()
    with writing():
        agent = Agent.lock(number)
        agent.core_count = 9
        assert agent in db.session
        assert agent is db.session.get(Agent, number)

    assert db.session.scalar(select(Agent.core_count)) == 9


def test_a_lock_forgets_what_relationships_had_loaded(app: Flask) -> None:
    user = make_user("ann@example.org", "owner")
    with writing() as session:
        assert len(user.passkeys) == 0
        object_of(session, User, {name: getattr(user, name) for name in User.__table__.columns.keys()})  # noqa: SIM118
        assert "passkeys" not in vars(user)


def test_a_write_transaction_keeps_the_connection_that_it_began_with(app: Flask) -> None:
    with writing() as session:
        began_with = session.connection()
        assert session.connection() is began_with

    assert began_with.closed
    assert session.connection() is not began_with


def test_a_transaction_that_was_rolled_back_writes_nothing_through_the_old_connection(app: Flask) -> None:
    number = make_agent().id
    with writing() as session:
        began_with = session.connection()
        session.rollback()
        assert session.connection() is not began_with

    assert db.session.get_one(Agent, number).core_count == 0


def test_after_a_flush_that_failed_nothing_more_is_sent(app: Flask) -> None:
    with pytest.raises(PendingRollbackError), writing() as session:
        session.add(Agent(name="nobody"))
        with pytest.raises(IntegrityError):
            session.flush()
        session.connection()


def test_after_a_flush_that_failed_in_a_savepoint_nothing_more_is_sent_in_it(app: Flask) -> None:
    with writing() as session:
        with pytest.raises(InvalidRequestError), session.begin_nested():
            session.add(Agent(name="nobody"))
            with pytest.raises(IntegrityError):
                session.flush()
            session.connection()
        assert session.scalar(select(func.count()).select_from(Agent)) == 0


def test_a_row_that_was_made_plainly_has_its_values_and_awaits_nothing(app: Flask) -> None:
    row = make_row(Event, {"account_id": 1, "kind": "a", "data": {}})

    assert (row.account_id, row.kind, row.data) == (1, "a", {})
    assert row not in db.session
    assert not inspect(row).committed_state
