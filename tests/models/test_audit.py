"""The recording place: an entry hashes to the same from what was said and from what was stored."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from flask import Flask

from app.extensions import WRITES, db, writing
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Action, Actor, ActorKind, Agent, AuditLog, Memory, MemoryState, Source, record
from tests.refinement.soundness import assert_sound
from tests.support.factories import make_agent, remember


def test_an_origin_in_another_time_zone_hashes_as_it_is_stored(app: Flask) -> None:
    agent = make_agent()
    with writing():
        locked = Agent.lock(agent.id)
        memory = Memory.write(
            locked,
            "Ann likes tea.",
            keys=open_keys(locked),
            source=Source.AGENT,
            origin_at=datetime(2026, 3, 23, 12, 30, 1, 5, timezone(timedelta(hours=5, minutes=30))),
        )
        record(Action.IMPORT, actor=COMMAND_LINE, of=locked, memories=[memory])
    db.session.expire_all()
    assert_sound(app)


def test_odd_data_hashes_as_it_is_stored(app: Flask) -> None:
    agent = make_agent()
    with writing():
        locked = Agent.lock(agent.id)
        data = {"z": 1, "a": ["é", "\u2028", "😀", None, True, 10**15, 0.1], "n": {"b": {}, "a": []}, "": ""}
        record(Action.CREATE, actor=Actor(ActorKind.SYSTEM, "né"), of=locked, subject="x", data=data)
    assert_sound(app)


OTHER = {"user_id": 1, "sequence": 99, "account_id": 99, "agent_id": 99, "data": {"x": 1}, "previous_hash": b"x" * 32}


@pytest.mark.parametrize("column", [*OTHER, "chain", "actor", "actor_kind", "action", "subject", "refinement_id", "at"])
def test_the_hash_covers_everything_that_an_entry_says(app: Flask, column: str) -> None:
    make_agent()
    entry = db.session.scalars(db.select(AuditLog).where(AuditLog.agent_id.is_not(None))).one()
    assert entry.digest([]) == entry.hash
    other = entry.at + timedelta(microseconds=1) if column == "at" else OTHER.get(column, "other")
    db.session.expunge(entry)
    setattr(entry, column, other)
    assert entry.digest([]) != entry.hash


def test_the_hash_covers_the_states_and_their_order(app: Flask) -> None:
    agent = make_agent()
    remember(agent, "Ann likes tea.", "Bob likes rum.")
    entry = db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.CREATE)).one()
    states = list(db.session.scalars(db.select(MemoryState).order_by(MemoryState.memory_id)))
    assert entry.digest(states) == entry.hash
    assert entry.digest(states[::-1]) != entry.hash
    assert entry.digest(states[:1]) != entry.hash
    db.session.expunge_all()
    states[0].kept = 1
    assert entry.digest(states) != entry.hash


def test_an_entry_may_be_given_its_memories_in_any_order(app: Flask) -> None:
    agent = make_agent()
    ids = remember(agent, "Ann likes tea.", "Bob likes rum.", "Cleo likes ink.")
    with writing():
        locked = Agent.lock(agent.id)
        memories = [db.session.get_one(Memory, number) for number in (ids[1], ids[2], ids[0])]
        for memory in memories:
            memory.discard(locked)
        record(Action.DEDUP, actor=COMMAND_LINE, of=locked, memories=memories)
    assert verify().ok


def test_a_damaged_memory_hides_no_other_one_and_is_named_by_verify(app: Flask) -> None:
    agent = make_agent()
    first, second = remember(agent, "Ann likes tea.", "Bob likes rum.")
    db.session.rollback()
    with db.engine.execution_options(**WRITES).begin() as connection:
        damage = db.text("UPDATE memory_texts SET sealed = :none WHERE memory_id = :id")
        connection.execute(damage, {"none": b"", "id": second})
    db.session.expire_all()
    assert [memory.id for memory in db.session.scalars(Memory.active(agent.id))] == [first, second]
    assert f"the text of memory {second} that entry 2 (id 4) wrote is altered" in str(verify().first_problem)


def test_a_change_whose_entry_can_not_be_written_does_not_happen(app: Flask) -> None:
    agent = make_agent()
    with pytest.raises(RuntimeError, match="no entry"), writing():
        locked = Agent.lock(agent.id)
        Memory.write(locked, "Ann likes tea.", keys=open_keys(locked), source=Source.AGENT)
        db.session.flush()
        raise RuntimeError("no entry")
    assert db.session.scalar(db.select(db.func.count(Memory.id))) == 0
    assert_sound(app)
