"""A flush that writes only changed rows does it plainly, and leaves what SQLAlchemy's own would have left."""

from __future__ import annotations

from typing import Any
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
from app.models.memory_text import MemoryText
from app.plain_rows import make_row, object_of
from app.silo import Sealed
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


def _new_text(agent_id: int, memory_id: int) -> MemoryText:
    sealed = Sealed(b"sealed")
    return MemoryText(memory_id=memory_id, content_digest=b"d", agent_id=agent_id, sealed=sealed, content_hash=b"h")


def _new_memory(agent_id: int, number: int) -> Memory:
    said = {"type": "core", "content_digest": b"d", "token_estimate": 3, "tags": [], "other_dates": []}
    at = dict.fromkeys(("origin_at", "created_at", "updated_at"), now())
    return Memory(id=number, agent_id=agent_id, source="agent", **said, **at)


def test_new_rows_that_have_their_key_are_written_plainly_behind_those_that_they_name(app: Flask) -> None:
    number = make_agent().id
    with patch("sqlalchemy.orm.session.UOWTransaction", side_effect=AssertionError), writing() as session:
        Agent.lock(number).core_count = 9
        session.add_all([_new_text(number, 7), _new_memory(number, 7), _new_memory(number, 8), _new_text(number, 8)])
        with counted() as sent:
            session.flush()
        memory = session.get(Memory, 7)
        assert not session.new
        assert (memory.version, memory.merges, memory.discarded_at) == (1, 0, None)

    assert [each.split()[:3] for each in sent] == [
        ["INSERT", "INTO", "memories"],
        ["INSERT", "INTO", "memory_texts"],
        ["UPDATE", "agents", "SET"],
    ]
    db.session.expire_all()
    assert [memory.version for memory in db.session.scalars(select(Memory).order_by(Memory.id))] == [1, 1]
    assert {text.sealed.at_rest for text in db.session.scalars(select(MemoryText))} == {b"sealed"}


def test_what_nobody_said_of_a_new_row_is_read_from_the_database_when_it_is_asked(app: Flask) -> None:
    number = make_agent().id
    with writing() as session:
        session.add(memory := _new_memory(number, 7))
        session.flush()
        assert "discarded_at" not in vars(memory)
        assert memory.discarded_at is None


def test_a_new_row_that_is_rolled_back_is_gone(app: Flask) -> None:
    number = make_agent().id
    with pytest.raises(ZeroDivisionError), writing() as session:
        session.add(memory := _new_memory(number, 7))
        session.flush()
        raise ZeroDivisionError

    assert inspect(memory).transient
    assert db.session.get(Memory, 7) is None


def test_a_new_row_changes_like_any_other(app: Flask) -> None:
    number = make_agent().id
    with writing() as session:
        session.add(memory := _new_memory(number, 7))
        session.flush()
        memory.version = 5
        with counted() as sent:
            session.flush()

    assert [each.split("=")[0] for each in sent] == ["UPDATE memories SET version"]
    db.session.expire_all()
    assert db.session.get_one(Memory, 7).version == 5


@pytest.mark.parametrize("missing", ["id", "tags"])
def test_what_the_database_or_python_fills_in_goes_the_long_way(app: Flask, missing: str) -> None:
    number = make_agent().id
    with writing() as session:
        memory = _new_memory(number, 7)
        delattr(memory, missing)
        session.add(memory)

    db.session.expire_all()
    assert db.session.scalars(select(Memory)).one().tags == []


def test_a_row_that_is_there_already_is_an_error(app: Flask) -> None:
    number = make_agent().id
    (taken,) = remember(make_agent("other"), "Ann likes tea.")
    db.session.expunge_all()
    with pytest.raises(IntegrityError), writing() as session:
        session.add(_new_memory(number, taken))


def test_a_row_that_was_read_plainly_is_the_sessions_own_and_its_lists_are_watched(app: Flask) -> None:
    """As after a load, of a new object and of one that is there: what is changed within a list is written."""
    number = make_user("ann@example.org").id
    with writing() as session:
        session.get_one(User, number).mf_recovery_codes = ["one"]
    db.session.remove()
    with writing() as session:
        user = object_of(session, User, _values_of(number))
        assert session.get(User, number) is user
        assert user.roles == []
        assert user.mf_recovery_codes is not None
        user.mf_recovery_codes.append("two")
    with writing() as session:
        assert object_of(session, User, _values_of(number)) is user
        user.mf_recovery_codes.append("three")
    db.session.remove()

    assert db.session.scalar(select(User.mf_recovery_codes).where(User.id == number)) == ["one", "two", "three"]


def _values_of(number: int) -> dict[str, Any]:
    table = User.__table__
    (row,) = db.session.execute(select(table).where(User.id == number)).tuples()
    return dict(zip(table.columns.keys(), row, strict=True))
