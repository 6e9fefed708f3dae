"""One's own agent in the address, and what belongs to another account behind it or in the form: nothing is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from app.models import Agent
from tests.support.factories import make_agent, remember
from tests.views.conftest import Browser
from tests.views.site import ACTS, Subject, act_of, make_subject, routes
from tests.views.test_matrix import unchanged


@pytest.fixture
def subject(app: Flask, owner: Browser) -> Subject:
    """Of the first account."""
    return make_subject()


@pytest.fixture
def mine(neighbour: Browser) -> Agent:
    """The neighbour's own agent."""
    assert neighbour.user is not None
    made = make_agent("next door", account_id=neighbour.user.account_id)
    remember(made, "Ida likes rain.")
    return made


def test_no_address_mixes_one_s_own_agent_with_what_is_another_s(
    web: Flask, neighbour: Browser, mine: Agent, subject: Subject
) -> None:
    tried = 0
    for method in ("GET", "POST"):
        for rule in routes(web, method):
            if not {"agent_id"} < rule.arguments:
                continue
            act = act_of(rule) if method == "POST" else None
            path = subject.path(rule, **{**(act.named(subject) if act else {}), "agent_id": str(mine.id)})
            ask: Callable[[], TestResponse] = lambda: (  # noqa: E731
                neighbour.post(path, act.form(subject)) if act else neighbour.get(path, buffered=True)  # noqa: B023
            )
            assert unchanged(ask).status_code == 404, f"{method} {path}"
            tried += 1
    assert tried >= 6


@pytest.mark.parametrize(
    "endpoint", ["settings.revert", "agents.pause_many", "agents.resume_many", "agents.refine_many"]
)
def test_no_form_names_what_is_another_s_beside_one_s_own(
    web: Flask, neighbour: Browser, mine: Agent, subject: Subject, endpoint: str
) -> None:
    (rule,) = (each for each in routes(web, "POST") if each.endpoint == endpoint)
    form: dict[str, Any] = {**ACTS[endpoint].form(subject)}
    if "agent" in form:
        form["agent"] = [str(mine.id), subject.values["agent_id"]]
    path = subject.path(rule, agent_id=str(mine.id)) if rule.arguments else rule.rule
    assert unchanged(lambda: neighbour.post(path, form)).status_code == 404


def test_nobody_asks_to_see_a_refinement_of_another_account(
    web: Flask, neighbour: Browser, mine: Agent, subject: Subject
) -> None:
    form = {**ACTS["exceptions.ask"].form(subject), "scope": subject.values["refinement_id"]}
    answer = unchanged(lambda: neighbour.post(f"/agents/{mine.id}/exceptions", form))
    missing = unchanged(lambda: neighbour.post(f"/agents/{mine.id}/exceptions", {**form, "scope": "0" * 36}))
    assert (answer.status_code, missing.status_code) == (422, 422)
    assert "has no such refinement" in answer.text
    assert subject.values["refinement_id"] not in missing.text


@pytest.mark.parametrize("number", ["0", "-1", "9" * 19, "9" * 40, "1e3", "", "x", "١"])
def test_a_number_that_no_row_has_is_like_one_that_does_not_exist(neighbour: Browser, mine: Agent, number: str) -> None:
    for path, form in (
        ("/agents/pause", {"agent": number}),
        ("/agents/pause", {"agent": [str(mine.id), number]}),
        (f"/agents/{mine.id}/settings/revert", {"entry": number, "field": "name"}),
    ):
        answer = unchanged(lambda path=path, form=form: neighbour.post(path, form))
        assert answer.status_code in (404, 422), f"{path} {number}"
