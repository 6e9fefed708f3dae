"""Failures: grouped by their own reason on the overview, and every one of them in the list of refinements."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlencode

import pytest
from flask import Flask

from app.extensions import db, writing
from app.llm.client import ModelError, ModelErrorKind
from app.llm.failures import sentence_for
from app.models import Agent, Refinement, Status
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, remember
from tests.views.conftest import Browser

BROKEN = sentence_for("openai/big", ModelErrorKind.SERVER_ERROR, 500)
NO_KEY = ModelError(
    ModelErrorKind.NO_KEY, "The environment variable MY_KEY, which should hold the model's key, is not set."
)


def fail(name: str, error: ModelError | None, status: Status = Status.FAILED) -> Refinement:
    agent = make_agent(name)
    remember(agent, "Ann likes tea.", "Bob likes rum.")
    run = begin(agent)
    with writing():
        row = Refinement.lock(run.refinement.id)
        reason, failure = (error.sentence, error.summary) if error else (None, None)
        row.end(Agent.lock(agent.id), status, reason=reason, failure=failure)
    return row


def failed_on_the_overview(person: Browser) -> dict[str, object]:
    shown = person.get("/overview.json").json
    assert shown is not None
    return next(each for each in shown["attention"] if each["title"].startswith("Failed"))


def test_the_overview_says_each_reason_once_with_count_and_newest_time(auditor: Browser, clock: FakeClock) -> None:
    for number in range(3):
        fail(f"big {number}", BROKEN)
        clock.advance(minutes=1)
    fail("no key", NO_KEY)
    said = failed_on_the_overview(auditor)
    page = unescape(auditor.get("/").text)

    assert said["title"] == "Failed: 4 agents"
    assert [(each["reason"], each["agents"]) for each in said["reasons"]] == [  # type: ignore[attr-defined]
        ("The model openai/big failed (HTTP 500)", 3),
        (NO_KEY.sentence.removesuffix("."), 1),
    ]
    assert "Changes made before it failed were kept." in page
    assert re.search(r">3 agents</span> <a [^>]*>The model openai/big failed \(HTTP 500\)</a>", page)
    assert "The model could not be reached" not in page
    assert 'href="/refinements?status=failed,interrupted&needs=attention"' in page


def test_of_many_reasons_the_overview_says_the_first_and_how_many_there_are(auditor: Browser, app: Flask) -> None:
    for number in range(5):
        fail(f"agent {number}", sentence_for(f"openai/{number}", ModelErrorKind.SERVER_ERROR, 500))
    page = auditor.get("/").text

    assert page.count(" failed (HTTP 500)</a>") == 3
    assert '">All failures, 5 reasons</a>' in page
    assert len(failed_on_the_overview(auditor)["reasons"]) == 5  # type: ignore[arg-type]


@pytest.mark.parametrize("wait", [1.5, 12, 1e9])
def test_a_pause_that_a_server_asked_for_makes_no_reason_of_its_own(wait: float) -> None:
    said = sentence_for("openai/big", ModelErrorKind.RATE_LIMITED, 429, wait)

    assert said.sentence == f"{said.summary} and asks for a pause of {wait:g} seconds."
    assert said.summary == "The model openai/big limits how often it may be asked (HTTP 429)"


def test_the_link_of_a_reason_leads_to_exactly_the_agents_that_it_counts(auditor: Browser, clock: FakeClock) -> None:
    rate = [sentence_for("openai/100%_x", ModelErrorKind.RATE_LIMITED, 429, wait) for wait in (1, 2)]
    fail("slow 1", rate[0]), fail("slow 2", rate[1]), fail("other", BROKEN), fail("dead", None, Status.INTERRUPTED)
    recovered = fail("fine again", BROKEN)
    clock.advance(hours=1)
    run = begin(db.session.get_one(Agent, recovered.agent_id))
    run.tool.execute("complete", summary="Done.")

    def names(**asked: str) -> set[str]:
        shown = auditor.get(f"/failures.json?{urlencode(asked)}", follow_redirects=True).json
        assert shown is not None
        return {each["agent"] for each in shown["refinements"]}

    assert names() == {"slow 1", "slow 2", "other", "dead"}
    assert names(reason=rate[0].summary) == {"slow 1", "slow 2"}
    assert names(reason="No reason was recorded") == {"dead"}
    for other in ("The model openai/1", "%", "_", "The model openai/big failed"):
        assert names(reason=other) == set()
    link = re.search(r'<a href="([^"]+)">The model openai/100%_x', unescape(auditor.get("/").text))
    assert link
    assert {each["agent"] for each in auditor.get(link[1].replace("?", ".json?")).json["refinements"]} == {  # type: ignore[index]
        "slow 1",
        "slow 2",
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/failures", "/refinements?status=failed,interrupted&needs=attention"),
        ("/failures.json?x=1", "/refinements.json?status=failed,interrupted&needs=attention"),
        ("/failures?reason=%26a%3Db", "/refinements?status=failed,interrupted&needs=attention&reason=%26a%3Db"),
        ("/failures?before=77&reason=", "/refinements?status=failed,interrupted&needs=attention&before=77"),
    ],
)
def test_old_links_lead_to_the_list_of_refinements(auditor: Browser, old: str, new: str) -> None:
    answer = auditor.get(old)

    assert (answer.status_code, answer.headers["Location"]) == (301, new)


def test_those_of_another_account_are_not_told(neighbour: Browser, app: Flask) -> None:
    mine = fail("ezra", BROKEN)

    for query in ("", f"?before={mine.id}"):
        assert neighbour.get(f"/failures.json{query}", follow_redirects=True).json["refinements"] == []  # type: ignore[index]


def test_a_reason_is_told_as_text_whatever_it_holds(auditor: Browser, app: Flask) -> None:
    fail("ezra", ModelError(ModelErrorKind.SERVER_ERROR, "<script>alert(1)</script> broke."))

    assert "<script>alert(1)" not in auditor.get("/").text + auditor.get("/failures", follow_redirects=True).text
