"""Receipts on the pages: beside each decision, for those of the account who may read its pages."""

from __future__ import annotations

import pytest
from flask import Flask

import tasks.statements
from app.asking.replies import ConsentAnswer
from app.grants.request import decide_grant
from app.models import Agent
from app.models.statement import StatementKind
from app.models.statement_log import statement_log
from app.statements.checkpointing import make_checkpoint
from app.statements.receipts import check_receipt
from app.views.shown.receipt import KIND_WORDS
from tests.api.telling import ask_to_look, prove_statement
from tests.support.factories import make_agent
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
    assert check_receipt(file.data, statement_log().verifier).said.body["model_id"] == "openai/gpt-5"


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
    said = check_receipt(admin.get(f"/receipts/{exception_id}").data, statement_log().verifier).said
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


def test_the_neighbours_see_none(neighbour: Browser, agent: Agent) -> None:
    index = prove_statement(agent)
    for path in (f"/receipts/{index}", "/receipts/0", "/receipts/nothing", f"/agents/{agent.id}/receipts"):
        assert neighbour.get(path).status_code == 404


def test_every_kind_of_statement_has_its_words() -> None:
    assert set(KIND_WORDS) == set(StatementKind)
