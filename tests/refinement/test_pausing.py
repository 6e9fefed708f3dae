"""Many agents paused or resumed by one act: what is written is what one by one would write, in a few statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask
from sqlalchemy import event, select

from app.extensions import db, writing
from app.history.verify import verify
from app.models import COMMAND_LINE, Account, Action, Agent, AuditLog
from app.models.event import Event
from app.refinement.pausing import set_paused, undo_pausing
from tests.support.clock import FakeClock
from tests.support.factories import HOME, make_agent

ACT = "0b0e7f6e-6a0c-4a7e-9a53-8d2e5c1b7f10"
_ENTRY = (AuditLog.action, AuditLog.actor, AuditLog.user_id, AuditLog.refinement_id, AuditLog.said, AuditLog.at)


@contextmanager
def counted_statements() -> Iterator[list[str]]:
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    event.listen(db.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(db.engine, "before_cursor_execute", note)


def newest_entry(agent: Agent) -> tuple[Any, ...]:
    """All but what differs from agent to agent, and whether it is about this one."""
    columns = (*_ENTRY, AuditLog.data, AuditLog.subject == agent.subject, AuditLog.chain == agent.chain)
    query = select(*columns).where(AuditLog.agent_id == agent.id).order_by(AuditLog.id.desc()).limit(1)
    return tuple(db.session.execute(query).one())


def newest_events(count: int) -> list[tuple[Any, ...]]:
    columns = (Event.kind, Event.account_id, Event.refinement_id, Event.data, Event.at)
    return [tuple(row) for row in db.session.execute(select(*columns).order_by(Event.id.desc()).limit(count))]


def test_each_agent_s_entry_and_event_are_what_pausing_it_alone_would_write(app: Flask, clock: FakeClock) -> None:
    alone, *many = [make_agent(name) for name in ("ada", "bea", "cleo")]
    with writing():
        Agent.lock(alone.id).pause(by=COMMAND_LINE, act=ACT)
    (event_alone,) = newest_events(1)
    changed = set_paused(HOME, [agent.id for agent in many], True, by=COMMAND_LINE, act=ACT)

    assert changed == 2
    assert [newest_entry(agent) for agent in many] == [newest_entry(alone)] * 2
    assert newest_events(2) == [event_alone] * 2
    assert {agent.paused for agent in db.session.scalars(select(Agent))} == {True}
    assert verify().ok


def test_the_streams_are_woken_once_with_the_newest_event(app: Flask) -> None:
    agents = [make_agent(f"agent {number}") for number in range(3)]
    woken: list[tuple[int, int]] = []
    app.extensions["wake_streams"] = lambda account_id, event_id: woken.append((account_id, event_id))
    set_paused(HOME, [agent.id for agent in agents], True, by=COMMAND_LINE, act=ACT)

    newest = db.session.scalar(select(Event.id).order_by(Event.id.desc()).limit(1))
    assert woken == [(HOME, newest)]


def test_ten_times_as_many_agents_take_no_more_statements(app: Flask) -> None:
    agents = [make_agent(f"agent {number:02}") for number in range(22)]
    with counted_statements() as few:
        set_paused(HOME, [agent.id for agent in agents[:2]], True, by=COMMAND_LINE, act=ACT)
    with counted_statements() as many:
        set_paused(HOME, [agent.id for agent in agents[2:]], True, by=COMMAND_LINE, act=ACT)

    assert len(many) <= len(few) + 1
    assert undo_pausing(HOME, ACT, by=COMMAND_LINE, new_act="another").changed == 22
    assert verify().ok


def test_nothing_is_written_of_those_that_are_so_already(app: Flask) -> None:
    agent = make_agent("ada")
    set_paused(HOME, [agent.id], True, by=COMMAND_LINE, act=ACT)
    newest = newest_entry(agent)

    assert set_paused(HOME, [agent.id], True, by=COMMAND_LINE, act="another") == 0
    assert newest_entry(agent) == newest
    assert newest[0] == Action.AGENT_PAUSE


def test_agents_of_another_account_stay_as_they_are(app: Flask) -> None:
    with writing():
        elsewhere = Account.create("Next door")
    theirs = make_agent(name="theirs", account_id=elsewhere.id)
    assert set_paused(HOME, [theirs.id], True, by=COMMAND_LINE, act="an-act") == 0
    db.session.expire_all()
    assert not db.session.get_one(Agent, theirs.id).paused
