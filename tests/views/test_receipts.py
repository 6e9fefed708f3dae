"""Receipts on the pages: beside each decision, for those of the account who may read its pages."""

from __future__ import annotations

import pytest
from flask import Flask

import tasks.statements
from app.asking.calls import Dependencies
from app.asking.replies import ConsentAnswer
from app.authoring.asked_changes import ask_agent
from app.grants.request import decide_grant
from app.models import Agent
from app.models.statement import StatementKind
from app.models.statement_log import statement_log
from app.statements.checkpointing import make_checkpoint
from app.statements.receipts import check_receipt
from app.tokens.asking import ask_about_token
from app.views.shown.receipt import KIND_WORDS
from tests.api.telling import ask_for_change, ask_for_token, ask_to_look, prove_statement
from tests.support.factories import make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients, say
from tests.views.conftest import Browser


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent(model_id="openai/gpt-5")


def test_an_auditor_downloads_the_receipt_of_each_statement(auditor: Browser, agent: Agent) -> None:
    index = prove_statement(agent)
    page = auditor.get(f"/agents/{agent.id}/receipts")
    assert f'href="/receipts/{index}"' in page.text

    file = auditor.get(f"/receipts/{index}")

    assert (file.status_code, file.mimetype) == (200, "text/plain")
    assert file.headers["Content-Disposition"] == f'attachment; filename="whetstone-receipt-{index}.txt"'
    assert check_receipt(file.data, statement_log().keys.verifier).said.body["model_id"] == "openai/gpt-5"


@pytest.mark.parametrize(("granted", "answer"), [(True, "YES"), (False, "NO")])
def test_an_answer_s_receipt_stands_on_the_page_of_the_exception(
    admin: Browser, agent: Agent, granted: bool, answer: str
) -> None:
    exception_id = ask_to_look(agent)
    link = f'href="/receipts/{exception_id}"'
    assert link not in admin.get(f"/exceptions/{exception_id}").text
    decide_grant(exception_id, ConsentAnswer(granted, ""), agent_id=agent.id, by=agent.as_actor, keys=None)
    make_checkpoint()

    assert link in admin.get(f"/exceptions/{exception_id}").text
    said = check_receipt(admin.get(f"/receipts/{exception_id}").data, statement_log().keys.verifier).said
    assert said.body["granted"] is granted
    listed = admin.get(f"/agents/{agent.id}/receipts.json").json
    assert listed is not None
    assert listed["receipts"][0]["answer"] == answer


def test_without_a_checkpoint_the_page_says_when_to_come_back(
    admin: Browser, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = prove_statement(agent)
    later = make_agent("wren")
    monkeypatch.setattr(tasks.statements, "wait_for_checkpoint", lambda _: False)
    assert admin.get(f"/receipts/{index}").status_code == 200

    listed = admin.get(f"/agents/{later.id}/receipts.json").json
    assert listed is not None
    answer = admin.get(f"/receipts/{listed['receipts'][0]['index']}")

    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "60"
    assert "the hourly checkpoint will cover it" in answer.text


@pytest.mark.parametrize(("words", "answer"), [("YES", True), ("NO", False)])
@pytest.mark.parametrize(
    ("asked", "path", "listed"), [("token", "tokens", "requests"), ("change", "settings", "asked")]
)
def test_an_answer_s_receipt_stands_where_a_token_or_a_change_is_shown_and_in_the_twin_and_the_log(
    admin: Browser, agent: Agent, asked: str, path: str, listed: str, words: str, answer: bool
) -> None:
    remember(agent, "Ann likes tea.")
    request_id = ask_for_token(agent) if asked == "token" else ask_for_change(agent)
    page, receipt = f"/agents/{agent.id}/{path}", f"/receipts/{request_id}"
    assert receipt not in admin.get(page).text
    models = Dependencies(ScriptedClients(ScriptedClient(say(words))))
    (ask_about_token if asked == "token" else ask_agent)(request_id, models)
    make_checkpoint()

    assert f'href="{receipt}"' in admin.get(page).text
    twin, log = admin.get(f"{page}.json").json, admin.get(f"/agents/{agent.id}/audit.json").json
    assert twin is not None
    assert log is not None
    assert twin[listed][0]["receipt"] == receipt
    assert receipt in [entry["receipt"] for entry in log["entries"]]
    said = check_receipt(admin.get(receipt).data, statement_log().keys.verifier).said
    assert (said.kind, said.body["granted"]) == (StatementKind.CONSENT, answer)


def test_the_neighbours_see_none(neighbour: Browser, agent: Agent) -> None:
    index = prove_statement(agent)
    for path in (f"/receipts/{index}", "/receipts/0", "/receipts/nothing", f"/agents/{agent.id}/receipts"):
        assert neighbour.get(path).status_code == 404


def test_every_kind_of_statement_has_its_words() -> None:
    assert set(KIND_WORDS) == set(StatementKind)
