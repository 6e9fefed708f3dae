"""Mechanic's exceptions on screen: who may ask, what is said of them, and who sees content, until when."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select
from werkzeug.test import TestResponse

import tasks.grants
from app.extensions import db, writing
from app.grants import endings, opening
from app.grants.request import WantedException, revoke_grant
from app.history.erasing import erase_memory
from app.llm.client import ModelError, ModelErrorKind
from app.models import COMMAND_LINE, AccessGrant, AccessView, Action, Agent, AuditLog, GrantCategory, Memory, User
from app.models.user import ADMIN
from tests.grants.conftest import SECRET, put, reload
from tests.refinement.reading import DONE, TEXTS, choose_reader, run, shorten, want_probes
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, remember
from tests.support.scripted import Scripted, say
from tests.views.conftest import Browser, browser, toast_of

HOSTILE = '<script>alert(1)</script> \u202eneddih\u202c <img src=x onerror=alert(2)> hx-get="/x" tea\u200bpot'
WISH = {"category": "debugging", "purpose": "She repeats herself", "scope": "ledger", "minutes": "15"}


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("wren")
    remember(made, SECRET, "Ann likes tea.", HOSTILE, tags=["home"])
    return made


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is put on the queue: `ask:` or `tell:` and an id."""
    sent: list[str] = []
    monkeypatch.setattr(tasks.grants, "enqueue", lambda grant_id: sent.append(f"ask:{grant_id}"))
    monkeypatch.setattr(tasks.grants, "enqueue_telling", lambda grant_id: sent.append(f"tell:{grant_id}"))
    yield sent


def user_of(person: Browser) -> User:
    assert person.user is not None
    return db.session.get_one(User, person.user.id)


def granted(agent: Agent, person: Browser, *replies: Scripted, refinement_id: str | None = None) -> AccessGrant:
    wish = WantedException(GrantCategory.DEBUGGING, "She repeats herself", 15, refinement_id)
    return put(agent, user_of(person), *(replies or (say("YES"),)), wish=wish)[0]


def refined(agent: Agent) -> str:
    (carrier,) = remember(agent, "Ann likes tea, and milk.")
    run = begin(agent)
    run.tool.execute("update", id=1, content=SECRET.replace("the blue", "a blue"))
    run.tool.execute("delete", id=2, carried_by=carrier)
    run.tool.execute("complete", summary=f"I tidied. {HOSTILE}")
    return run.refinement.id


def run_out(grant: AccessGrant) -> None:
    with writing():
        locked = AccessGrant.lock(grant.id)
        assert locked.expires_at is not None
        locked.expires_at -= timedelta(minutes=16)


def receipts() -> int:
    db.session.rollback()
    query = select(func.count()).select_from(AuditLog).where(AuditLog.action == Action.ACCESS_VIEWED)
    return db.session.scalar(query) or 0


def ids_in_receipts() -> list[list[int]]:
    db.session.rollback()
    query = select(AuditLog).where(AuditLog.action == Action.ACCESS_VIEWED).order_by(AuditLog.id)
    return [entry.data["ids"] for entry in db.session.scalars(query)]


def visible(answer: TestResponse) -> str:
    """The words of the page, as somebody reads them."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


# Asking


def test_a_wish_is_written_down_and_a_worker_is_sent_to_ask(admin: Browser, agent: Agent, queued: list[str]) -> None:
    answer = admin.post(f"/agents/{agent.id}/exceptions", WISH)
    grant = db.session.scalars(select(AccessGrant)).one()

    assert (answer.status_code, answer.headers["Location"]) == (303, f"/exceptions/{grant.id}")
    assert queued == [f"ask:{grant.id}"]
    assert (grant.user_id, grant.purpose, grant.minutes, grant.scope) == (
        user_of(admin).id,
        "She repeats herself",
        15,
        "ledger",
    )
    assert "wren is being asked" in visible(admin.get(f"/exceptions/{grant.id}"))


def test_the_form_says_in_plain_words_what_will_happen(admin: Browser, agent: Agent) -> None:
    words = visible(admin.get(f"/agents/{agent.id}/exceptions/new"))

    for promise in (
        "It may say no, and nobody can overrule that",
        "Every view is recorded",
        "wren is told who read them",
    ):
        assert promise in words
    assert "so it can't consent" in words


def test_a_refinement_s_page_leads_to_the_form_with_its_scope(admin: Browser, auditor: Browser, agent: Agent) -> None:
    number = refined(agent)
    link = f"/agents/{agent.id}/exceptions/new?scope={number}"

    assert link in admin.get(f"/refinements/{number}").text
    assert link not in auditor.get(f"/refinements/{number}").text
    assert f'<option value="{number}" selected>' in admin.get(link).text


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"purpose": "  "}, "The purpose must have 1 to 500 characters"),
        ({"purpose": "x" * 501}, "The purpose must have 1 to 500 characters"),
        ({"minutes": "14"}, "from 15 to 480"),
        ({"minutes": "481"}, "from 15 to 480"),
        ({"minutes": "١٥"}, "from 15 to 480"),
        ({"category": "curiosity"}, "The category must be one of"),
        ({"scope": "00000000-0000-4000-8000-000000000000"}, "has no such refinement"),
    ],
)
def test_what_can_not_be_asked_is_said_at_the_form_with_what_was_typed(
    admin: Browser, agent: Agent, queued: list[str], wrong: dict[str, str], words: str
) -> None:
    answer = admin.post(f"/agents/{agent.id}/exceptions", WISH | {"purpose": "kept as typed"} | wrong)

    assert answer.status_code == 422
    assert words in answer.text
    assert "Nothing was asked." in answer.text
    if "purpose" not in wrong:
        assert "kept as typed</textarea>" in answer.text
    assert (queued, db.session.scalars(select(AccessGrant)).all()) == ([], [])


def test_all_wrong_fields_are_named_at_once(admin: Browser, agent: Agent) -> None:
    answer = admin.post(f"/agents/{agent.id}/exceptions", WISH | {"purpose": "", "minutes": "x"})

    assert answer.text.count('class="field-error"') == 2


def test_rules_are_said_at_the_form_too(admin: Browser, agent: Agent, queued: list[str]) -> None:
    first = granted(agent, admin)
    again = admin.post(f"/agents/{agent.id}/exceptions", WISH)
    assert again.status_code == 422
    assert "is live already" in again.text
    assert f'href="/exceptions/{first.id}">Look at it' in again.text

    other = make_agent("crumb")
    granted(other, admin, say("NO"))
    resting = admin.post(f"/agents/{other.id}/exceptions", WISH)
    assert resting.status_code == 422
    assert "is not asked again before" in resting.text
    assert queued == []


def test_auditors_can_not_ask_and_see_no_button(auditor: Browser, agent: Agent) -> None:
    assert auditor.post(f"/agents/{agent.id}/exceptions", WISH).status_code == 403
    assert auditor.get(f"/agents/{agent.id}/exceptions/new").status_code == 403
    assert "exceptions/new" not in auditor.get(f"/agents/{agent.id}/exceptions").text
    assert db.session.scalars(select(AccessGrant)).all() == []


# How they stand


def test_nothing_yet_is_explained(admin: Browser, auditor: Browser, agent: Agent) -> None:
    for person, path in ((admin, "/exceptions"), (auditor, "/exceptions"), (admin, f"/agents/{agent.id}/exceptions")):
        words = visible(person.get(path))
        assert "No exceptions yet" in words
        assert "Only its YES shows its memories" in words
    assert f"/agents/{agent.id}/exceptions/new" in admin.get(f"/agents/{agent.id}/exceptions").text


def test_the_lists_hold_what_waits_what_is_live_and_what_was(
    admin: Browser, auditor: Browser, agent: Agent, queued: list[str]
) -> None:
    crumb, third, fourth = make_agent("crumb"), make_agent("third"), make_agent("fourth")
    live, no = granted(agent, admin), granted(crumb, admin, say("NO"))
    admin.post(f"/agents/{third.id}/exceptions", WISH)
    over = granted(fourth, admin)
    run_out(over)

    shown = auditor.get("/exceptions.json").json
    assert shown is not None
    assert [each["id"] for each in shown["live"]] == [live.id]
    assert [each["agent"] for each in shown["waiting"]] == ["third"]
    assert {each["id"]: each["status"] for each in shown["ended"]} == {no.id: "denied", over.id: "expired"}
    assert 0 < shown["live"][0]["seconds_left"] <= 900
    of_one = auditor.get(f"/agents/{crumb.id}/exceptions.json").json
    assert of_one is not None
    assert ([each["id"] for each in of_one["ended"]], of_one["live"]) == ([no.id], [])
    assert of_one["resting_until"] is not None
    words = visible(auditor.get("/exceptions"))
    for part in ("Live now", "Waiting for an answer", "Ended", "She repeats herself", "denied", "expired"):
        assert part in words


def test_those_that_have_ended_go_on_by_pages(admin: Browser, agent: Agent, clock: FakeClock) -> None:
    made = []
    for _ in range(23):
        grant = granted(agent, admin)
        revoke_grant(grant.id, by=user_of(admin).actor)
        made.append(grant.id)
        clock.advance(minutes=1)

    first = admin.get("/exceptions.json").json
    assert first is not None
    rest = admin.get(f"/exceptions.json?before={first['next_before']}").json
    assert rest is not None
    assert [each["id"] for each in first["ended"] + rest["ended"]] == made[::-1]
    assert rest["next_before"] is None
    page = admin.get(f"/exceptions?before={first['next_before']}").text
    assert 'id="exceptions-ended-later"' in page
    assert 'id="exceptions-open"' not in page
    assert admin.get("/exceptions.json?before=nonsense").json == first


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (say("NO, not today.\nTo admins: ask me tomorrow"), "wren declined. Nobody was shown anything"),
        (say("YES"), "wren said YES. admin-1@example.org may read this"),
        (
            ModelError(ModelErrorKind.UNAUTHORIZED, "The model refused the key."),
            "wren could not be asked. This does not count as a NO. Nobody was shown anything",
        ),
    ],
)
def test_a_page_says_how_it_stands_and_never_the_agent_s_words(
    admin: Browser, auditor: Browser, agent: Agent, reply: Scripted, words: str
) -> None:
    grant = granted(agent, admin, reply)
    page = auditor.get(f"/exceptions/{grant.id}")

    assert words in visible(page)
    assert "not today" not in page.text
    if grant.status == "failed":
        assert "The model refused the key." in page.text
    if grant.status == "denied":
        assert "ask me tomorrow" in page.text
        assert "It is not asked again before" in visible(page)


def test_silence_expiry_and_revocation_are_told_apart(
    admin: Browser, agent: Agent, clock: FakeClock, queued: list[str]
) -> None:
    admin.post(f"/agents/{agent.id}/exceptions", WISH)
    silent = db.session.scalars(select(AccessGrant)).one()
    clock.advance(hours=72)
    endings.end_what_is_over()
    assert "wren did not answer within 72 hours" in visible(admin.get(f"/exceptions/{silent.id}"))

    clock.advance(hours=24)
    over = granted(agent, admin)
    run_out(over)
    assert "Its time is over. Nobody looked." in visible(admin.get(f"/exceptions/{over.id}"))
    endings.end_what_is_over()
    assert "Its time is over. Nobody looked." in visible(admin.get(f"/exceptions/{over.id}"))

    taken = granted(agent, admin)
    revoke_grant(taken.id, by=user_of(admin).actor)
    assert "It was taken back by admin-1@example.org." in visible(admin.get(f"/exceptions/{taken.id}"))


def test_a_revocation_by_the_system_says_why(admin: Browser, agent: Agent) -> None:
    grant = granted(agent, admin)
    with writing():
        Agent.lock(agent.id).change(by=user_of(admin).actor, model_id="openai/other")

    said = admin.get(f"/exceptions/{grant.id}.json").json
    assert said is not None
    assert said["status"] == "revoked"
    assert said["why"] == "The agent's model or endpoint changed."
    assert said["why"] in visible(admin.get(f"/exceptions/{grant.id}"))


def test_one_whose_admin_is_one_no_more_says_so_before_and_after_it_is_written_down(
    admin: Browser, auditor: Browser, agent: Agent
) -> None:
    grant = granted(agent, admin)
    with writing():
        user_of(admin).active = False
    for end in (lambda: None, endings.end_what_is_over):
        end()
        words = visible(auditor.get(f"/exceptions/{grant.id}"))
        assert "It was taken back by Worker. Nobody looked." in words
        assert "The person is no longer an active admin of this account." in words
        twin = auditor.get(f"/exceptions/{grant.id}.json").get_json()
        assert (twin["status"], twin["seconds_left"]) == ("revoked", 0)
        assert twin["why"] == "The person is no longer an active admin of this account."


def test_looks_are_listed_from_the_log_with_ids_and_times(
    admin: Browser, auditor: Browser, agent: Agent, worker: None
) -> None:
    grant = granted(agent, admin)
    admin.get(f"/exceptions/{grant.id}/ledger")
    page = auditor.get(f"/exceptions/{grant.id}")
    said = auditor.get(f"/exceptions/{grant.id}.json").json
    assert said is not None

    assert [(each["part"], each["ids"]) for each in said["receipts"]] == [("ledger", [1, 2, 3])]
    assert "3 memories of the ledger 1, 2, 3" in visible(page)
    assert SECRET not in page.text


# Taking back


@pytest.mark.parametrize("by_another", [False, True])
def test_any_admin_takes_it_back_at_once_and_the_agent_is_told(
    web: Flask, admin: Browser, agent: Agent, queued: list[str], by_another: bool
) -> None:
    grant = granted(agent, admin)
    person = browser(web, "owner") if by_another else admin
    answer = person.press(f"/exceptions/{grant.id}/revoke")

    assert "Revoked: admin-1@example.org can&#39;t read anything any more. wren may be asked again." in toast_of(answer)
    assert 'hx-target="#my-exceptions"' in answer.text
    assert reload(grant).status == "revoked"
    assert queued == [f"tell:{grant.id}"]
    again = person.press(f"/exceptions/{grant.id}/revoke")
    assert "It had ended already" in toast_of(again)
    assert queued == [f"tell:{grant.id}"]


def test_a_question_can_be_taken_back_before_it_is_answered(admin: Browser, agent: Agent, queued: list[str]) -> None:
    admin.post(f"/agents/{agent.id}/exceptions", WISH)
    grant = db.session.scalars(select(AccessGrant)).one()
    answer = admin.press(f"/exceptions/{grant.id}/revoke")

    assert "The question is taken back." in toast_of(answer)
    assert queued == [f"ask:{grant.id}"]
    assert "Nobody was shown anything." in visible(admin.get(f"/exceptions/{grant.id}"))


def test_auditors_take_nothing_back(admin: Browser, auditor: Browser, agent: Agent) -> None:
    grant = granted(agent, admin)

    assert auditor.post(f"/exceptions/{grant.id}/revoke").status_code == 403
    assert "/revoke" not in auditor.get(f"/exceptions/{grant.id}").text
    assert reload(grant).status == "granted"


# Content


def test_a_live_exception_shows_the_ledger_to_its_own_user_inert_and_with_a_receipt(
    admin: Browser, agent: Agent, worker: None
) -> None:
    grant = granted(agent, admin)
    answer = admin.get(f"/exceptions/{grant.id}/ledger")

    assert answer.status_code == 200
    assert answer.headers["Cache-Control"] == "no-store"
    assert SECRET in answer.text
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text
    assert "\u202e" not in answer.text
    assert '<span class="unseen">RLO</span>neddih' in answer.text
    assert 'tea<span class="unseen">ZWSP</span>pot' in answer.text
    assert receipts() == 1
    entry = db.session.scalars(select(AuditLog).where(AuditLog.action == Action.ACCESS_VIEWED)).one()
    assert (entry.actor, entry.data["ids"]) == ("user:admin-1@example.org", [1, 2, 3])


def test_content_stands_in_no_attribute_and_comes_hidden(admin: Browser, agent: Agent, worker: None) -> None:
    grant = granted(agent, admin)
    page = admin.get(f"/exceptions/{grant.id}/ledger").text
    attributes = " ".join(re.findall(r"<[^>]*>", page)) + page[: page.index("<body")]

    for words in ("blue stone", "likes tea", "neddih", "onerror"):
        assert words not in attributes
    assert re.search(r'<div id="content" [^>]*translate="no" hidden>', page)
    assert "/assets/content-" in page
    assert f'data-pulse="/exceptions/{grant.id}/pulse.json"' in page


def test_the_json_twin_is_for_programs_under_the_same_exception_with_the_same_receipt(
    admin: Browser, agent: Agent, worker: None
) -> None:
    grant = granted(agent, admin)
    said = admin.get(f"/exceptions/{grant.id}/ledger.json").json
    assert said is not None

    assert [item["content"] for item in said["items"]] == [SECRET, "Ann likes tea.", HOSTILE]
    assert receipts() == 1
    in_a_tab = admin.get(f"/exceptions/{grant.id}/ledger.json", headers={"Sec-Fetch-Mode": "navigate"})
    ahead = admin.get(f"/exceptions/{grant.id}/ledger", headers={"Sec-Purpose": "prefetch;prerender"})
    assert (in_a_tab.status_code, ahead.status_code) == (403, 403)
    assert SECRET not in in_a_tab.text + ahead.text
    assert receipts() == 1


def test_the_ledger_goes_on_by_pages_each_with_a_receipt(admin: Browser, app: Flask, worker: None) -> None:
    agent = make_agent("long")
    remember(agent, *(f"Memory number {number}." for number in range(60)))
    grant = granted(agent, admin)
    first = admin.get(f"/exceptions/{grant.id}/ledger").text
    link = re.search(r'rel="next" href="(/exceptions/[^"]+)"', first)
    assert link
    rest = admin.get(link[1]).text

    assert ("Memory number 0." in first, "Memory number 59." in first) == (True, False)
    assert ("Memory number 49." in rest, "Memory number 59." in rest) == (False, True)
    assert receipts() == 2
    assert admin.get(f"/exceptions/{grant.id}/ledger?after=nonsense").status_code == 200


def test_the_history_shows_before_and_after_word_by_word_and_the_agent_s_own_words(
    admin: Browser, agent: Agent, worker: None
) -> None:
    grant = granted(agent, admin, refinement_id=refined(agent))
    answer = admin.get(f"/exceptions/{grant.id}/history")
    said = admin.get(f"/exceptions/{grant.id}/history.json").json
    assert said is not None

    assert 'under<ins><span class="sr-only">[added: </span> a<span class="sr-only">]</span></ins> blue' in answer.text
    assert (
        'under<del><span class="sr-only">[removed: </span> the<span class="sr-only">]</span></del> blue' in answer.text
    )
    assert "removed" in answer.text
    assert "I tidied. &lt;script&gt;" in answer.text
    assert '<span class="unseen">RLO</span>' in answer.text
    changed = {item["id"]: (item["before"], item["after"]) for item in said["items"]}
    assert changed[1] == (SECRET, SECRET.replace("the blue", "a blue"))
    assert HOSTILE not in str([item["after"] for item in said["items"] if item["type"] == "core"])
    assert receipts() == 2


def read_and_probed() -> tuple[Agent, list[int], str]:
    """An agent, its memories, and its refinement: read by another model, which wrote badly, and probed."""
    agent = make_agent("finch", model_id="openai/own")
    ids = remember(agent, *TEXTS)
    choose_reader(agent)
    want_probes(agent, 1)
    probe = {"memory": ids[3], "question": f"Where does she sleep? {HOSTILE}", "answer": "on the piano"}
    answers = say('{"answers": ["on the piano"]}')
    own = [say(json.dumps({"probes": [probe]})), shorten(ids[0]), shorten(ids[1], 1), DONE, answers]
    done = run(agent, own, [say(f"1: lost, the old newspapers {HOSTILE}\n2: kept")])
    assert done.status == "completed"
    return agent, ids, done.refinement.id


def test_the_history_shows_a_second_reader_s_words_and_the_recall_probes_inert(
    admin: Browser, worker: None, web: Flask
) -> None:
    agent, ids, number = read_and_probed()
    grant = granted(agent, admin, refinement_id=number)
    answer = admin.get(f"/exceptions/{grant.id}/history")
    said = admin.get(f"/exceptions/{grant.id}/history.json").get_json()

    assert said["reader_words"] == [{"ids": [ids[0]], "kept": False, "words": f"lost, the old newspapers {HOSTILE}"}]
    assert [(each["id"], each["kept"], each["answer"]) for each in said["recall"]] == [(ids[3], True, "on the piano")]
    words = visible(answer)
    for part in (
        "Second reading",
        "not called kept",
        "lost, the old newspapers",
        "Recall probes",
        "Where does she sleep?",
    ):
        assert part in words
    assert "<script>alert" not in answer.text
    assert "<img" not in answer.text
    changed = {item["id"] for item in said["items"]}
    assert ids[3] not in changed
    assert ids_in_receipts() == [sorted(changed | {ids[0], ids[3]})] * 2
    assert browser(web, "owner").get(f"/exceptions/{grant.id}/history").status_code == 403


def test_a_second_reader_s_words_and_the_probes_go_with_an_erased_memory(admin: Browser, worker: None) -> None:
    agent, ids, number = read_and_probed()
    grant = granted(agent, admin, refinement_id=number)
    erase_memory(agent.id, ids[3], by=COMMAND_LINE, reason="Gone.")
    said = admin.get(f"/exceptions/{grant.id}/history.json").get_json()
    assert (len(said["reader_words"]), said["recall"]) == (1, [])
    assert ids[3] not in ids_in_receipts()[0]

    erase_memory(agent.id, ids[1], by=COMMAND_LINE, reason="Gone.")
    answer = admin.get(f"/exceptions/{grant.id}/history")
    assert "newspapers" not in answer.text
    assert "Second reading" not in visible(answer)
    assert ids[1] not in ids_in_receipts()[1]


def test_an_exception_for_the_ledger_shows_none_of_them(admin: Browser, worker: None) -> None:
    agent, _, number = read_and_probed()
    grant = granted(agent, admin)
    ledger = admin.get(f"/exceptions/{grant.id}/ledger")
    page = admin.get(f"/refinements/{number}")
    for answer in (ledger, page):
        assert answer.status_code == 200
        for words in ("lost, the old", "Where does she sleep?"):
            assert words not in answer.text


def test_the_ledger_and_the_history_show_the_merge_depth_beside_the_text(
    admin: Browser, agent: Agent, worker: None
) -> None:
    ids = remember(agent, "Bob likes rum.", "Bob likes rum.", "It rained in Lisbon. " * 20)
    run = begin(agent)
    merged = run.tool.execute("consolidate", ids=ids[:2], content="Bob likes rum.")["id"]
    run.tool.execute("complete", summary="I am done.")
    ledger, history = granted(agent, admin), granted(agent, admin, refinement_id=run.refinement.id)

    pages = f"/exceptions/{ledger.id}/ledger", f"/exceptions/{history.id}/history"
    shown = [visible(admin.get(page)).count("merged from 2 over 1 merge") for page in pages]
    told = [(admin.get(f"{page}.json").json or {})["items"] for page in pages]

    assert shown == [1, 1]
    for items in told:
        deep = {item["id"]: (item["merged_sources"], item["merges"]) for item in items}
        assert deep.pop(merged) == (2, 1)
        assert set(deep.values()) == {(0, 0)}


def test_each_scope_shows_only_itself(admin: Browser, agent: Agent, worker: None) -> None:
    number = refined(agent)
    ledger, history = granted(agent, admin), granted(agent, admin, refinement_id=number)

    for path in (f"/exceptions/{ledger.id}/history", f"/exceptions/{history.id}/ledger"):
        assert nothing_shown(admin.get(path))
        assert admin.get(f"{path}.json").status_code == 403
    assert receipts() == 0
    assert db.session.scalars(select(AccessView)).all() == []


def nothing_shown(answer: TestResponse) -> bool:
    assert answer.status_code == 403
    assert "Nothing is shown" in answer.text
    assert "blue stone" not in answer.text
    return True


State = Callable[[Agent, Browser], AccessGrant]


def pending(agent: Agent, person: Browser) -> AccessGrant:
    from app.grants.request import request_access

    wish = WantedException(GrantCategory.DEBUGGING, "why", 15)
    return request_access(agent.id, wish, for_user=user_of(person), by=user_of(person).actor)


def denied(agent: Agent, person: Browser) -> AccessGrant:
    return granted(agent, person, say("NO"))


def expired(agent: Agent, person: Browser) -> AccessGrant:
    grant = granted(agent, person)
    run_out(grant)
    return grant


def swept(agent: Agent, person: Browser) -> AccessGrant:
    grant = expired(agent, person)
    endings.end_what_is_over()
    return grant


def revoked(agent: Agent, person: Browser) -> AccessGrant:
    grant = granted(agent, person)
    revoke_grant(grant.id, by=user_of(person).actor)
    return grant


@pytest.mark.parametrize("state", [pending, denied, expired, swept, revoked])
def test_without_a_live_exception_nobody_sees_anything(
    admin: Browser, owner: Browser, auditor: Browser, agent: Agent, worker: None, state: State
) -> None:
    grant = state(agent, admin)

    for person in (admin, owner):
        for path in (f"/exceptions/{grant.id}/ledger", f"/exceptions/{grant.id}/history"):
            assert nothing_shown(person.get(path))
        assert person.get(f"/exceptions/{grant.id}/pulse.json").json == {"live": False, "milliseconds_left": 0}
        assert SECRET not in person.get(f"/exceptions/{grant.id}").text
    assert auditor.get(f"/exceptions/{grant.id}/ledger").status_code == 403
    assert receipts() == 0


def test_a_live_one_is_for_its_own_user_alone(
    web: Flask,
    admin: Browser,
    owner: Browser,
    auditor: Browser,
    operator: Browser,
    neighbour: Browser,
    stranger: Browser,
    agent: Agent,
    worker: None,
) -> None:
    grant = granted(agent, admin)
    path = f"/exceptions/{grant.id}/ledger"

    assert nothing_shown(owner.get(path))
    assert [person.get(path).status_code for person in (auditor, operator, neighbour)] == [403, 403, 404]
    assert stranger.get(path).status_code == 302
    assert stranger.get(f"{path}.json").status_code == 401
    assert owner.get(f"/exceptions/{grant.id}/pulse.json").json == {"live": False, "milliseconds_left": 0}
    assert neighbour.get(f"/exceptions/{grant.id}/pulse.json").status_code == 404
    assert receipts() == 0


def test_one_for_another_agent_covers_nothing_of_this_one(admin: Browser, agent: Agent, worker: None) -> None:
    crumb = make_agent("crumb")
    remember(crumb, "Crumb's own.")
    grant = granted(crumb, admin)

    answer = admin.get(f"/exceptions/{grant.id}/ledger?after=1")
    assert "blue stone" not in answer.text
    assert SECRET not in admin.get(f"/agents/{agent.id}").text


def test_an_admin_who_is_one_no_more_sees_nothing(admin: Browser, agent: Agent, worker: None) -> None:
    grant = granted(agent, admin)
    with writing():
        user = user_of(admin)
        user.roles = [role for role in user.roles if role.name != ADMIN]

    assert admin.get(f"/exceptions/{grant.id}/ledger").status_code == 403
    assert receipts() == 0


def test_revoked_between_the_question_and_the_answer_it_shows_nothing(
    app: Flask, admin: Browser, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = granted(agent, admin)

    def answered(view_id: str, timeout: float = 5.0) -> bool:
        with app.app_context():
            opening.answer_view(view_id)
            revoke_grant(grant.id, by=user_of(admin).actor)
        return True

    monkeypatch.setattr(tasks.grants, "wait_for_answer", answered)
    assert nothing_shown(admin.get(f"/exceptions/{grant.id}/ledger"))


def test_without_a_worker_nothing_is_shown_nor_recorded_even_if_it_comes_late(
    app: Flask, admin: Browser, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(tasks.grants, "wait_for_answer", lambda view_id: bool(asked.append(view_id)))
    grant = granted(agent, admin)
    answer = admin.get(f"/exceptions/{grant.id}/ledger")

    assert answer.status_code == 503
    assert "No worker answered in time. Nothing was shown, and no view was recorded." in answer.text
    assert admin.get(f"/exceptions/{grant.id}/ledger.json").json["code"] == "no_answer"  # type: ignore[index]
    for view_id in asked:
        db.session.rollback()
        opening.answer_view(view_id)
    assert len(asked) == 2
    assert receipts() == 0
    assert db.session.scalars(select(AccessView.sealed)).all() == [None, None]


def test_an_answer_that_came_at_the_last_moment_is_shown(
    app: Flask, admin: Browser, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(view_id: str) -> bool:
        with app.app_context():
            opening.answer_view(view_id)
        return False

    monkeypatch.setattr(tasks.grants, "wait_for_answer", late)
    grant = granted(agent, admin)

    assert SECRET in admin.get(f"/exceptions/{grant.id}/ledger").text
    assert receipts() == 1


def test_the_pulse_counts_by_the_database_s_clock(admin: Browser, agent: Agent, clock: FakeClock) -> None:
    grant = granted(agent, admin)
    clock.advance(hours=1)
    pulse = admin.get(f"/exceptions/{grant.id}/pulse.json").json
    assert pulse is not None

    assert pulse["live"] is True
    assert 800_000 < pulse["milliseconds_left"] <= 900_000


# The toggle beside the text


ON_CONTENT = "http://localhost/exceptions/{}/ledger"


def press_on_content(person: Browser, grant: AccessGrant, path: str) -> TestResponse:
    """As htmx sends it from the page with content."""
    return person.post(path, headers={"HX-Request": "true", "HX-Current-URL": ON_CONTENT.format(grant.id)})


def test_who_reads_a_ledger_can_make_constitutional_what_it_protects_and_undo_it(
    admin: Browser, agent: Agent, worker: None
) -> None:
    grant = granted(agent, admin)
    page = admin.get(f"/exceptions/{grant.id}/ledger").text
    path = f"/agents/{agent.id}/memories/1/constitutional"
    assert page.index('id="content"') < page.index(f'hx-post="{path}"') < page.index('id="content-waiting"')
    seen = receipts()

    answer = press_on_content(admin, grant, path)

    assert answer.headers["Cache-Control"] == "no-store"
    assert 'hx-target="#flags-1"' in answer.text and "memory-1" not in answer.text
    assert f'hx-post="{path}/release"' in toast_of(answer)
    assert SECRET not in unescape(answer.text)
    assert receipts() == seen
    assert db.session.get_one(Memory, 1, populate_existing=True).constitutional
    undone = press_on_content(admin, grant, f"{path}/release")
    assert 'hx-target="#flags-1"' in undone.text and SECRET not in unescape(undone.text)
    db.session.rollback()
    query = select(AuditLog.actor).where(AuditLog.action == Action.CONSTITUTIONAL_TOGGLE)
    assert list(db.session.scalars(query)) == [str(user_of(admin).actor)] * 2
    assert not db.session.get_one(Memory, 1, populate_existing=True).constitutional


def test_beside_the_text_the_same_rules_hold(
    admin: Browser, auditor: Browser, owner: Browser, agent: Agent, worker: None
) -> None:
    grant = granted(agent, admin)
    path = f"/agents/{agent.id}/memories/1/constitutional"
    press_on_content(admin, grant, path)
    begin(agent)
    page = admin.get(f"/exceptions/{grant.id}/ledger").text

    assert f'action="{path}/release"' not in page
    assert "stays constitutional while a refinement is open" in page
    assert press_on_content(admin, grant, f"{path}/release").status_code == 409
    assert press_on_content(auditor, grant, path).status_code == 403
    assert auditor.get(f"/exceptions/{grant.id}/ledger").status_code == 403
    assert owner.get(f"/exceptions/{grant.id}/ledger").status_code == 403


def test_what_went_meanwhile_is_refused_beside_its_text(admin: Browser, agent: Agent, worker: None) -> None:
    (carrier,) = remember(agent, "Ann likes tea, and milk.")
    grant = granted(agent, admin)
    run = begin(agent)
    run.tool.execute("delete", id=2, carried_by=carrier)
    answer = press_on_content(admin, grant, f"/agents/{agent.id}/memories/2/constitutional")

    assert answer.status_code in (404, 409)
    assert "flags-2" not in answer.text


def test_a_refinement_s_history_has_no_toggle(admin: Browser, agent: Agent, worker: None) -> None:
    grant = granted(agent, admin, refinement_id=refined(agent))

    assert "/constitutional" not in admin.get(f"/exceptions/{grant.id}/history").text


# The banner


def test_the_banner_stands_on_every_page_of_whoever_holds_a_live_one(
    admin: Browser, owner: Browser, auditor: Browser, agent: Agent
) -> None:
    grant = granted(agent, admin)
    pages = ("/", "/agents", f"/agents/{agent.id}", "/exceptions", "/audit", f"/agents/{agent.id}/settings")

    for path in pages:
        words = visible(admin.get(path))
        assert "You can read the ledger of wren until" in words, path
        assert re.search(r"1[45] min left", words), path
        link = f'<a class="button primary small" href="/exceptions/{grant.id}/ledger">'
        assert link in admin.get(path).text and "Read memories" in words, path
        for person in (owner, auditor):
            assert "You can read" not in person.get(path).text, path
    run_out(grant)
    for path in pages:
        assert "You can read" not in admin.get(path).text, path


def test_the_banner_comes_fresh_by_itself(admin: Browser, owner: Browser, agent: Agent) -> None:
    grant = granted(agent, admin)

    assert f"/exceptions/{grant.id}/revoke" in admin.get("/exceptions/mine").text
    assert "You can read" not in owner.get("/exceptions/mine").text
    revoke_grant(grant.id, by=user_of(admin).actor)
    assert "You can read" not in admin.get("/exceptions/mine").text
    assert 'hx-target="#my-exceptions"' in admin.get("/exceptions/mine").text


# Live parts


@pytest.mark.parametrize("topic", ["exceptions", "exceptions:{agent}", "exception:{grant}"])
def test_the_stream_brings_how_they_stand_and_no_content(
    admin: Browser, agent: Agent, worker: None, topic: str
) -> None:
    grant = granted(agent, admin)
    admin.get(f"/exceptions/{grant.id}/ledger")
    asked = topic.format(agent=agent.id, grant=grant.id)
    answer = admin.get(f"/events/poll?topic={asked}")

    assert answer.status_code == 200
    assert "hx-partial" in answer.text
    assert "blue stone" not in answer.text
    assert "csrf_token" not in answer.text
    newest = answer.headers["Last-Event-ID"]
    assert admin.get(f"/events/poll?topic={asked}&after={newest}").status_code == 204
    remember(agent, "Something else happened.")
    with writing():
        Agent.lock(agent.id).pause(by=user_of(admin).actor)
    assert admin.get(f"/events/poll?topic={asked}&after={newest}").status_code == 204
    revoke_grant(grant.id, by=user_of(admin).actor)
    assert "revoked" in admin.get(f"/events/poll?topic={asked}&after={newest}").text


def test_another_account_hears_nothing(neighbour: Browser, admin: Browser, agent: Agent) -> None:
    grant = granted(agent, admin)

    assert neighbour.get(f"/events/poll?topic=exception:{grant.id}").status_code == 404
    assert neighbour.get(f"/events/poll?topic=exceptions:{agent.id}").status_code == 404
    assert grant.id not in neighbour.get("/events/poll?topic=exceptions").text


def test_a_note_to_admins_and_a_purpose_are_inert(admin: Browser, agent: Agent) -> None:
    wish: dict[str, Any] = WISH | {"purpose": '"><script>alert(1)</script>\u202eneddih'}
    admin.post(f"/agents/{agent.id}/exceptions", wish)
    grant = db.session.scalars(select(AccessGrant)).one()
    for path in ("/exceptions", f"/exceptions/{grant.id}", f"/agents/{agent.id}/exceptions"):
        page = admin.get(path).text
        assert "<script>alert" not in page
        assert '<span class="unseen">RLO</span>neddih' in page
