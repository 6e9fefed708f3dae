"""What those who may not are told; that they do nothing, the sweeps see (`test_matrix`, `test_hardening`)."""

from __future__ import annotations

import pytest
from flask import Flask

from app.models import Agent
from tests.support.factories import make_agent
from tests.views.conftest import Browser


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


def test_an_expired_sign_in_sends_htmx_to_the_sign_in_page(stranger: Browser, agent: Agent) -> None:
    answer = stranger.press(f"/agents/{agent.id}/pause")

    assert answer.headers["HX-Redirect"] == "/sign-in"


def test_an_auditor_is_told_that_an_act_needs_another_role(auditor: Browser, agent: Agent) -> None:
    answer = auditor.post(f"/agents/{agent.id}/pause")

    assert answer.status_code == 403
    assert "This needs the role" in answer.text


def test_an_operator_reads_no_accounts_pages(operator: Browser) -> None:
    answer = operator.get("/agents")

    assert answer.status_code == 403
    assert "no role that may read" in answer.text


def test_a_number_that_no_row_can_have_is_not_found(admin: Browser) -> None:
    for path in (f"/agents/{10**30}", f"/agents/{2**63}/refinements"):
        assert admin.get(path).status_code == 404, path
    assert admin.press(f"/agents/{10**30}/pause").status_code == 404
