"""Refinements at the agents' door: asking is consent; one at a time; the result and its words are the agent's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import event, select

from app.asking.calls import Dependencies
from app.extensions import db, writing
from app.history.erasing import erase_memory
from app.models import COMMAND_LINE, Action, Agent, AuditLog, Consent, Mode, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import RestingAfterNo, request_stop, start_refinement
from tests.api.conftest import Door, open_door
from tests.api.looking import assert_refused, unchanged
from tests.api.test_mcp import over_http, speak
from tests.refinement.driving import DONE, call, carry, say
from tests.refinement.reading import TEXTS, choose_reader, run, shorten, want_probes
from tests.support.canary import assert_nowhere_at_rest, canary
from tests.support.clock import FakeClock
from tests.support.factories import remember
from tests.support.pages import serving
from tests.support.rows import entries_of
from tests.support.scripted import ScriptedClient, ScriptedClients

Probed = tuple[Door, list[int], str]


@pytest.fixture
def door(client: FlaskClient) -> Door:
    """Of an agent with something to refine."""
    made = open_door(client, "ezra")
    remember(made.agent, "Ann likes tea with milk.", "Bob moved to Oslo.", "Bob moved to Oslo.")
    return made


def ask(door: Door, **body: Any) -> Any:
    answer = door("POST", "/refinements", body)
    assert answer.status_code == 202, answer.text
    return answer.json


def work(refinement_id: str, *replies: Any) -> ScriptedClient:
    """A worker carries it."""
    client = ScriptedClient(*replies)
    run_refinement(refinement_id, Dependencies(ScriptedClients(client), pause=lambda _: None, monotonic=lambda: 0.0))
    return client


def test_asking_is_consent_and_no_second_question_is_put(app: Flask, door: Door) -> None:
    asked = ask(door)
    assert (asked["status"], asked["mode"], asked["trigger"]) == ("queued", "full", "agent")
    client = work(asked["id"], DONE)

    assert len(client.asked) == 1
    assert client.asked[0].tools
    ended = door.get(f"/refinements/{asked['id']}")
    assert (ended["status"], ended["mutations"], ended["turns"]) == ("completed", 0, 1)
    started = entries_of(door.agent, Action.REFINEMENT_START)[0]
    assert (started.actor, started.data["trigger"]) == ("agent:ezra", "agent")


def test_exact_copies_alone_go_without_any_model(app: Flask, door: Door) -> None:
    asked = ask(door, mode="dedup_only")
    assert work(asked["id"]).asked == []
    ended = door.get(f"/refinements/{asked['id']}")

    assert (ended["status"], ended["stats"]["deduplicated"]) == ("completed", 1)
    assert len(door.get("/memories")["memories"]) == 2


def test_one_runs_at_a_time_and_the_second_is_told_which(door: Door) -> None:
    first = ask(door)["id"]
    answer = unchanged(lambda: door("POST", "/refinements", {}))

    assert_refused(answer, 409, "already_running", first)
    assert answer.json["refinement"] == first
    assert door.get("/me")["open_refinement"] == first


def test_an_admin_s_refinement_counts_as_the_one_too(app: Flask, door: Door) -> None:
    theirs = start_refinement(door.agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE, mode=Mode.FULL).id
    answer = door("POST", "/refinements", {})
    assert_refused(answer, 409, "already_running", theirs)
    assert door.get(f"/refinements/{theirs}")["trigger"] == "admin"


def test_the_rest_after_a_no_binds_others_and_not_the_agent(app: Flask, door: Door, clock: FakeClock) -> None:
    assert carry(door.agent, say("NO. Not today.")).status == "declined"
    clock.advance(hours=1)
    with pytest.raises(RestingAfterNo):
        start_refinement(door.agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)

    asked = ask(door)
    work(asked["id"], DONE)
    assert door.get(f"/refinements/{asked['id']}")["status"] == "completed"


def test_a_paused_agent_may_ask_and_an_inactive_one_may_not(door: Door) -> None:
    with writing():
        Agent.lock(door.agent.id).pause(by=COMMAND_LINE)
    asked = ask(door)["id"]
    request_stop(asked, by=COMMAND_LINE)
    assert door.get(f"/refinements/{asked}")["status"] == "stopped"
    with writing():
        Agent.lock(door.agent.id).change(by=COMMAND_LINE, active=False)
    assert_refused(unchanged(lambda: door("POST", "/refinements", {})), 409, "agent_inactive")


def test_nothing_to_refine_is_said_so(client: FlaskClient) -> None:
    empty = open_door(client, "young")
    empty.save("It rained.", "journal")
    assert_refused(unchanged(lambda: empty("POST", "/refinements", {})), 409, "ledger_empty", "Nothing was started")


@pytest.mark.parametrize("body", [{"mode": "everything"}, {"mode": None}, {"mode": ["full"]}, {"trigger": "admin"}])
def test_an_odd_wish_is_refused(door: Door, body: dict[str, Any]) -> None:
    assert_refused(unchanged(lambda: door("POST", "/refinements", body)), 422, "invalid")


def test_no_body_is_the_usual_wish(door: Door) -> None:
    answer = door("POST", "/refinements")
    assert (answer.status_code, answer.json["mode"]) == (202, "full")


def test_the_summary_is_read_by_the_agent_and_sealed_for_all_others(app: Flask, door: Door) -> None:
    asked = ask(door)["id"]
    work(asked, call("complete_refinement", summary=canary("summary"), note_to_admins="All is well."))

    told = door.get(f"/refinements/{asked}")
    assert (told["summary"], told["note_to_admins"]) == (canary("summary"), "All is well.")
    assert door.get("/refinements")["refinements"] == [told]
    assert_nowhere_at_rest(app)


@pytest.fixture
def read_and_probed(client: FlaskClient) -> Probed:
    """A door, its memories, and a refinement of two groups: one is called lost; of two probes one was answered."""
    door = open_door(client, "wren", model_id="openai/own")
    ids = remember(door.agent, *TEXTS)
    choose_reader(door.agent)
    want_probes(door.agent, 2)
    pairs = ((ids[0], "Where did we promise that?", "in Lisbon"), (ids[3], "Where does she sleep?", "on the piano"))
    probes = [dict(zip(("memory", "question", "answer"), pair, strict=True)) for pair in pairs]
    own = [say(json.dumps({"probes": probes})), shorten(ids[0]), shorten(ids[1], 1), DONE]
    own.append(say(json.dumps({"answers": ["in Lisbon", "nowhere"]})))
    done = run(door.agent, own, [say("1: kept\n2: lost, the old newspapers")])
    assert done.status == "completed"
    return door, ids, done.refinement.id


def test_the_agent_reads_what_the_second_reader_said_and_its_recall_probes(app: Flask, read_and_probed: Probed) -> None:
    door, ids, number = read_and_probed
    told = door.get(f"/refinements/{number}")
    assert told["reader_words"] == [
        {"memory_ids": [ids[0]], "kept": True, "words": None},
        {"memory_ids": [ids[1]], "kept": False, "words": "lost, the old newspapers"},
    ]
    assert told["recall"] == [
        {"memory_id": ids[0], "question": "Where did we promise that?", "answer": "in Lisbon", "kept": True},
        {"memory_id": ids[3], "question": "Where does she sleep?", "answer": "on the piano", "kept": False},
    ]
    assert door.get("/refinements")["refinements"] == [told]


def test_the_tool_says_the_same(web: Flask, read_and_probed: Probed) -> None:
    door, _, number = read_and_probed
    with serving(web) as site:
        asked = {"refinement_id": number}
        result = speak(over_http(site), door.token, lambda client: client.call_tool("get_refinement", asked))
    assert result.structured_content == door.get(f"/refinements/{number}")
    assert len(result.structured_content["recall"]) == 2


def test_no_other_agent_reads_them(client: FlaskClient, read_and_probed: Probed) -> None:
    number = read_and_probed[2]
    other = open_door(client, "crumb")
    assert_refused(other("GET", f"/refinements/{number}"), 404, "not_found")
    assert other.get("/refinements")["refinements"] == []


def test_what_quotes_an_erased_memory_is_gone(app: Flask, read_and_probed: Probed) -> None:
    door, ids, number = read_and_probed
    erase_memory(door.agent.id, ids[0], by=COMMAND_LINE, reason="Gone.")
    answer = door("GET", f"/refinements/{number}")
    assert "newspapers" not in answer.text
    assert "Lisbon" not in answer.text
    assert [(each["kept"], each["words"]) for each in answer.json["reader_words"]] == [(True, None), (False, None)]
    assert [each["memory_id"] for each in answer.json["recall"]] == [ids[3]]


def test_where_nobody_was_asked_nothing_is_looked_for(web: Flask, door: Door, read_and_probed: Probed) -> None:
    asked = ask(door)["id"]
    work(asked, DONE)
    queries: list[str] = []
    with web.app_context():
        event.listen(db.engine, "before_cursor_execute", lambda *given: queries.append(given[2]))
    told = door.get(f"/refinements/{asked}")
    assert (told["reader_words"], told["recall"]) == ([], [])
    assert not [query for query in queries if looks_for_words(query)]

    probed, _, number = read_and_probed
    probed.get(f"/refinements/{number}")
    assert len([query for query in queries if looks_for_words(query)]) == 2


def looks_for_words(query: str) -> bool:
    return "FROM second_reading_words" in query or "FROM recall_probes" in query


def test_the_list_brings_each_once_newest_first_in_pages(app: Flask, door: Door, clock: FakeClock) -> None:
    made = []
    for number in range(7):
        made.insert(0, ask(door, mode="dedup_only")["id"])
        work(made[0])
        clock.advance(minutes=number % 2)  # some of the same moment
    seen: list[str] = []
    before = ""
    while True:
        page = door.get(f"/refinements?limit=3{before}")
        seen += [each["id"] for each in page["refinements"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert len(seen) == len(set(seen)) == 7
    assert set(seen) == set(made)
    moments = [door.get(f"/refinements/{each}")["requested_at"] for each in seen]
    assert moments == sorted(moments, reverse=True)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "before=x", "before=%00", "before=", "after=1"])
def test_a_page_that_can_not_be_is_refused(door: Door, query: str) -> None:
    assert_refused(door("GET", f"/refinements?{query}"), 422, "invalid", query.partition("=")[0])


def test_its_own_threshold_holds_from_the_next_one_on(app: Flask, door: Door) -> None:
    door("PUT", "/settings/refinement_threshold", {"value": 0.95})
    first = ask(door)
    door("DELETE", "/settings/refinement_threshold")
    assert (first["threshold"], door.get(f"/refinements/{first['id']}")["threshold"]) == (0.95, 0.95)
    work(first["id"], DONE)
    assert ask(door)["threshold"] == 0.75


def test_the_request_says_who_asked_and_no_consent_is_written_twice(app: Flask, door: Door) -> None:
    asked = ask(door)["id"]
    work(asked, DONE)
    consents = db.session.scalars(select(Consent).where(Consent.refinement_id == asked)).all()
    assert [each.granted for each in consents] in ([], [True])
    log = db.session.scalars(select(AuditLog).where(AuditLog.refinement_id == asked)).all()
    assert [entry.action for entry in log].count("memory_refinement_end") == 1
