"""The overview's worklist: one line a kind in a fixed place; what waits is marked as seen all at once, with Undo."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session
from werkzeug.test import TestResponse

from app.extensions import db, now, reading, writing
from app.grants.request import WantedException, request_access
from app.history.verify import verify
from app.models import Account, Action, Agent, AttentionItem, AuditLog, GrantCategory, Refinement, Status, User
from app.refinement.attention import MOST_AT_ONCE
from app.views.shown import agent_alarms
from app.views.shown.attention import SHOWN
from app.views.shown.worklist import SLOTS
from tests.refinement.driving import alike
from tests.support.clock import FakeClock
from tests.support.factories import HOME, Running, begin, make_agent, remember
from tests.views.conftest import Browser, toast_of


def noted(agent: Agent, text: str) -> int:
    run = begin(agent)
    run.tool.execute("complete", summary="Done.", note_to_admins=text)
    return run.reload().notes[0].id


def unfinished(agent: Agent) -> None:
    run = begin(agent)
    assert run.tool.execute("delete", id=1, carried_by=12)["type"] == "deleted"
    run.tool.settle()
    end(run, run.agent, Status.UNFINISHED)


def end(run: Running, agent: Agent, status: Status) -> None:
    with writing():
        Refinement.lock(run.refinement.id).end(Agent.lock(agent.id), status)


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, *alike(12))
    return made


def lines(browser: Browser) -> dict[str, dict[str, Any]]:
    shown = browser.get("/overview.json").json
    assert shown is not None
    return {each["kind"]: each for each in shown["worklist"]}


def unseen(browser: Browser, query: str = "") -> list[str]:
    shown = browser.get(f"/attention.json{query}").json
    assert shown is not None
    return [item["text"] or item["kind"] for item in shown["items"]]


def press(browser: Browser, path: str, data: dict[str, str] | None = None) -> TestResponse:
    """A button of the overview."""
    return browser.post(path, data, headers={"HX-Request": "true", "HX-Current-URL": "http://localhost/"})


def audited(action: Action) -> int:
    db.session.rollback()
    return db.session.scalar(select(func.count()).where(AuditLog.action == action)) or 0


def test_each_kind_has_its_line_whatever_there_is_so_that_nothing_moves(
    admin: Browser, agent: Agent, clock: FakeClock
) -> None:
    def places() -> list[str]:
        return re.findall(r'<li id="work-(\w+)"', admin.get("/").text)

    empty = places()
    noted(agent, "Mind the tea.")
    clock.advance(minutes=1)
    unfinished(agent)

    assert places() == empty == [slot.kind for slot in SLOTS]
    assert lines(admin)["notes"] == {
        "kind": "notes",
        "count": 1,
        "line": "ezra: “Mind the tea.”",
        "url": "/attention?kind=note",
    }
    assert (lines(admin)["to_check"]["count"], lines(admin)["eroding"]["count"]) == (1, 0)


def test_all_that_failed_are_counted_and_none_hides_an_older_one_that_was_rolled_back(
    admin: Browser, neighbour: Browser, clock: FakeClock
) -> None:
    """Some at the same moment. What was seen, what a later refinement answered, and another account's are left out."""

    def ended(name: str, status: Status, account_id: int = HOME) -> Agent:
        made = make_agent(name, account_id=account_id)
        remember(made, "Ann likes tea.")
        end(begin(made), made, status)
        return made

    ended("mina", Status.ROLLED_BACK)
    clock.advance(minutes=1)
    seen = ended("seen", Status.FAILED)
    item = db.session.scalar(select(AttentionItem.id).where(AttentionItem.agent_id == seen.id))
    admin.post(f"/attention/{item}/seen")
    answered = ended("answered", Status.FAILED)
    end(begin(answered), answered, Status.COMPLETED)
    theirs = db.session.scalars(select(Account.id).where(Account.id != HOME)).one()
    ended("theirs", Status.FAILED, theirs)
    for number in range(SHOWN + 2):
        ended(f"agent {number}", Status.FAILED)
    ended("otto", Status.INTERRUPTED)
    shown = admin.get("/overview.json").json
    found = {each["title"]: each["items"] for each in shown["attention"]} if shown else {}
    failed = found[f"Failed: {SHOWN + 2} agents"]

    assert (lines(admin)["failed"]["count"], lines(admin)["rolled_back"]["count"]) == (SHOWN + 3, 1)
    assert len(failed) == SHOWN and all(name.startswith("agent ") for name in failed)
    assert lines(admin)["rolled_back"]["line"].startswith("mina: ")
    assert found["Interrupted: 1 agent"] == ["otto"]
    assert lines(neighbour)["failed"]["count"] == 1


@pytest.mark.parametrize("table", ["running", "recent"])
def test_the_tables_have_as_many_rows_with_nothing_as_with_everything(
    admin: Browser, agent: Agent, clock: FakeClock, table: str
) -> None:
    def rows() -> list[str]:
        return re.findall(rf'<tr id="({table}-\d+)"', admin.get("/").text)

    before = rows()
    for number in range(12):
        other = make_agent(f"other {number}")
        remember(other, "Ann likes tea.")
        run = begin(other)
        if number % 2:
            run.tool.execute("complete", summary="Done.")

    assert rows() == before
    assert "and 1 more" in admin.get("/").text


def test_an_exception_that_waits_for_its_agent_has_a_line_until_it_is_decided(admin: Browser, agent: Agent) -> None:
    user = db.session.get_one(User, 1)
    request_access(agent.id, WantedException(GrantCategory.DEBUGGING, "It repeats.", 15), for_user=user, by=user.actor)

    assert lines(admin)["waiting"]["count"] == 1
    assert "1 exception" in admin.get("/").text


def test_agents_over_budget_twice_are_named_first(admin: Browser, clock: FakeClock) -> None:
    for name in ("mina", "otto"):
        made = make_agent(name, core_token_budget=3)
        remember(made, "Ann likes tea.", "Bob likes rum.")
    for _ in range(2):
        begin(made).tool.execute("complete", summary="Done.")
        clock.advance(days=8)

    assert lines(admin)["over_budget"]["line"] == "Twice in a row: otto"
    shown = admin.get("/overview.json").json
    assert shown is not None
    assert shown["over_budget_twice"] == ["otto"]
    assert "otto stayed over after two looks in a row." in admin.get("/").text


def test_all_notes_are_marked_as_seen_at_once_and_taken_back_at_once(
    admin: Browser, agent: Agent, clock: FakeClock
) -> None:
    for number in range(3):
        noted(agent, f"note {number}")
    unfinished(agent)
    clock.advance(minutes=1)
    admin.post(f"/attention/{noted(agent, 'seen before')}/seen")
    clock.advance(minutes=1)
    answer = press(admin, "/attention/seen", {"kind": "note"})
    undo = unescape(re.findall(r'hx-post="(/attention/unseen[^"]*)"', toast_of(answer))[0])

    assert "3 items marked as seen." in toast_of(answer)
    assert unseen(admin) == ["unfinished"]
    assert audited(Action.ATTENTION_SEEN) == 4
    assert "Nothing matches" in toast_of(press(admin, "/attention/seen", {"kind": "note"}))
    assert audited(Action.ATTENTION_SEEN) == 4

    assert "3 items marked as not seen." in toast_of(press(admin, undo))
    assert unseen(admin, "?kind=note") == ["note 2", "note 1", "note 0"]
    assert "Nothing of that" in toast_of(press(admin, undo))
    assert verify().ok


def test_undo_takes_back_only_what_the_same_person_marked(
    admin: Browser, owner: Browser, agent: Agent, clock: FakeClock
) -> None:
    noted(agent, "Mind the tea.")
    answer = press(admin, "/attention/seen", {"kind": "note"})
    undo = unescape(re.findall(r'hx-post="(/attention/unseen[^"]*)"', toast_of(answer))[0])

    assert "Nothing of that" in toast_of(press(owner, undo))
    assert unseen(admin) == []


def test_pressed_on_the_overview_its_parts_come_with_the_toast_and_without_scripts_it_goes_back_to_the_list(
    admin: Browser, agent: Agent
) -> None:
    noted(agent, "Mind the tea.")
    answer = press(admin, "/attention/seen", {"kind": "note"})
    noted(agent, "Mind the milk.")
    plain = admin.post("/attention/seen", {"kind": "note", "agent": "ezra", "on": "list"})

    assert 'hx-target="#overview-attention"' in answer.text
    assert "Mind the tea." not in answer.text
    assert (plain.status_code, plain.headers["Location"]) == (303, "/attention?kind=note&agent=ezra")


def test_the_list_is_filtered_by_kind_agent_and_reason(auditor: Browser, agent: Agent) -> None:
    other = make_agent("o'hara")
    remember(other, "Ann likes tea.")
    noted(other, "Mind the milk.")
    noted(agent, "Mind the tea.")
    unfinished(agent)

    assert unseen(auditor, "?agent=o'hara") == ["Mind the milk."]
    assert unseen(auditor, "?kind=unfinished,refusals") == ["unfinished"]
    assert unseen(auditor, "?kind=note&agent=ezra") == ["Mind the tea."]
    assert unseen(auditor, "?reason=HTTP+500") == []
    page = unescape(auditor.get("/attention?kind=note&agent=o'hara&seen=1").text)
    assert "./whetstone attention list --kind note --agent 'o'\"'\"'hara' --all" in page
    assert "Mark all" not in page


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("kind=nonsense", "There is no kind 'nonsense'."),
        ("kind=note&agent=<script>", "There is no agent '<script>' in this account."),
        ("reason=%00", "This can't be looked for"),
    ],
)
def test_a_filter_of_nonsense_gets_a_sentence_and_marks_nothing(
    admin: Browser, agent: Agent, query: str, sentence: str
) -> None:
    noted(agent, "Mind the tea.")
    page = unescape(admin.get(f"/attention?{query}").text)
    typed = dict(part.split("=") for part in query.replace("%00", "\0").split("&"))

    assert sentence in page
    assert "Mind the tea." not in page
    assert admin.get(f"/attention.json?{query}").status_code == 422
    assert admin.post("/attention/seen", typed).status_code == 422
    assert audited(Action.ATTENTION_SEEN) == 0


@pytest.mark.parametrize("query", ["", "?first=now&last=then", "?first=2026-11-16&last=9999-12-31T23:59:59-23:00"])
def test_an_undo_of_nonsense_changes_nothing(admin: Browser, agent: Agent, query: str) -> None:
    admin.post(f"/attention/{noted(agent, 'Mind the tea.')}/seen")

    assert admin.post(f"/attention/unseen{query}").status_code == 422
    assert audited(Action.ATTENTION_UNSEEN) == 0


def test_an_auditor_and_a_neighbour_mark_nothing(auditor: Browser, neighbour: Browser, agent: Agent) -> None:
    noted(agent, "Mind the tea.")

    assert auditor.post("/attention/seen", {"kind": "note"}).status_code == 403
    assert "Nothing matches" in toast_of(press(neighbour, "/attention/seen"))
    assert neighbour.get("/attention.json?agent=ezra").status_code == 422
    assert audited(Action.ATTENTION_SEEN) == 0


def test_what_a_later_refinement_settles_before_the_lock_is_taken_is_not_marked(
    admin: Browser, agent: Agent, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_agent("mina")
    remember(other, *alike(3))
    for each in (agent, other):
        end(begin(each), each, Status.FAILED)
    clock.advance(minutes=1)
    later = begin(agent)

    @contextmanager
    def reading_and_then_settled() -> Iterator[Session]:
        with reading() as session:
            yield session
        monkeypatch.setattr("app.refinement.attention.reading", reading)
        end(later, agent, Status.COMPLETED)

    monkeypatch.setattr("app.refinement.attention.reading", reading_and_then_settled)

    assert "1 item marked as seen." in toast_of(press(admin, "/attention/seen", {"kind": "failed"}))
    db.session.rollback()
    items = db.session.scalars(select(AttentionItem).order_by(AttentionItem.id)).all()
    assert [(item.agent_id, item.settled_by is None, item.seen_at is None) for item in items] == [
        (agent.id, False, True),
        (other.id, True, False),
    ]


def test_one_press_marks_a_bounded_number(admin: Browser, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_AT_ONCE <= 500
    monkeypatch.setattr("app.views.attention.MOST_AT_ONCE", 2)
    for number in range(3):
        noted(agent, f"note {number}")
    admin.post("/attention/seen")

    assert unseen(admin) == ["note 0"]
    db.session.rollback()
    assert db.session.scalar(select(func.count()).where(AttentionItem.seen_at.is_not(None))) == 2


def test_the_steps_of_the_first_run_check_themselves_off_until_a_refinement_has_ended(
    admin: Browser, auditor: Browser, clock: FakeClock
) -> None:
    def done() -> list[bool] | None:
        shown = admin.get("/overview.json").json
        assert shown is not None
        return shown["first_run"] and [step["done"] for step in shown["first_run"]]

    states = [done()]
    agent = make_agent("ezra", model_id="openai/m")
    states.append(done())
    remember(agent, "Ann likes tea.")
    clock.advance(minutes=1)
    states.append(done())
    run = begin(agent)
    page = admin.get("/").text
    assert f'href="/refinements/{run.refinement.id}"' in page
    assert f'href="/agents/{agent.id}/imports"' in page
    assert "Try the demo" not in page
    run.tool.execute("complete", summary="Done.")

    assert states == [[False] * 4, [True, False, False, False], [True, False, True, False]]
    assert done() is None
    assert 'id="overview-first-run"' not in admin.get("/").text
    assert "Your first refinement has ended" in admin.get("/events/poll?topic=overview&after=0").text


def test_missing_keys_are_looked_for_along_an_index_of_the_newest_agents(app: Flask) -> None:
    """However many agents there are: none of the account's others is read, and nothing is sorted."""
    session = db.session()
    on_server = session.get_bind().dialect.name == "postgresql"
    if on_server:
        for step in ("seqscan", "sort", "bitmapscan"):
            session.execute(text(f"SET LOCAL enable_{step} = off"))
    query = agent_alarms._keyless_query().statement.params(account_id=HOME, until=now())  # type: ignore[attr-defined]
    compiled = query.compile(session.connection(), compile_kwargs={"literal_binds": True})
    explained = "EXPLAIN" if on_server else "EXPLAIN QUERY PLAN"
    plan = "\n".join(str(row[-1]) for row in session.connection().exec_driver_sql(f"{explained} {compiled}"))

    assert "ix_agents_newest" in plan
    assert on_server or "SEARCH agents USING INDEX ix_agents_newest (account_id=?)" in plan
