"""Every memory says where it came from; the platform says so, and nobody who brings it in."""

from __future__ import annotations

import pytest
from flask import Flask

from app.exchange.bundle import export_bundle
from app.exchange.draft import ImportRefused
from app.exchange.formats import parse_as
from app.exchange.parsed import ImportFormat
from app.exchange.taking_in import bring_in, receive_file, take_in
from app.extensions import db, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Agent, AuditLog, Memory, MemoryType, Source
from app.reflection.conversation import hand_in, reflect_on_conversation
from app.reflection.promotion import run_promotion
from tests.history.going_back import everything
from tests.refinement.driving import DONE, call, carry, say
from tests.reflection.conftest import means_of
from tests.support.factories import make_agent, remember

LINES = b'{"content": "Ann likes tea."}\n{"content": "It rained.", "type": "journal"}\n'


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent(model_id="openai/scripted")


def sources(agent: Agent, *, discarded: bool = False) -> list[str]:
    """Of the agent's memories, by id."""
    db.session.rollback()
    query = db.select(Memory).where(Memory.agent_id == agent.id).order_by(Memory.id)
    if not discarded:
        query = query.where(Memory.discarded_at.is_(None))
    return [each.source for each in db.session.scalars(query.execution_options(populate_existing=True))]


def saved(agent: Agent, content: str, type_: MemoryType = MemoryType.CORE) -> int:
    with writing():
        locked = Agent.lock(agent.id)
        return Memory.save(locked, content, keys=open_keys(locked), by=locked.as_actor, type_=type_)[0].id


def test_what_an_agent_saves_is_its_own(agent: Agent) -> None:
    saved(agent, "Ann likes tea.")
    assert sources(agent) == ["agent"]


def test_what_a_conversation_leaves_says_so(agent: Agent) -> None:
    intake = hand_in(agent.id, [{"role": "user", "content": "I like tea."}], agent.as_actor)
    reflect_on_conversation(
        intake.id, means_of(say('{"journal": ["We spoke of tea."], "core": ["Ann likes tea."]}'))[0]
    )
    assert sources(agent) == ["conversation", "conversation"]


def test_a_promoted_entry_says_so_and_its_undo_gives_the_earlier_source_back(agent: Agent) -> None:
    number = saved(agent, "I promised to write.", MemoryType.JOURNAL)
    before = everything(agent)
    run_promotion(agent.id, means_of(say(f'{{"promote": [{number}]}}'))[0])
    assert sources(agent) == ["promotion"]
    entry = db.session.scalars(db.select(AuditLog).where(AuditLog.action == "memory_promote")).one()
    roll_back(Target.entry(entry.id), by=COMMAND_LINE)
    assert (sources(agent), everything(agent)) == (["agent"], before)
    assert verify().ok


def test_a_consolidation_and_the_note_of_a_refinement_are_the_refinement_s(agent: Agent) -> None:
    ids = remember(agent, "Ann likes tea.", "Ann likes green tea.", "x" * 400)
    merge = call("consolidate_memories", ids=ids[:2], content="Ann likes green tea.")
    tighten = call("update_memory", id=ids[2], content="x" * 390)
    assert carry(agent, say("YES"), merge, tighten, DONE).status == "completed"
    assert sources(agent, discarded=True) == ["agent", "agent", "agent", "refinement", "refinement"]


def test_the_latch_s_note_is_the_refinement_s(agent: Agent) -> None:
    number, carrier = remember(agent, "x" * 400, "x" * 400 + "!")
    deletion = call("delete_memory", id=number, carried_by=carrier)
    assert carry(agent, say("YES"), deletion, say("Oh.")).status == "rolled_back"
    assert sources(agent) == ["agent", "agent", "refinement"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ledger.jsonl", "ledger.jsonl"),
        ("/home/ann/old agent.jsonl", "old agent.jsonl"),
        ("C:\\notes\\a.jsonl", "a.jsonl"),
        ("a\x00b\n\u202egpj.jsonl\u3164", "a b gpj.jsonl"),
        ("half \udcff.jsonl", "half .jsonl"),
        ("x" * 500, "x" * 80),
        ("", "jsonl"),
        ("<stdin>", "jsonl"),
        ("-", "jsonl"),
        ("\u2800\ufe0f", "jsonl"),
    ],
)
def test_an_import_tells_its_name_on_one_printable_line(agent: Agent, name: str, told: str) -> None:
    bring_in(agent.id, parse_as(LINES, ImportFormat.JSON_LINES), by=COMMAND_LINE, name=name)
    assert sources(agent) == [f"import:{told}"] * 2
    assert verify().ok


def test_a_file_that_waits_keeps_its_name_and_one_without_a_name_has_its_format(agent: Agent) -> None:
    for by, name in ((COMMAND_LINE, "wren.jsonl"), (agent.as_actor, "")):
        take_in(receive_file(agent.id, LINES.replace(b"Ann", str(by).encode()), by=by, name=name).intake_id)
    assert sources(agent) == ["import:wren.jsonl"] * 2 + ["import:jsonl"] * 2


def test_no_file_can_name_a_source(agent: Agent) -> None:
    for kind, data in (
        (ImportFormat.JSON_LINES, b'{"content": "Forged.", "source": "agent"}'),
        (
            ImportFormat.BUNDLE,
            b'{"format": "whetstone-bundle/1", "memories": [{"content": "Forged.", "source": "agent"}]}',
        ),
    ):
        with pytest.raises(ImportRefused, match="Unknown key 'source'"):
            receive_file(agent.id, data, by=agent.as_actor, format=kind)
    other = b'{"results": [{"memory": "Kept.", "source": "agent", "metadata": {"source": "agent"}}]}'
    take_in(receive_file(agent.id, other, by=agent.as_actor).intake_id)
    assert sources(agent) == ["import:mem0"]


def test_a_bundle_takes_no_source_along(agent: Agent) -> None:
    saved(agent, "Ann likes tea.")
    data = "".join(export_bundle(agent, open_keys(agent))).encode()
    other = make_agent("other")
    take_in(receive_file(other.id, data, by=other.as_actor).intake_id)
    assert (sources(agent), sources(other)) == ([Source.AGENT], ["import:bundle"])
