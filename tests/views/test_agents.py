"""The list of agents, making one, and what can be done to one or many."""

from __future__ import annotations

import re
from html import unescape

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db, writing
from app.history.verify import verify
from app.models import COMMAND_LINE, Account, Action, Agent, AgentToken, AuditLog, Mode, Refinement, Status
from app.silo import parse_token
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, remember
from tests.support.rows import fresh
from tests.views.conftest import Browser, toast_of

NEW = {"name": "Ezra", "model_id": "whetstone/offline", "core_token_budget": "5000"}


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent()
    remember(made, "Ann likes tea.", "Bob likes rum.")
    return made


def make_many(count: int) -> None:
    with writing():
        Account.lock(1)
        for number in range(count):
            Agent.create(1, name=f"agent {number:03}", model_id="whetstone/offline", by=COMMAND_LINE)


def test_creating_an_agent_shows_its_token_in_that_one_answer(admin: Browser) -> None:
    answer = admin.post("/agents", {**NEW, "refinement_threshold": "0.8", "system_prompt": "You are Ezra."})

    found = re.search(r'<code id="token">([^<]+)</code>', answer.text)
    assert answer.status_code == 201
    assert found is not None
    parsed = parse_token(unescape(found[1]))
    stored = db.session.scalars(select(AgentToken)).one()
    agent = db.session.get_one(Agent, stored.agent_id)
    assert parsed is not None
    assert parsed[0] == stored.public_id
    assert answer.headers["Cache-Control"] == "no-store"
    assert (agent.name, str(agent.refinement_threshold), agent.system_prompt) == ("Ezra", "0.8000", "You are Ezra.")
    assert found[1] not in admin.get(f"/agents/{agent.id}/tokens").text
    assert verify().ok


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("name", "  ", "The name must have 1 to 80 characters."),
        ("name", "x" * 81, "The name must have 1 to 80 characters."),
        ("model_id", "", "The model must be a LiteLLM name"),
        ("core_token_budget", "0", "The budget must be a whole number"),
        ("core_token_budget", "5k", "The budget must be a whole number"),
        ("core_token_budget", "١٢", "The budget must be a whole number"),
        ("refinement_threshold", "NaN", "The threshold is out of range"),
        ("refinement_threshold", "1.5", "The threshold is out of range"),
        ("refinement_threshold", "abc", "The threshold is not a number"),
        ("api_base", "ftp://x", "The API base must be an address"),
        ("api_key_env", "sk-123", "The API key is given as the NAME"),
        ("api_key_env", "AWS_SECRET_ACCESS_KEY", "may not be used for one: its value would go to the model's address"),
        ("model_id", "huggingface/http://127.0.0.1:9/x", "The model must be a LiteLLM name"),
        ("system_prompt", "x" * 10_001, "10,001 characters"),
        ("system_prompt", "a\x00b", "NUL character"),
    ],
)
def test_it_refuses_what_can_not_be_an_agent_and_keeps_what_was_typed(
    admin: Browser, field: str, value: str, sentence: str
) -> None:
    answer = admin.post("/agents", {**NEW, "api_key_env": "MY_KEY", field: value})

    assert answer.status_code == 422
    assert sentence in unescape(answer.text)
    assert "Nothing was saved." in answer.text
    assert "whetstone/offline" in answer.text or field == "model_id"
    assert db.session.scalar(select(Agent.id)) is None


def test_it_refuses_a_name_that_is_taken(admin: Browser, agent: Agent) -> None:
    answer = admin.post("/agents", {**NEW, "name": "ezra"})

    assert answer.status_code == 422
    assert "exists already in this account" in unescape(answer.text)


def test_the_list_goes_on_from_a_name_and_never_skips_one(admin: Browser) -> None:
    make_many(120)

    names, after, pages = [], "", 0
    while True:
        shown = admin.get(f"/agents.json?after={after}").json
        assert shown is not None
        names += [row["name"] for row in shown["agents"]]
        pages, after = pages + 1, shown["next_after"]
        if not after:
            break

    assert pages == 3
    assert names == [f"agent {number:03}" for number in range(120)]
    assert "Next 50" in admin.get("/agents").text


def test_it_filters_by_name_and_state_literally(admin: Browser, agent: Agent) -> None:
    make_agent("100%_sure", core_token_budget=1)
    make_agent("mina")
    with writing():
        Agent.lock(agent.id).paused = True

    def names(query: str) -> list[str]:
        shown = admin.get(f"/agents.json?{query}").json
        assert shown is not None
        return [row["name"] for row in shown["agents"]]

    assert names("query=EZ") == ["ezra"]
    assert names("query=%25_") == ["100%_sure"]
    assert names("state=paused") == ["ezra"]
    assert "No agents match" in admin.get("/agents?query=zzz").text


def test_a_filter_that_there_is_not_is_said_at_its_field_and_to_programs(admin: Browser, agent: Agent) -> None:
    for field in ("state", "outcome", "due", "sort"):
        shown = admin.get(f"/agents?{field}=<script>&query=ez").text
        told = admin.get(f"/agents.json?{field}=<script>")
        assert f'id="f-{field}-error"' in shown and "There is no" in shown and "<script>&" not in shown
        assert 'value="ez"' in shown and "Select ezra" not in shown
        assert told.status_code == 422


def test_it_filters_by_how_the_last_refinement_ended_and_counts_what_matches(admin: Browser, agent: Agent) -> None:
    make_agent("mina")
    run = begin(agent)
    with writing():
        Refinement.lock(run.refinement.id).end(Agent.lock(agent.id), Status.FAILED)

    shown = admin.get("/agents.json?outcome=failed").json
    assert shown is not None
    assert [row["name"] for row in shown["agents"]] == ["ezra"]
    assert (shown["matched"], shown["total"]) == (1, 2)
    assert "1 of 2 match" in admin.get("/agents?outcome=failed").text
    assert "No agents match" in admin.get("/agents?outcome=declined").text


def test_a_column_is_sorted_by_its_head_and_back(admin: Browser, agent: Agent) -> None:
    make_agent("mina")
    heads = admin.get("/agents?sort=-memory&state=never").text

    assert re.findall(r'aria-sort="(\w+)"><a class="sort" href="([^"]+)"', heads) == [
        ("descending", "/agents?state=never&amp;sort=memory")
    ]
    assert heads.index(">ezra<") < heads.index(">mina<")
    assert "./whetstone agents list --state never --sort -memory" in unescape(heads)


def test_pausing_can_be_undone_from_its_toast(admin: Browser, agent: Agent) -> None:
    answer = admin.press(f"/agents/{agent.id}/pause")

    assert answer.status_code == 200
    assert fresh(agent).paused
    assert "ezra is paused: no refinement starts by itself." in toast_of(answer)
    assert f'action="/agents/{agent.id}/resume"' in toast_of(answer)
    assert 'hx-target="#agent-state"' in answer.text
    assert "Nothing starts by itself until it is resumed" in unescape(answer.text) or "Paused:" in answer.text
    admin.press(f"/agents/{agent.id}/resume")
    assert not fresh(agent).paused


def test_without_scripts_pausing_leads_back_to_the_page_with_its_message(admin: Browser, agent: Agent) -> None:
    answer = admin.post(f"/agents/{agent.id}/pause")
    page = admin.get(answer.headers["Location"])

    assert answer.status_code == 303
    assert "ezra is paused" in page.text
    assert "Undo" in page.text


def test_refining_leads_to_the_refinement(admin: Browser, agent: Agent) -> None:
    answer = admin.press(f"/agents/{agent.id}/refinements")

    refinement = Refinement.open_of(agent.id)
    assert refinement is not None
    assert answer.headers["HX-Redirect"] == f"/refinements/{refinement.id}"
    assert (refinement.mode, refinement.trigger, refinement.started_by) == (
        Mode.FULL,
        "admin",
        "user:admin-1@example.org",
    )


def test_an_inactive_one_offers_no_start_but_says_how_to_activate_it(admin: Browser, agent: Agent) -> None:
    address = f"/agents/{agent.id}"
    assert f'action="{address}/refinements"' in admin.get(address).text
    with writing():
        Agent.lock(agent.id).active = False
    text = admin.get(address).text

    assert f'action="{address}/refinements"' not in text
    assert f"<code>./whetstone agents set {agent.name} --active</code>" in text


def test_exact_duplicates_only_asks_nobody(admin: Browser, agent: Agent) -> None:
    admin.post(f"/agents/{agent.id}/refinements", {"mode": "dedup_only"})

    refinement = Refinement.open_of(agent.id)
    assert refinement is not None
    assert refinement.mode == Mode.DEDUP_ONLY


def test_a_second_start_leads_to_the_open_one(admin: Browser, agent: Agent) -> None:
    first = begin(agent).refinement
    answer = admin.press(f"/agents/{agent.id}/refinements")
    page = admin.get(answer.headers["HX-Redirect"])

    assert answer.headers["HX-Redirect"] == f"/refinements/{first.id}"
    assert "Already running: this is the open one." in page.text


def test_an_empty_ledger_is_refused_in_a_sentence(admin: Browser) -> None:
    empty = make_agent("blank")
    pressed, posted = (send(f"/agents/{empty.id}/refinements") for send in (admin.press, admin.post))

    assert (pressed.status_code, posted.status_code) == (409, 409)
    assert "no core memories to refine" in pressed.text
    assert 'hx-target="#toasts"' in pressed.text
    assert "no core memories to refine" in posted.text
    assert Refinement.open_of(empty.id) is None


def test_a_no_is_respected_for_a_day(admin: Browser, agent: Agent) -> None:
    from app.extensions import now
    from app.models import Consent

    run = begin(agent)
    with writing() as session:
        Refinement.lock(run.refinement.id).end(Agent.lock(agent.id), Status.DECLINED)
        session.add(
            Consent(
                account_id=1,
                agent_id=agent.id,
                refinement_id=run.refinement.id,
                granted=False,
                asked_at=now(),
                answered_at=now(),
            )
        )

    assert admin.press(f"/agents/{agent.id}/refinements").status_code == 409
    assert "not asked again before Tuesday 04:00 UTC" in admin.get(f"/refinements/{run.refinement.id}").text


def test_many_are_paused_resumed_and_refined_at_once(admin: Browser, agent: Agent) -> None:
    other = make_agent("mina")
    chosen = {"agent": [str(agent.id), str(other.id)], "query": "a"}

    paused = admin.post("/agents/pause", chosen)
    assert paused.headers["Location"] == "/agents?query=a"
    assert fresh(agent).paused and fresh(other).paused
    admin.post("/agents/resume", chosen)
    assert not fresh(agent).paused and not fresh(other).paused
    page = admin.get(admin.post("/agents/refinements", chosen).headers["Location"]).text
    db.session.rollback()
    assert "1 agent put on the queue. 1 agent not: The agent has no core memories to refine." in page
    assert Refinement.open_of(agent.id) is not None


def test_acting_on_none_says_so(admin: Browser, agent: Agent) -> None:
    """On the list itself, as it was looked at; a program gets a problem document."""
    make_agent("mina")
    for act in ("pause", "resume", "refinements"):
        answer = admin.post(f"/agents/{act}", {"query": "min"})
        assert answer.status_code == 422
        assert "No agents selected. Select at least one." in answer.text
        assert 'aria-label="Select mina"' in answer.text and "Select ezra" not in answer.text
        told = admin.post(f"/agents/{act}", {}, headers={"Accept": "application/json"})
        assert (told.status_code, told.json["detail"]) == (422, "No agents selected. Select at least one.")  # type: ignore[index]


def test_too_many_at_once_are_refused_with_every_box_still_checked(admin: Browser) -> None:
    make_many(201)
    ids = [str(agent_id) for agent_id in db.session.scalars(select(Agent.id))]
    answer = admin.post("/agents/pause", {"agent": ids})

    assert answer.status_code == 422
    assert "201 agents selected. Select at most 200. Nothing was changed." in answer.text
    assert answer.text.count(" checked>") == 50
    assert db.session.scalar(select(Agent.id).where(Agent.paused)) is None


def test_all_that_match_are_paused_and_undo_takes_back_exactly_those(admin: Browser) -> None:
    """Neither one that was paused before, nor one that somebody resumed and paused anew since."""
    make_many(120)
    ids = {name: number for number, name in db.session.execute(select(Agent.id, Agent.name)).tuples()}
    for name in ("agent 007", "agent 100"):
        admin.post(f"/agents/{ids[name]}/pause")
    page = admin.get("/agents?query=agent+0").text
    assert "Select all 100 matching" in page and 'data-matching="100"' in page

    answer = admin.post("/agents/pause", {"all": "1", "query": "agent 0", "agent": str(ids["agent 100"])})
    said = admin.get(answer.headers["Location"]).text
    undo = re.search(r'action="(/agents/acts/[0-9a-f-]{36}/undo)"', said)
    assert answer.headers["Location"] == "/agents?query=agent+0"
    assert "99 agents paused. 1 agent needed no change." in said
    assert undo is not None
    admin.post(f"/agents/{ids['agent 009']}/resume")
    admin.post(f"/agents/{ids['agent 009']}/pause")
    done = admin.get(admin.post(undo[1]).headers["Location"]).text
    db.session.rollback()

    paused = set(db.session.scalars(select(Agent.name).where(Agent.paused)))
    assert paused == {"agent 007", "agent 009", "agent 100"}
    assert "98 agents resumed again. 1 agent left alone" in done
    again = re.search(r'action="(/agents/acts/[0-9a-f-]{36}/undo)"', done)
    assert again is not None
    admin.post(again[1])
    db.session.rollback()
    assert len(set(db.session.scalars(select(Agent.name).where(Agent.paused)))) == 101
    assert admin.post(undo[1]).status_code == 303
    assert verify().ok


def test_an_act_of_another_account_or_of_long_ago_can_not_be_undone(
    admin: Browser, neighbour: Browser, auditor: Browser, agent: Agent, clock: FakeClock
) -> None:
    said = admin.get(admin.post("/agents/pause", {"agent": str(agent.id)}).headers["Location"]).text
    undo = re.search(r'action="(/agents/acts/[0-9a-f-]{36}/undo)"', said)
    assert undo is not None

    assert neighbour.post(undo[1]).status_code == 404
    assert auditor.post(undo[1]).status_code == 403
    clock.advance(hours=25)
    assert admin.post(undo[1]).status_code == 404
    assert fresh(agent).paused


def test_selecting_all_that_match_minds_the_filters_and_who_asks(
    admin: Browser, agent: Agent, auditor: Browser
) -> None:
    with writing():
        other = Account.create("Next door").id
        Agent.create(other, name="zoe", model_id="whetstone/offline", by=COMMAND_LINE)
    nonsense = admin.post("/agents/pause", {"all": "1", "state": "odd"})
    nobody = admin.post("/agents/pause", {"all": "1", "query": "zzz"})

    assert (nonsense.status_code, nobody.status_code) == (422, 422)
    assert "There is no state" in nonsense.text and "No agents selected." in nobody.text
    assert auditor.post("/agents/pause", {"all": "1"}).status_code == 403
    assert not fresh(agent).paused
    admin.post("/agents/pause", {"all": "1"})
    db.session.rollback()
    assert list(db.session.scalars(select(Agent.name).where(Agent.paused))) == ["ezra"]


def test_all_that_match_are_not_refined_when_they_are_many(admin: Browser) -> None:
    make_many(201)
    answer = admin.post("/agents/refinements", {"all": "1"})

    assert answer.status_code == 422
    assert "201 agents selected. Select at most 200. Nothing was changed." in answer.text
    assert "201 selected" in answer.text
    assert db.session.scalar(select(Refinement.id)) is None


def test_a_row_shows_how_its_mass_went(admin: Browser, agent: Agent) -> None:
    for _ in range(2):
        run = begin(agent)
        with writing():
            Refinement.lock(run.refinement.id).end(Agent.lock(agent.id), Status.COMPLETED)

    assert 'aria-label="Mass over 90 days: 8 → 8 tokens"' in admin.get("/agents").text


def test_the_first_button_of_the_list_does_nothing_but_show_it_again(admin: Browser, agent: Agent) -> None:
    """Enter on a box presses a form's first button, whether it can be seen or not."""
    form = re.search(r'<form id="many".*?</form>', admin.get("/agents").text, re.S)
    assert form is not None
    first = re.search(r"<button[^>]*>", form[0])
    assert first is not None and 'formaction="/agents/selection"' in first[0]
    answer = admin.post("/agents/selection", {"agent": str(agent.id), "query": "ez"})

    assert answer.status_code == 200
    assert f'value="{agent.id}" aria-label="Select ezra" checked' in answer.text
    assert "1 selected" in answer.text
    assert not fresh(agent).paused
    assert Refinement.open_of(agent.id) is None


def test_every_act_is_audited_as_the_person_who_did_it(admin: Browser, agent: Agent) -> None:
    admin.press(f"/agents/{agent.id}/pause")
    admin.press(f"/agents/{agent.id}/resume")

    db.session.rollback()
    acts = db.session.execute(
        select(AuditLog.action, AuditLog.actor)
        .where(AuditLog.action.in_((Action.AGENT_PAUSE, Action.AGENT_RESUME)))
        .order_by(AuditLog.id)
    ).tuples()
    assert list(acts) == [("agent_pause", "user:admin-1@example.org"), ("agent_resume", "user:admin-1@example.org")]
    assert verify().ok


def test_an_agents_twin_is_the_stable_form(admin: Browser, agent: Agent) -> None:
    shown = admin.get(f"/agents/{agent.id}.json").json

    assert shown is not None
    stable = (
        "id name model_id core_token_usage core_count journal_count core_token_budget refinement_threshold "
        "effective_refinement_threshold needs_refinement active paused last_refinement_at open_refinement"
    )
    assert set(stable.split()) <= set(shown)
    assert shown["needs_refinement"] is True
    assert shown["ledger"][0] == {
        "id": 1,
        "type": "core",
        "tokens": 4,
        "constitutional": False,
        "immutable": False,
        "tags": [],
        "origin_at": shown["ledger"][0]["origin_at"],
        "other_dates": [],
        "merged_sources": 0,
        "merges": 0,
        "source": "agent",
        "discarded": False,
        "discarded_at": None,
        "version": 1,
    }


def test_tokens_are_listed_without_any_secret(admin: Browser) -> None:
    admin.post("/agents", NEW)
    stored = db.session.scalars(select(AgentToken)).one()
    page = admin.get(f"/agents/{stored.agent_id}/tokens").text

    assert stored.public_id in page
    assert stored.token_hash.hex() not in page


def test_an_old_link_to_the_ledger_on_the_summary_leads_to_the_way_there(admin: Browser, agent: Agent) -> None:
    page = admin.get(f"/agents/{agent.id}").text

    assert re.findall(rf'id="ledger"><a href="(/agents/{agent.id}/ledger)"', page) == [f"/agents/{agent.id}/ledger"]
