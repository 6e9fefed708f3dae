"""The overview: what needs attention comes first, and an empty account is shown the way."""

from __future__ import annotations

from tests.support.factories import begin, make_agent, remember
from tests.views.conftest import Browser


def test_an_empty_account_is_shown_the_two_ways_to_begin(admin: Browser) -> None:
    page = admin.get("/")

    assert page.status_code == 200
    assert "Create an agent" in page.text
    assert "Try the demo" in page.text
