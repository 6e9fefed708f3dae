"""An agent's own bundle: out and in again, exactly, but for the flag that an agent never sets itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from flask import Flask

from app.errors import Invalid
from app.exchange import bundle as bundles
from app.exchange.bundle import export_bundle, parse
from app.exchange.draft import Draft
from app.exchange.importing import write_memories
from app.exchange.taking_in import bring_in, check_file, receive_file, take_in
from app.extensions import db, writing
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Agent, Intake, Memory, MemoryType
from tests.exchange.files import CANARY, bundle, written
from tests.support.factories import begin, make_agent, remember

ORDER = ["format", "exported_at", "agent", "settings", "memories"]
SETTINGS = {
    "system_prompt": "You are ezra: »quiet«.\nTwo lines.",
    "reflection_prompt": None,
    "memory_reflection_prompt": "Keep what hurts.",
    "refinement_prompt": None,
    "refinement_threshold": "0.8500",
    "recall_probes": 4,
    "max_confirmed_losses": 0,
    "second_reader_action": "reverse",
}


def exported(agent: Agent) -> Any:
    return json.loads("".join(export_bundle(agent, open_keys(agent))))


def written_drafts(agent: Agent, *drafts: Draft) -> None:
    with writing():
        locked = Agent.lock(agent.id)
        write_memories(locked, drafts, keys=open_keys(locked), by=COMMAND_LINE, name="here")


def make_ezra() -> Agent:
    """With memories of every kind, and one that an update has changed."""
    agent = make_agent("ezra", **SETTINGS)
    old, new = (datetime(2025, 3, 1, 12, 30, 15, micro, tzinfo=UTC) for micro in (123456, 123457))
    written_drafts(
        agent,
        Draft("Second, by a microsecond.", origin_at=new, tags=("ann", "voice")),
        Draft("First.", origin_at=old, constitutional=True),
        Draft('It rained. 🌧 \u2028 \u0001 "quoted" \\ </script>', MemoryType.JOURNAL, origin_at=new),
        Draft("Twice.", origin_at=new),
        Draft("Twice.", origin_at=new),
        Draft("Gone.", origin_at=old),
        Draft("Long. Gone. " + "Long. " * 1498 + "end", origin_at=old),
    )
    running = begin(agent)
    gone = _id_of(agent, "Gone.")
    running.tool.execute("update", id=_id_of(agent, "Twice."), content="Twice!")
    assert running.tool.execute("delete", id=gone, carried_by=gone + 1)["type"] == "deleted"
    return agent


def _id_of(agent: Agent, content: str) -> int:
    keys = open_keys(agent)
    found = db.session.scalars(Memory.active(agent.id)).all()
    db.session.rollback()
    return next(each.id for each in found if keys.reveal_memory(each.id, each.content) == content)


def test_it_holds_the_settings_as_set_and_the_active_memories_oldest_first(app: Flask) -> None:
    said = exported(make_ezra())

    assert list(said) == ORDER
    assert (said["format"], said["agent"], said["exported_at"][-1]) == ("whetstone-bundle/1", {"name": "ezra"}, "Z")
    assert said["settings"] == SETTINGS
    assert [each["content"][:6] for each in said["memories"]] == [
        "First.",
        "Long. ",
        "Second",
        "It rai",
        "Twice!",
        "Twice.",
    ]
    assert said["memories"][0] == {
        "content": "First.",
        "type": "core",
        "created_at": "2025-03-01T12:30:15.123456Z",
        "other_dates": [],
        "constitutional": True,
        "tags": [],
    }


def test_out_in_and_out_again_is_the_same_but_for_name_moment_and_flag(app: Flask) -> None:
    ezra = make_ezra()
    first = "".join(export_bundle(ezra, open_keys(ezra)))
    fresh = make_agent("fresh")

    parsed = parse(first.encode())
    with writing():
        Agent.lock(fresh.id).change(by=fresh.as_actor, **parsed.settings)
    take_in(receive_file(fresh.id, first.encode(), by=fresh.as_actor).intake_id)

    before, after = json.loads(first), exported(fresh)
    assert [each["constitutional"] for each in after["memories"]] == [False] * 6
    assert after["settings"] == before["settings"]
    for each in before["memories"]:
        each["constitutional"] = False
    assert after["memories"] == before["memories"]
    assert verify(db.session.get_one(Agent, fresh.id, populate_existing=True)).ok


def test_the_agents_own_flags_are_dropped_and_counted_and_an_admins_are_kept(app: Flask) -> None:
    agent = make_agent()
    vow = {"content": "A vow.", "constitutional": True}
    for data in (written(bundle(vow, {"content": "Tea."})), b'{"content": "A vow.", "constitutional": true}'):
        mine = check_file(data, by=agent.as_actor)
        admins = check_file(data, by=COMMAND_LINE)

        assert [each.constitutional for each in mine.drafts][:1] == [False]
        assert mine.left_out == {"constitutional_flags": 1}
        assert mine.notes == [
            "Left out: 1 constitutional flag.",
            "Only admins and refinements make a memory constitutional.",
        ]
        assert [each.constitutional for each in admins.drafts][:1] == [True]
        assert admins.left_out == {}


def test_settings_are_not_part_of_an_import_of_memories_and_are_counted(app: Flask) -> None:
    found = check_file(written(bundle({"content": "Tea."}, settings=SETTINGS)), by=COMMAND_LINE)

    assert found.settings == {}
    assert found.left_out == {"settings": 6}


def test_what_changes_while_it_is_read_does_not_change_it(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "BATCH", 1)
    agent = make_agent()
    one, two, three = remember(agent, "One.", "Two.", "Three.")
    pieces = export_bundle(agent, open_keys(agent))
    said = [next(pieces), next(pieces)]

    tool = begin(agent).tool
    assert tool.execute("consolidate", ids=[two, three], content="Two, three")["type"] == "consolidated"
    remember(agent, "Four.")
    said += pieces

    assert [each["content"] for each in json.loads("".join(said))["memories"]] == ["One.", "Two.", "Three."]
    assert [each["content"] for each in exported(agent)["memories"]] == ["One.", "Two, three", "Four."]
    assert one


def test_no_transaction_is_open_between_two_pieces(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "BATCH", 2)
    agent = make_agent()
    remember(agent, *(f"Memory {number}." for number in range(5)))

    for _ in export_bundle(agent, open_keys(agent)):
        assert not db.session().in_transaction()


def test_every_batch_size_reads_every_memory(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent()
    remember(agent, *(f"Memory {number}." for number in range(5)))
    whole = exported(agent)["memories"]

    for size in (1, 2, 4, 5, 6):
        monkeypatch.setattr(bundles, "BATCH", size)
        assert exported(agent)["memories"] == whole


def test_what_a_rollback_brought_back_is_in_it(app: Flask) -> None:
    agent = make_agent(refinement_threshold="1.00")
    first, second = remember(agent, "One.", "One. Two.")
    assert begin(agent).tool.execute("delete", id=first, carried_by=second)["type"] == "refinement_rolled_back"

    assert [each["content"] for each in exported(agent)["memories"]][:2] == ["One.", "One. Two."]


def test_the_soft_deleted_and_other_agents_are_not_in_it(app: Flask) -> None:
    agent, other = make_agent(), make_agent("other")
    first, second = remember(agent, "One.", "One. Two. " * 20 + "End.")
    remember(other, "Not mine.")
    assert begin(agent).tool.execute("delete", id=first, carried_by=second)["type"] == "deleted"

    assert [each["content"] for each in exported(agent)["memories"]] == ["One. Two. " * 20 + "End."]


def test_an_agent_without_memories_takes_its_settings_along(app: Flask) -> None:
    agent = make_agent(system_prompt="You are ezra.")

    said = "".join(export_bundle(agent, open_keys(agent))).encode()

    assert parse(said).settings["system_prompt"] == "You are ezra."
    assert check_file(said, by=agent.as_actor).left_out == {"settings": 1}
    for nothing in (bundle(), bundle() | {"memories": None}):
        assert parse(written(nothing)).drafts == []
    with pytest.raises(Invalid, match="no memories"):
        parse(written({"format": "whetstone-bundle/1"}))


def _with(**fields: object) -> dict[str, Any]:
    return bundle({"content": "Fine."}, **fields)


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (_with(format="whetstone-bundle/2"), "a bundle of another version"),
        (_with(**{CANARY: 1}), "Unknown key (not a plain word)"),
        (_with(memory=[]), "Unknown key 'memory'"),
        (_with(settings={"name": "x"}), "Unknown key 'name'"),
        (_with(settings=[CANARY]), "The settings must be a JSON object."),
        (_with(settings={"system_prompt": 7}), "The system_prompt must be text."),
        (_with(settings={"recall_probes": "4"}), "The recall_probes must be a whole number."),
        (_with(settings={"max_confirmed_losses": True}), "The max_confirmed_losses must be a whole number."),
        (_with(settings={"second_reader_model": "openai/judge"}), "Unknown key 'second_reader_model'"),
        (_with(settings={"system_prompt": CANARY + "\x00"}), "The system_prompt holds a NUL"),
        (_with(memories={CANARY: 1}), "The memories must be a list."),
        (_with(memories=[{"content": "Fine."}, CANARY]), "memory 2: It must be a JSON object"),
        (_with(memories=[{"content": CANARY, "mood": 1}]), "memory 1: Unknown key 'mood'"),
        (_with(memories=[{"content": CANARY, "type": "dream"}]), 'memory 1: The type must be "core" or "journal".'),
        (_with(memories=[{"content": CANARY + "\ud800"}]), "memory 1: The content holds half of a surrogate pair"),
        (_with(memories=[{"content": "A."}] * 20_001), "at most 20,000 memories"),
    ],
)
def test_what_is_no_bundle_of_ours_is_refused_in_words_without_content(bare: Flask, wrong: object, word: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse(written(wrong))

    assert word in refused.value.sentence
    assert CANARY not in refused.value.sentence


def test_a_bundle_that_was_cut_off_is_refused(app: Flask) -> None:
    agent = make_agent()
    remember(agent, "One.", "Two.")
    said = "".join(export_bundle(agent, open_keys(agent))).encode()

    for end in range(0, len(said) - 4, 7):
        with pytest.raises(Invalid):
            parse(said[:end])


def test_it_can_be_written_at_once_with_the_agents_own_keys(app: Flask) -> None:
    agent = make_agent()
    parsed = check_file(written(bundle({"content": "One."})), by=agent.as_actor)

    done = bring_in(agent.id, parsed, by=agent.as_actor, keys=open_keys(agent))

    assert done.imported == 1
    assert _contents(exported(agent)) == ["One."]
    assert db.session.scalars(db.select(Intake)).all() == []


def _contents(said: Any) -> Sequence[str]:
    return [each["content"] for each in said["memories"]]
