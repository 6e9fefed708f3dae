"""Coming and going at the agents' door: all of an import or nothing, settings only where they hold, and no crown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import func, select

from app.exchange.taking_in import take_in
from app.extensions import db
from app.models import Action, Intake
from tests.api.conftest import Door, open_door
from tests.api.looking import assert_refused, entries, unchanged
from tests.support.factories import remember

SETTINGS = {"system_prompt": "I am Ezra.", "refinement_prompt": None, "refinement_threshold": "0.9000"}


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


def test_settings_stay_as_they_are_unless_asked_for(app: Flask, door: Door) -> None:
    told = bring(door, bundle("Mine.", settings=SETTINGS))
    assert told["settings"] == []
    assert door.get("/settings/system_prompt")["is_default"]
    told = bring(door, bundle("Mine too.", settings=SETTINGS), with_settings=True)
    assert sorted(told["settings"]) == sorted(SETTINGS)
    assert door.get("/settings/refinement_threshold")["value"] == 0.9
    assert all(entry.actor == "agent:ezra" for entry in entries(door.agent, Action.AGENT_SETTINGS_UPDATE))


@pytest.mark.parametrize(
    "wanted",
    [
        {"refinement_threshold": "0.2"},
        {"refinement_threshold": "NaN"},
        {"refinement_prompt": "x" * 10_001},
        {"system_prompt": " "},
        {"system_prompt": "fine", "refinement_threshold": "7"},
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
