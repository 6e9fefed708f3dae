"""What comes in is checked where it arrives, sealed, and taken in once by the worker, with what was left out."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.errors import Invalid, NotFound
from app.exchange.draft import ImportRefused
from app.exchange.formats import NotRecognised
from app.exchange.parsed import ImportFormat
from app.exchange.taking_in import receive_file, take_in
from app.extensions import db, writing
from app.keys.agent_keys import open_keys
from app.keys.forgetting import forget_agent
from app.models import COMMAND_LINE, Agent, AuditLog, Event, Intake, IntakeStatus, Memory
from app.models.agent import AgentForgotten
from app.models.intake import CONVERSATION
from tests.exchange.files import CANARY, agent_file, block, bundle, mem0, remembered, written
from tests.support.factories import make_agent

FILES = {
    ImportFormat.JSON_LINES: b'{"content": "Ann."}\n\n{"content": "Bob\xe2\x80\xa8Rum.", "type": "journal"}\n',
    ImportFormat.AGENT_FILE: written(agent_file(block("human", "Ann.", 1), block("bob", "Bob\u2028Rum.", 2))),
    ImportFormat.MEM0: written(mem0(remembered("Ann."), remembered("Bob\u2028Rum."))),
    ImportFormat.TEXT: "\ufeffAnn.\r\nBob\u2028Rum.".encode(),
    ImportFormat.BUNDLE: written(bundle({"content": "Ann."}, {"content": "Bob\u2028Rum."})),
}


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


def row(intake_id: str) -> Intake:
    db.session.rollback()
    return db.session.get_one(Intake, intake_id, populate_existing=True)


def contents(agent: Agent) -> list[str]:
    keys = open_keys(agent)
    return [keys.reveal_memory(each.id, each.content) for each in db.session.scalars(Memory.active(agent.id))]


def count(model: Any) -> int:
    db.session.rollback()
    return db.session.scalar(select(func.count()).select_from(model)) or 0


@pytest.mark.parametrize("kind", list(ImportFormat))
def test_every_format_waits_sealed_and_is_taken_in_as_what_it_was_recognised(agent: Agent, kind: ImportFormat) -> None:
    received = receive_file(agent.id, FILES[kind], by=COMMAND_LINE, name="memories.txt")

    waiting = row(received.intake_id)
    assert (received.parsed.format, received.memories, waiting.format) == (kind, 2, kind)
    assert b"Ann" not in (waiting.sealed or b"")
    take_in(received.intake_id)
    take_in(received.intake_id)
    taken = row(received.intake_id)
    assert (taken.status, taken.imported, taken.sealed) == (IntakeStatus.TAKEN, 2, None)
    assert sorted(contents(agent)) == ["Ann.", "Bob\u2028Rum."]


def test_the_intake_says_what_was_left_out_in_numbers_only(agent: Agent) -> None:
    received = receive_file(agent.id, FILES[ImportFormat.AGENT_FILE], by=COMMAND_LINE)
    take_in(received.intake_id)

    assert row(received.intake_id).outcome == {
        "format": "af",
        "left_out": {"messages": 3, "system_prompts": 1, "tools": 2},
        "duplicates": 0,
        "imported": 2,
        "core": 2,
        "journal": 0,
        "constitutional": 0,
        "core_tokens": 3,
    }


def test_the_worker_drops_the_flags_of_what_an_agent_handed_in(agent: Agent) -> None:
    flagged = b'{"content": "A vow.", "constitutional": true}'
    for by, expected in ((agent.as_actor, 0), (COMMAND_LINE, 1)):
        intake_id = receive_file(agent.id, flagged, by=by, name="x.jsonl").intake_id
        take_in(intake_id)

        outcome = row(intake_id).outcome or {}
        assert outcome["constitutional"] == expected
        assert outcome["left_out"] == ({} if expected else {"constitutional_flags": 1})
    flags = sorted(each.constitutional for each in db.session.scalars(Memory.active(agent.id)))
    assert flags == [False, True]


def test_what_is_refused_leaves_nothing_behind(agent: Agent) -> None:
    before = [count(model) for model in (Intake, Memory, AuditLog, Event)]
    for data, error in (
        (CANARY.encode(), NotRecognised),
        (b'{"content": "' + CANARY.encode(), NotRecognised),
        (written(mem0(remembered(CANARY), remembered(""))), ImportRefused),
        (b"", Invalid),
    ):
        with pytest.raises(error) as refused:
            receive_file(agent.id, data, by=COMMAND_LINE)
        assert CANARY not in refused.value.sentence

    assert [count(model) for model in (Intake, Memory, AuditLog, Event)] == before


def test_a_forgotten_agent_and_one_that_is_not_there_take_nothing_in(agent: Agent) -> None:
    with pytest.raises(NotFound):
        receive_file(agent.id + 99, FILES[ImportFormat.TEXT], by=COMMAND_LINE, format=ImportFormat.TEXT)
    forget_agent(agent.id, by=COMMAND_LINE)

    with pytest.raises(AgentForgotten):
        receive_file(agent.id, FILES[ImportFormat.TEXT], by=COMMAND_LINE, format=ImportFormat.TEXT)

    assert count(Intake) == 0


def test_a_conversation_is_left_to_the_agents_model(agent: Agent) -> None:
    with writing():
        intake_id = Intake.receive(Agent.lock(agent.id), "[]", by=agent.as_actor, kind=CONVERSATION, format=None).id

    take_in(intake_id)

    assert row(intake_id).status == IntakeStatus.WAITING
    assert contents(agent) == []
