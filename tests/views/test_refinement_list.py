"""The list of the account's refinements: filters, orders and pages by address, and working off many at once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.extensions import db, writing
from app.history.verify import verify
from app.models import COMMAND_LINE, Action, Agent, AttentionItem, AuditLog, Mode, Refinement, Status, Trigger
from app.refinement import bulk
from app.refinement.start import start_refinement
from app.views.shown.refinements import ROWS
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.test_statement_budgets import count
from tests.views.conftest import Browser, browser, toast_of

HTTP_500 = "The model openai/big answers with an error (HTTP 500)."


def agent_named(name: str, **fields: Any) -> Agent:
    made = make_agent(name, **fields)
    remember(made, "Ann likes tea with milk.", "Bob likes rum.", "Bob likes rum and ink.")
    return made


def run(
    agent: Agent, status: Status, *, failure: str | None = None, trigger: Trigger = Trigger.ADMIN, **fields: Any
) -> str:
    """One that ended so, without any model."""
    refinement = start_refinement(agent.id, trigger=trigger, by=COMMAND_LINE, mode=fields.pop("mode", Mode.FULL))
    with writing():
        row = Refinement.lock(refinement.id)
        locked = Agent.lock(agent.id)
        for name, value in fields.items():
            setattr(row, name, value)
        row.end(locked, status, reason=failure, failure=failure)
    return refinement.id


def listed(person: Browser, query: str = "") -> dict[str, Any]:
    answer = person.get(f"/refinements.json?{query}").json
    assert answer is not None
    return answer


def ids(person: Browser, query: str = "") -> list[str]:
    return [row["id"] for row in listed(person, query)["refinements"]]


def open_kinds() -> list[str]:
    db.session.rollback()
    return sorted(db.session.scalars(select(AttentionItem.kind).where(AttentionItem.is_open())))


@pytest.fixture
def fleet(app: Flask, clock: FakeClock) -> dict[str, str]:
    """Four agents, each with one refinement, a day apart; by agent's name its id."""
    found = {}
    plan: Sequence[tuple[str, Status, dict[str, Any]]] = (
        ("ezra", Status.FAILED, {"failure": HTTP_500, "prompt_tokens": 900, "cost_usd": Decimal("0.5")}),
        ("mina", Status.INTERRUPTED, {"failure": "Its worker stopped."}),
        ("otto", Status.COMPLETED, {"trigger": Trigger.WEEKLY, "mutations": 3, "completion_tokens": 1000}),
        ("vera", Status.DECLINED, {"trigger": Trigger.AGENT, "mode": Mode.FULL, "mass_before": 100, "kept_mass": 80}),
    )
    for name, status, fields in plan:
        clock.advance(days=1)
        found[name] = run(agent_named(name, model_id=f"openai/{name}"), status, **fields)
    return found


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["vera", "otto", "mina", "ezra"]),
        ("status=failed", ["ezra"]),
        ("status=failed, interrupted,", ["mina", "ezra"]),
        ("agent=otto", ["otto"]),
        ("agent=3", ["otto"]),
        ("trigger=weekly", ["otto"]),
        ("mode=dedup_only", []),
        ("model=openai/vera", ["vera"]),
        ("model=openai/ver", []),
        ("needs=attention", ["mina", "ezra"]),
        (f"reason={HTTP_500}", ["ezra"]),
        ("reason=No reason was recorded", []),
        ("status=completed,declined&trigger=agent", ["vera"]),
    ],
)
def test_it_filters_by_address(auditor: Browser, fleet: dict[str, str], query: str, names: list[str]) -> None:
    found = listed(auditor, query)

    assert [row["agent"] for row in found["refinements"]] == names
    assert found["matching"] == len(names)
    assert all(fleet[row["agent"]] == row["id"] for row in found["refinements"])


def test_it_filters_by_day_both_included(auditor: Browser, fleet: dict[str, str], clock: FakeClock) -> None:
    first = clock.now() - timedelta(days=2)

    assert ids(auditor, f"from={first:%Y-%m-%d}&to={first:%Y-%m-%d}") == [fleet["mina"]]
    assert ids(auditor, f"from={first:%Y-%m-%d}") == [fleet[name] for name in ("vera", "otto", "mina")]
    assert ids(auditor, "to=9999-12-31") == ids(auditor)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("status=failed,nonsense", "There is no status 'nonsense'. There are: queued,"),
        ("agent=nobody", "There is no agent 'nobody' in this account."),
        ("agent=99999999999999999999", "There is no agent"),
        ("trigger=x", "There is no trigger 'x'. There are: weekly, over_budget, admin, agent."),
        ("mode=x", "There is no mode 'x'. There are: full, dedup_only."),
        ("from=2026-13-01", "'2026-13-01' is no day."),
        ("from=2026-03-02&to=2026-03-01", "The last day is before the first one."),
        ("needs=love", "Refinements can need 'attention' and nothing else."),
        ("sort=colour", "There is no order 'colour'. There are: started, duration, changes, kept, tokens, cost;"),
        ("reason=a%00b", "This can't be looked for"),
        ("model=%3Cscript%3Ealert(1)%3C/script%3E&status=x", "There is no status 'x'"),
    ],
)
def test_nonsense_gets_a_sentence_at_its_field_and_the_rest_is_kept(
    auditor: Browser, fleet: dict[str, str], query: str, sentence: str
) -> None:
    page, twin = auditor.get(f"/refinements?{query}&trigger=admin"), auditor.get(f"/refinements.json?{query}")

    assert sentence in unescape(page.text)
    assert "field-error" in page.text
    assert query.startswith("trigger") or '<option value="admin" selected' in page.text
    assert "<script>alert" not in page.text
    assert 'id="many"' not in page.text
    assert (twin.status_code, sentence in twin.json["detail"]) == (422, True)  # type: ignore[index]


@pytest.mark.parametrize(
    ("sort", "first"),
    [("tokens", "otto"), ("cost", "ezra"), ("changes", "otto"), ("kept", "vera"), ("-started", "ezra")],
)
def test_it_sorts_by_address(auditor: Browser, fleet: dict[str, str], sort: str, first: str) -> None:
    there, back = (
        ids(auditor, f"sort={sort}"),
        ids(auditor, f"sort={sort.removeprefix('-') if '-' in sort else '-' + sort}"),
    )

    assert there[0] == fleet[first]
    assert there == back[::-1]
    assert 'aria-sort="' in auditor.get(f"/refinements?sort={sort}").text


@pytest.mark.parametrize("sort", ["started", "-started", "duration", "-kept", "tokens"])
def test_its_pages_skip_and_repeat_nothing_in_whatever_order(auditor: Browser, clock: FakeClock, sort: str) -> None:
    """Of many that are alike, too: without a duration, with the same tokens, some of the same moment."""
    agent = agent_named("ezra")
    for number in range(ROWS + 7):
        clock.advance(seconds=number % 3)
        took = {"started_at": clock.now()} if number % 4 else {}
        run(agent, Status.STOPPED, prompt_tokens=number % 5, mass_before=100, kept_mass=90 - number % 2, **took)
    found: list[str] = []
    before: str | None = ""
    while before is not None:
        page = listed(auditor, f"sort={sort}&before={before}")
        found += [row["id"] for row in page["refinements"]]
        before = page["next_before"]

    assert len(found) == len(set(found)) == page["matching"] == ROWS + 7
    assert "Next 50" in auditor.get(f"/refinements?sort={sort}").text
    assert ids(auditor, f"sort={sort}&before=nonsense") == found[:ROWS]


def test_it_names_the_command_with_its_filters_as_words_of_a_shell(auditor: Browser, fleet: dict[str, str]) -> None:
    page = unescape(auditor.get("/refinements", query_string={"reason": "$(id) it's", "sort": "-cost"}).text)

    assert """./whetstone refinements list --reason '$(id) it'"'"'s' --sort=-cost""" in page


def test_where_there_is_none_it_says_what_to_do_next(auditor: Browser) -> None:
    assert "No refinements yet" in auditor.get("/refinements").text
    assert "No refinements match" in auditor.get("/refinements?status=failed").text


def test_however_many_rows_it_takes_as_many_statements(admin: Browser, clock: FakeClock) -> None:
    agent = agent_named("ezra")

    def look() -> int:
        admin.get("/refinements")  # the first look in a while notes that the session is in use
        return count(lambda: admin.get("/refinements"))

    run(agent, Status.FAILED)
    few = look()
    for _ in range(12):
        clock.advance(minutes=1)
        run(agent, Status.FAILED)

    assert look() == few <= 14


def test_the_chosen_are_started_anew_each_by_itself_and_the_others_are_named(
    admin: Browser, fleet: dict[str, str]
) -> None:
    with writing():
        Agent.lock(2).active = False

    answer = admin.press("/refinements/retry", {"boxes": "1", "refinement": list(fleet.values())})

    assert answer.headers["HX-Redirect"] == "/refinements"
    said = unescape(admin.get("/refinements").text)
    assert "2 queued; 2 not: 1 completed, 1 agent not active." in said
    queued = listed(admin, "status=queued")["refinements"]
    assert sorted((row["agent"], row["trigger"]) for row in queued) == [("ezra", "admin"), ("vera", "admin")]


def test_a_second_click_starts_nothing_and_says_why(admin: Browser, fleet: dict[str, str]) -> None:
    first = admin.post("/refinements/retry", {"status": "failed,interrupted"})
    assert "2 queued." in admin.get(first.headers["Location"]).text

    admin.post("/refinements/retry", {"status": "failed,interrupted"})

    assert "0 queued; 2 not: already open." in admin.get("/refinements").text
    assert listed(admin, "status=queued")["matching"] == 2
    for row in listed(admin, "status=queued")["refinements"]:
        admin.post(f"/refinements/{row['id']}/stop")
    admin.post("/refinements/retry", {"status": "failed,interrupted"})
    assert "0 queued; 2 not: refined again since." in admin.get("/refinements").text


def test_marking_what_matches_as_seen_can_be_undone_and_leaves_what_somebody_else_saw(
    admin: Browser, web: Flask, fleet: dict[str, str], clock: FakeClock
) -> None:
    item = db.session.scalars(select(AttentionItem.id).where(AttentionItem.refinement_id == fleet["ezra"])).one()
    other = browser(web, "owner")
    other.post(f"/attention/{item}/seen")
    run(agent_named("ida"), Status.FAILED, failure=HTTP_500)
    assert open_kinds() == ["failed", "failed"]

    here = {"HX-Request": "true", "HX-Current-URL": "http://localhost/"}
    answer = admin.post("/refinements/seen", {"status": "failed,interrupted"}, headers=here)

    assert open_kinds() == []
    assert "2 refinements marked as seen." in toast_of(answer)
    undo = unescape(toast_of(answer)).split('action="')[1].split('"')[0]
    admin.post("/refinements/seen", {"status": "failed,interrupted"})
    assert "Nothing of these waits to be seen." in admin.get("/refinements").text
    clock.advance(seconds=1)
    admin.post(undo)
    assert open_kinds() == ["failed", "failed"]
    assert "2 items marked as not seen." in admin.get("/refinements").text
    assert db.session.scalars(select(AttentionItem.seen_by).where(AttentionItem.id == item)).one() is not None
    actions = (Action.ATTENTION_SEEN, Action.ATTENTION_UNSEEN)
    assert db.session.scalar(select(func.count()).where(AuditLog.action.in_(actions))) == 5
    assert verify().ok


@pytest.mark.parametrize("path", ["/refinements/retry", "/refinements/seen", "/refinements/selection"])
@pytest.mark.parametrize(
    ("form", "status", "sentence"),
    [
        ({}, 422, "No refinements selected."),
        ({"boxes": "1", "status": "failed"}, 422, "No refinements selected."),
        ({"status": "nonsense", "matching": "1"}, 422, "There is no status 'nonsense'."),
        ({"refinement": ["00000000-0000-4000-8000-000000000000"]}, 404, "There is no such refinement in this account."),
        ({"refinement": ["'; --"]}, 404, "There is no such refinement in this account."),
        ({"refinement": [str(number) for number in range(501)]}, 422, "501 refinements selected. Select at most 500."),
    ],
)
def test_what_can_not_be_acted_on_is_refused_whole(
    admin: Browser, fleet: dict[str, str], path: str, form: dict[str, Any], status: int, sentence: str
) -> None:
    if form.get("refinement") and len(form["refinement"]) == 1:
        form = {"refinement": [fleet["ezra"], *form["refinement"]]}

    answer = admin.post(path, form)

    assert (answer.status_code, sentence in unescape(answer.text)) == (status, True)
    assert listed(admin, "status=queued")["matching"] == 0
    assert open_kinds() == ["failed", "failed"]


def test_no_more_than_one_click_takes_are_acted_on_and_that_is_said(
    admin: Browser, fleet: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST_AT_ONCE", 1)
    monkeypatch.setattr("app.views.refinements.MOST_AT_ONCE", 1)

    admin.post("/refinements/seen", {"status": "failed,interrupted"})

    assert "1 refinement marked as seen. These are the newest 1; 2 match now." in admin.get("/refinements").text
    assert ids(admin, "needs=attention") == [fleet["ezra"]]


def test_another_account_s_refinements_are_out_of_reach(neighbour: Browser, fleet: dict[str, str]) -> None:
    assert ids(neighbour) == []
    assert neighbour.post("/refinements/retry", {"refinement": [fleet["ezra"]]}).status_code == 404
    assert neighbour.post("/refinements/retry", {"agent": "ezra"}).status_code == 422
    neighbour.post("/refinements/seen", {"status": "failed,interrupted"})
    neighbour.post("/refinements/unseen?since=2020-01-01T00:00:00Z&until=2030-01-01T00:00:00Z")
    assert open_kinds() == ["failed", "failed"]


def test_an_auditor_looks_and_does_not_act(auditor: Browser, fleet: dict[str, str]) -> None:
    assert 'name="refinement"' not in auditor.get("/refinements").text
    for path in ("retry", "seen", "unseen", "selection"):
        assert auditor.post(f"/refinements/{path}", {"status": "failed"}).status_code == 403
    assert open_kinds() == ["failed", "failed"]


@pytest.mark.parametrize("since", ["", "yesterday", "2026-03-01", "2026-03-01T00:00:00"])
def test_an_undo_that_does_not_say_of_what_is_refused(admin: Browser, fleet: dict[str, str], since: str) -> None:
    answer = admin.post(f"/refinements/unseen?since={since}&until=2030-01-01T00:00:00Z")

    assert answer.status_code == 422
    assert "does not say when they were marked as seen" in answer.text


def test_enter_on_a_box_shows_the_list_again_with_the_same_boxes(admin: Browser, fleet: dict[str, str]) -> None:
    answer = admin.post("/refinements/selection", {"refinement": [fleet["mina"]], "status": "interrupted"})

    assert f'value="{fleet["mina"]}" aria-label="Select the refinement of mina' in answer.text
    assert answer.text.count(" checked") == 1


def test_a_hostile_name_is_shown_as_text(admin: Browser) -> None:
    run(agent_named("<script>alert(1)</script>"), Status.FAILED, failure="<img src=x>")
    page = admin.get("/refinements").text

    assert "<script>alert" not in page
    assert "<img" not in page
    assert "&lt;script&gt;alert(1)" in page
