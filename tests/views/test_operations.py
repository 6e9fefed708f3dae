"""Schedule, limits, models and health under /settings: who sees what, and what nonsense and absent parts come to."""

from __future__ import annotations

import time
from html import unescape

import pytest
from flask import Flask
from sqlalchemy import text

from app.extensions import db, writing
from app.history.proof import prove_due
from app.models import Account
from app.models.user import OWNER, SITE_ADMIN
from app.views.shown.operations import WAIT_SECONDS
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.views.conftest import Browser, browser

PAGES = ("schedule", "limits", "models", "health")


def checks(browser: Browser) -> dict[str, dict[str, str]]:
    return {each["name"]: each for each in browser.get("/settings/health.json").json["checks"]}  # type: ignore[index]


@pytest.mark.parametrize("page", PAGES)
def test_an_auditor_may_look_and_finds_the_command(auditor: Browser, app: Flask, page: str) -> None:
    answer = auditor.get(f"/settings/{page}")

    assert answer.status_code == 200
    command = {"models": "models list", "health": "doctor"}.get(page, page)
    assert f"./whetstone {command}" in answer.text
    assert f'href="/settings/{page}" aria-current="page"' in answer.text
    assert auditor.get(f"/settings/{page}.json").status_code == 200


def test_a_crontab_is_explained_and_nonsense_gets_a_sentence_at_its_field(auditor: Browser, app: Flask) -> None:
    good = auditor.get("/settings/schedule", query_string={"crontab": "30 22 * * 1-5"})
    assert good.status_code == 200
    assert "Monday through Friday at 22:30 UTC" in good.text
    assert "Every Monday at 04:00 UTC" in good.text
    for typed, sentence in (
        ("<script>alert(1)</script>", "This must be a crontab of five fields"),
        ("0 0 */15 2 MON#2", "This never runs"),
        ("x" * 4000, "This must be a crontab"),
    ):
        answer = auditor.get("/settings/schedule", query_string={"crontab": typed})
        twin = auditor.get("/settings/schedule.json", query_string={"crontab": typed})
        assert (answer.status_code, twin.status_code) == (422, 422)
        assert sentence in unescape(answer.text) and 'aria-invalid="true"' in answer.text
        assert "<script>alert" not in answer.text
        assert "Every Monday at 04:00 UTC" in answer.text
    assert auditor.get("/settings/schedule", query_string={"crontab": " "}).status_code == 200


def test_due_agents_and_models_are_those_of_one_s_own_account(auditor: Browser, neighbour: Browser, app: Flask) -> None:
    remember(make_agent("ezra", model_id="openai/mine"), "Ann likes tea.")

    mine, theirs = (each.get("/settings/schedule.json").json for each in (auditor, neighbour))
    assert mine is not None and theirs is not None
    assert (mine["next_runs"][0]["due"], theirs["next_runs"][0]["due"], theirs["agents"]) == (1, 0, 0)
    assert "openai/mine" in auditor.get("/settings/models").text
    assert "No models in use" in neighbour.get("/settings/models").text


def test_the_host_s_addresses_are_for_an_operator_only(owner: Browser, web: Flask) -> None:
    operator = browser(web, SITE_ADMIN, OWNER)

    for name in ("DATABASE_URL", "WHETSTONE_DATA_DIR", "WHETSTONE_HOST"):
        assert name not in owner.get("/settings/limits").text + owner.get("/settings/limits.json").text
        assert name in operator.get("/settings/limits").text


def test_each_part_has_a_state_and_what_to_do_and_those_away_cost_no_time(auditor: Browser, app: Flask) -> None:
    began = time.monotonic()
    page = auditor.get("/settings/health").text
    assert time.monotonic() - began < 2 * WAIT_SECONDS + 2

    found = checks(auditor)
    assert (found["broker"]["state"], found["worker"]["state"]) == ("fail", "skipped")
    assert found["database"]["state"] == found["version"]["state"] == "ok"
    assert "whetstone up" in str(found["broker"])
    assert (found["backup"]["state"], "keys backup FILE" in str(found["backup"]["fix"])) == ("warn", True)
    assert "Something is wrong." in page and "tone-bad" in page


def test_of_other_accounts_an_account_s_owner_learns_nothing(
    owner: Browser, neighbour: Browser, web: Flask, app: Flask, clock: FakeClock
) -> None:
    operator = browser(web, SITE_ADMIN, OWNER)
    make_agent("ezra")
    with writing():
        db.session.execute(text("UPDATE agents SET core_count = 7"))
    prove_due(clock.now())
    with writing():
        Account.create("A third")

    assert checks(owner)["proof"]["state"] == "fail"
    assert "core_count is 7" in checks(operator)["proof"]["detail"]
    told = checks(neighbour)
    assert told["proof"]["state"] == "ok"
    assert "core_count" not in str(told) and str(app.extensions["settings"].data) not in str(told)
