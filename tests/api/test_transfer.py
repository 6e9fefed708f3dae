"""Coming and going at the agents' door: all of an import or nothing, settings only where they hold, and no crown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import func, select

from app.exchange.taking_in import receive_file, take_in
from app.extensions import db
from app.models import COMMAND_LINE, Action, Intake
from tests.api.conftest import Door, open_door
from tests.api.looking import assert_refused, unchanged
from tests.support.factories import remember
from tests.support.rows import entries_of

SETTINGS = {
    "system_prompt": "I am Ezra.",
    "refinement_prompt": None,
    "refinement_threshold": "0.9000",
    "recall_probes": 4,
    "max_confirmed_losses": 0,
    "second_reader_action": "reverse",
}


def bundle(*contents: str, settings: dict[str, Any] | None = None, **more: Any) -> str:
    memories = [{"content": each, "type": "core", **more} for each in contents]
    return json.dumps({"format": "whetstone-bundle/1", "settings": settings or {}, "memories": memories})


def bring(door: Door, data: str, **more: Any) -> Any:
    answer = door("POST", "/imports", {"data": data, **more})
    assert answer.status_code == 202, answer.text
    return answer.json


def without_dates(said: Any) -> Any:
    return {name: value for name, value in said.items() if name not in ("exported_at", "agent")}


def test_what_an_agent_takes_along_comes_back_to_the_letter(app: Flask, client: FlaskClient, door: Door) -> None:
    remember(door.agent, "Ann likes tea.\r\n\u2028 🦉", "Bob moved to Oslo.", tags=["audio", "vow"])
    door.save("It rained.", "journal")
    for field, value in SETTINGS.items():
        if value is not None:
            assert door("PUT", f"/settings/{field}", {"value": value}).status_code == 200
    taken = door("GET", "/export")
    assert "attachment" in taken.headers["Content-Disposition"]

    other = open_door(client, "wren")
    told = bring(other, taken.text, with_settings=True)
    take_in(told["id"])

    assert without_dates(other("GET", "/export").json) == without_dates(taken.json)
    ended = other.get(f"/imports/{told['id']}")
    assert (ended["status"], ended["memories"], ended["error"]) == ("taken", 3, None)
    assert [each["content"] for each in other.get("/context")["core"]] == [
        each["content"] for each in door.get("/context")["core"]
    ]


def test_an_agent_without_memories_brings_its_settings_along(app: Flask, client: FlaskClient, door: Door) -> None:
    assert door("PUT", "/settings/system_prompt", {"value": "I am Ezra."}).status_code == 200
    other = open_door(client, "wren")

    told = bring(other, door("GET", "/export").text, with_settings=True)
    take_in(told["id"])

    assert without_dates(other("GET", "/export").json) == without_dates(door("GET", "/export").json)
    ended = other.get(f"/imports/{told['id']}")
    assert (ended["status"], ended["memories"], ended["duplicates"]) == ("taken", 0, 0)
    assert entries_of(other.agent, Action.IMPORT) == []


def test_what_is_brought_in_twice_is_there_once(app: Flask, door: Door) -> None:
    door.save("It rained.", "journal")
    remember(door.agent, "Ann likes tea.", "Bob moved to Oslo.")
    taken = door("GET", "/export").json

    again = bring(door, json.dumps(taken))
    take_in(again["id"])

    assert without_dates(door("GET", "/export").json) == without_dates(taken)
    ended = door.get(f"/imports/{again['id']}")
    assert (ended["status"], ended["memories"], ended["duplicates"]) == ("taken", 0, 3)
    take_in(bring(door, bundle("Ann likes tea.", "Cy left."))["id"])
    assert [each["content"] for each in door.get("/context")["core"]][2:] == ["Cy left."]


def test_a_bundle_that_holds_duplicates_comes_back_with_them_and_no_more_of_them(
    app: Flask, client: FlaskClient, door: Door
) -> None:
    remember(door.agent, "Ann likes tea.", "Ann likes tea.", "Bob moved to Oslo.")
    taken, other = door("GET", "/export").text, open_door(client, "wren")

    for new, had in ((3, 0), (0, 3)):
        told = bring(other, taken)
        take_in(told["id"])
        ended = other.get(f"/imports/{told['id']}")
        assert (ended["memories"], ended["duplicates"]) == (new, had)
        assert other("GET", "/export").json["memories"] == json.loads(taken)["memories"]
    third = open_door(client, "rook")
    take_in(bring(third, json.dumps(json.loads(taken) | {"memories": json.loads(taken)["memories"][:1]}))["id"])
    told = bring(third, taken)
    take_in(told["id"])
    assert (third.get(f"/imports/{told['id']}")["memories"], len(third.get("/memories")["memories"])) == (2, 3)


def test_a_journal_entry_of_another_day_is_another_one(app: Flask, door: Door) -> None:
    for day, new in (("2026-11-01", 1), ("2026-11-02", 1), ("2026-11-01", 0)):
        told = bring(door, bundle("It rained.", created_at=f"{day}T08:00:00Z").replace('"core"', '"journal"'))
        take_in(told["id"])
        assert door.get(f"/imports/{told['id']}")["memories"] == new


def test_what_an_admin_brings_in_is_written_as_it_stands(app: Flask, door: Door) -> None:
    for _ in range(2):
        take_in(receive_file(door.agent.id, bundle("Ann likes tea.").encode(), by=COMMAND_LINE).intake_id)
    assert len(door.get("/memories")["memories"]) == 2


def test_settings_stay_as_they_are_unless_asked_for(app: Flask, door: Door) -> None:
    told = bring(door, bundle("Mine.", settings=SETTINGS))
    assert told["settings"] == []
    assert door.get("/settings/system_prompt")["is_default"]
    told = bring(door, bundle("Mine too.", settings=SETTINGS), with_settings=True)
    assert sorted(told["settings"]) == sorted(SETTINGS)
    assert door.get("/settings/refinement_threshold")["value"] == 0.9
    assert all(entry.actor == "agent:ezra" for entry in entries_of(door.agent, Action.AGENT_SETTINGS_UPDATE))


@pytest.mark.parametrize(
    "wanted",
    [
        {"refinement_threshold": "0.2"},
        {"refinement_threshold": "NaN"},
        {"refinement_prompt": "x" * 10_001},
        {"system_prompt": " "},
        {"system_prompt": "fine", "refinement_threshold": "7"},
        {"recall_probes": 11},
        {"max_confirmed_losses": 4},
        {"max_confirmed_losses": 1.5},
        {"second_reader_action": "undo"},
        {"second_reader_model": "openai/judge"},
        {"name": "another"},
        {"model_id": "openai/x"},
        {"system_prompt": 7},
    ],
)
def test_a_setting_that_can_not_be_keeps_all_of_it_out(door: Door, wanted: dict[str, Any]) -> None:
    """The memories, too: what was refused can be mended and sent again without a second copy of anything."""
    for more in ({}, {"headers": {"Idempotency-Key": "one"}}):
        said = {"data": bundle("Mine.", settings=wanted), "with_settings": True}
        answer = unchanged(lambda said=said, more=more: door("POST", "/imports", said, **more))
        assert answer.status_code == 422, answer.text
    assert db.session.scalar(select(func.count()).select_from(Intake)) == 0


def test_no_file_of_an_agent_makes_anything_constitutional(app: Flask, door: Door) -> None:
    for data, form in (
        (bundle("A crown.", constitutional=True), "bundle"),
        (json.dumps({"content": "Another crown.", "constitutional": True}), "jsonl"),
    ):
        take_in(bring(door, data, format=form)["id"])
    found = door.get("/memories")["memories"]
    assert len(found) == 2
    assert not any(each["constitutional"] for each in found)


def test_one_line_that_can_not_be_keeps_all_others_out(app: Flask, door: Door) -> None:
    lines = '{"content": "Ann likes tea."}\n{"content": ""}\n{"content": "Bob."}'
    answer = unchanged(lambda: door("POST", "/imports", {"data": lines, "format": "jsonl"}))
    assert answer.status_code == 422
    assert "line 2" in answer.json["detail"]
    assert "Ann" not in answer.text


def test_what_waits_is_no_memory_yet(door: Door) -> None:
    told = bring(door, "Ann likes tea.\nBob moved.", format="text")
    assert (told["status"], told["memories"], told["taken_at"]) == ("waiting", 2, None)
    assert door.get("/memories")["memories"] == []
    assert door.get(f"/imports/{told['id']}")["status"] == "waiting"


@pytest.mark.parametrize("body", [{}, {"data": ""}, {"data": "x", "format": "csv"}, {"data": "x", "with_settings": 1}])
def test_an_odd_import_is_refused(door: Door, body: dict[str, Any]) -> None:
    assert_refused(unchanged(lambda: door("POST", "/imports", body)), 422, "invalid")
