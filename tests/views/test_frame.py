"""The frame: closed by its headers, honest in its errors, the same words for times as the script."""

from __future__ import annotations

from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy.exc import OperationalError

from app.views.frame import POLICY
from app.views.words import ago_words
from tests.support.clock import FakeClock
from tests.support.factories import make_agent
from tests.views.conftest import Browser


@pytest.mark.parametrize("path", ["/", "/sign-in", "/nowhere", "/agents.json", "/assets/nothing.js", "/healthz"])
def test_every_answer_closes_the_page(admin: Browser, path: str) -> None:
    answer = admin.get(path)
    answer.close()
    headers = answer.headers

    assert headers["Content-Security-Policy"] == POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "frame-ancestors 'none'" in POLICY
    assert "unsafe" not in POLICY


def test_pages_are_not_kept(admin: Browser) -> None:
    assert admin.get("/").headers["Cache-Control"] == "no-store"


def test_no_template_needs_what_the_policy_forbids(web: Flask) -> None:
    assert web.jinja_loader is not None
    names = [name for name in web.jinja_loader.list_templates() if name.endswith(".html")]
    for name in names:
        source = web.jinja_loader.get_source(web.jinja_env, name)[0]
        for forbidden in (" style=", "<style", "onclick", "hx-on", "javascript:", "hx-vals='js", "<script>"):
            assert forbidden not in source, name
    assert len(names) > 30


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "just now"),
        (4, "just now"),
        (5, "5 s ago"),
        (59, "59 s ago"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (3600, "1 h ago"),
        (86_400, "1 d ago"),
        (86_400 * 400, "400 d ago"),
        (-7200, "in 2 h"),
        (-3, "just now"),
    ],
)
def test_times_are_told_as_the_script_tells_them(web: Flask, clock: FakeClock, seconds: int, words: str) -> None:
    with web.app_context():
        assert ago_words(clock.now() - timedelta(seconds=seconds)) == words


def test_an_error_comes_in_the_form_that_was_asked_for(admin: Browser) -> None:
    page, toast, problem = (
        admin.get("/agents/77"),
        admin.get("/agents/77", headers={"HX-Request": "true"}),
        admin.get("/agents/77.json"),
    )

    assert (page.status_code, toast.status_code, problem.status_code) == (404, 404, 404)
    assert "Page not found" in page.text
    assert toast.text.startswith('<hx-partial hx-target="#toasts"')
    assert problem.content_type == "application/problem+json"
    assert problem.json == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "code": "not_found",
        "detail": "There is no such agent in this account.",
    }


def test_programs_may_also_ask_by_what_they_accept(admin: Browser) -> None:
    answer = admin.get("/nowhere", headers={"Accept": "application/json"})

    assert answer.content_type == "application/problem+json"


def test_a_database_that_is_away_is_said_without_asking_it(admin: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise OperationalError("SELECT secret", {}, Exception("gone"))

    monkeypatch.setattr("app.views.overview.Overview", away)
    answer = admin.get("/")

    assert answer.status_code == 503
    assert "The database does not answer." in answer.text
    assert "SELECT" not in answer.text


def test_names_are_shown_as_text(admin: Browser) -> None:
    make_agent('<b>"Ezra"</b>')
    page = admin.get("/agents").text

    assert "&lt;b&gt;&#34;Ezra&#34;&lt;/b&gt;" in page
    assert '<b>"Ezra"' not in page


def test_the_top_bar_says_who_is_signed_in_where(admin: Browser) -> None:
    page = admin.get("/").text

    assert "admin-1@example.org" in page
    assert "admin in Home" in page
    assert 'action="/sign-out"' in page
