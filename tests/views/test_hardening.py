"""The front is closed: headers on every answer, no POST without its token, no body too large, no method in disguise."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from flask import Flask, render_template_string
from itsdangerous import URLSafeTimedSerializer
from sqlalchemy.exc import OperationalError
from werkzeug.datastructures import Headers
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from app import Part, create_app
from app.config import ROOT, Settings
from app.extensions import db
from app.models.user import ADMIN
from app.views import markup
from app.views.assets import load_assets
from app.views.frame import MAX_FORM_BYTES
from tests.support.pages import Site, serving
from tests.views.conftest import PASSWORD, Browser, browser
from tests.views.site import SIGN_IN, Subject, act_of, make_subject, routes

DIRECTIVES = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "font-src": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
}
"""Written down once more, apart from the product."""

CLOSED = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FORM = "application/x-www-form-urlencoded"
NEVER = ("Access-Control-Allow-Origin", "Server", "X-Powered-By")


@pytest.fixture
def subject(app: Flask, web: Flask) -> Subject:
    return make_subject()


@pytest.fixture
def site(web: Flask) -> Iterator[Site]:
    """The same application behind its real server."""
    with serving(web) as running:
        yield running


def assert_closed(headers: Headers | httpx.Headers, where: str) -> None:
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy in (DIRECTIVES, {name: DIRECTIVES[name] for name in ("default-src", "frame-ancestors")}), where
    for name, value in CLOSED.items():
        assert headers[name] == value, (where, name)
    for name in NEVER:
        assert name not in headers, (where, name)


def test_every_route_answers_closed_to_everybody(
    web: Flask, subject: Subject, owner: Browser, operator: Browser, stranger: Browser
) -> None:
    asked = [(owner, "GET"), (owner, "HEAD"), (operator, "GET"), (stranger, "GET"), (stranger, "OPTIONS")]
    for rule in routes(web, "GET"):
        for person, method in asked:
            answer = person.client.open(subject.path(rule), method=method, buffered=True)
            assert_closed(answer.headers, f"{method} {rule.rule}")
            is_public = rule.endpoint in ("assets.show", "security.static", "well_known.installation")
            assert is_public or "no-store" in answer.headers["Cache-Control"], rule


def test_every_act_answers_closed_done_or_refused(
    web: Flask, subject: Subject, owner: Browser, auditor: Browser, stranger: Browser
) -> None:
    for rule in routes(web, "POST", without=SIGN_IN):
        act = act_of(rule)
        for person in (stranger, auditor, owner):
            answer = person.post(subject.path(rule, **act.named(subject)), act.form(subject))
            assert_closed(answer.headers, f"POST {rule.rule}")


def test_every_kind_of_error_is_closed(
    admin: Browser, stranger: Browser, operator: Browser, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = subject.values["agent_id"]
    answers = {
        400: admin.client.post("/agents"),
        401: stranger.get("/agents.json"),
        403: operator.get("/agents"),
        404: admin.get("/agents/77"),
        405: admin.get("/sign-out"),
        413: admin.post("/agents", {"name": "x" * (MAX_FORM_BYTES + 1)}),
        422: admin.post("/agents", {"name": ""}),
        429: [stranger.post("/sign-in") for _ in range(11)][-1],
        500: _broken(admin, agent, monkeypatch, ValueError("broken")),
        503: _broken(admin, agent, monkeypatch, OperationalError("SELECT", {}, Exception("away"))),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert_closed(answer.headers, str(status))


def _broken(admin: Browser, agent: str, monkeypatch: pytest.MonkeyPatch, error: Exception) -> TestResponse:
    def breaks(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("app.views.shown.agent.AgentState.load", breaks)
        return admin.get(f"/agents/{agent}")


def test_what_the_server_answers_by_itself_is_closed_too(site: Site, owner: Browser) -> None:
    assert owner.user is not None
    cookies = {"Cookie": site.cookie_of(owner.user)}
    with httpx.Client(base_url=site.url, headers=cookies) as client:
        asked = [
            ("GET", "/", 200),
            ("GET", f"/assets/{load_assets()['whetstone.js'].address}", 200),
            ("GET", "/nowhere", 404),
            ("GET", "/%00%ff%2e%2e%2f", 404),
            ("POST", "/events", 405),
            ("PUT", "/events", 405),
            ("GET", "/events/", 404),
        ]
        for method, path, status in asked:
            answer = client.request(method, path)
            assert answer.status_code == status, path
            assert_closed(answer.headers, path)
        for topic in ("overview", "agent:77", ""):
            with client.stream("GET", f"/events?topic={topic}") as stream:
                assert_closed(stream.headers, topic)
                assert stream.headers["Cache-Control"].startswith("no-store")


def test_every_cookie_is_kept_from_scripts_and_other_sites(app: Flask, settings: Settings, web: Flask) -> None:
    person = browser(web, ADMIN).user
    assert person is not None
    for secure in (False, True):
        made = create_app(settings.model_copy(update={"secure_cookies": secure}), part=Part.WEB)
        visitor, place = made.test_client(), "https://localhost" if secure else "http://localhost"
        answers = [visitor.get("/sign-in", base_url=place)]
        form = {"email": person.email, "password": PASSWORD, "remember": "y", "csrf_token": token_in(answers[0])}
        answers.append(visitor.post("/sign-in", data=form, base_url=place, headers={"Referer": f"{place}/sign-in"}))
        assert answers[1].status_code == 302
        cookies = [cookie for answer in answers for cookie in answer.headers.getlist("Set-Cookie")]
        assert {cookie.partition("=")[0] for cookie in cookies} == {"whetstone", "remember_token", "whetstone_device"}
        for cookie in cookies:
            attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
            assert {"httponly", "samesite=lax", "path=/"} <= attributes, cookie
            assert ("secure" in attributes) is secure, cookie
            assert not any(attribute.startswith("domain") for attribute in attributes), cookie
        with made.app_context():
            db.engine.dispose()


def token_in(answer: TestResponse) -> str:
    found = re.search(r'name="csrf_token" value="([^"]+)"', answer.text)
    assert found is not None
    return found[1]


def test_no_post_is_done_without_its_token(web: Flask, subject: Subject, owner: Browser, stranger: Browser) -> None:
    other = URLSafeTimedSerializer(str(web.secret_key), salt="wtf-csrf-token").dumps("another's")
    wrong: list[dict[str, str]] = [{}, {"csrf_token": ""}, {"csrf_token": "raw"}, {"csrf_token": str(other)}]
    rules = routes(web, "POST")
    assert len(rules) > 15
    for rule in rules:
        person = stranger if rule.endpoint == "security.login" else owner
        path = subject.path(rule)
        for token in wrong:
            _refused_as_stale(person.client.post(path, data=token), rule)
        _refused_as_stale(person.client.post(path, json={"csrf_token": owner.token}), rule)
        _refused_as_stale(person.client.post(path, headers={"X-CSRFToken": str(other)}), rule)
        _refused_as_stale(person.client.post(f"{path}?csrf_token={owner.token}"), rule)


def _refused_as_stale(answer: TestResponse, rule: Rule) -> None:
    assert answer.status_code == 400, rule
    assert "too old to act from" in answer.text or (answer.json or {}).get("code") == "stale_page", rule


def test_a_token_counts_for_the_page_s_own_site_only_over_https(web: Flask, owner: Browser) -> None:
    """Behind TLS the browser says where the form stood; a token alone is not enough then."""
    for referrer, status in ((None, 400), ("https://evil.example/", 400), ("https://localhost/agents", 303)):
        headers = {"Referer": referrer} if referrer else {}
        answer = owner.post("/demo", headers=headers, base_url="https://localhost")
        assert answer.status_code == status, referrer


def test_a_method_in_disguise_is_not_listened_to(owner: Browser, subject: Subject) -> None:
    agent = f"/agents/{subject.values['agent_id']}"
    for name in ("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"):
        assert owner.get(f"{agent}/pause", headers={name: "POST"}).status_code == 405
        assert owner.client.post(agent, headers={name: "GET", "X-CSRFToken": owner.token}).status_code == 405
    assert owner.get(f"{agent}/pause?_method=POST").status_code == 405
    assert owner.post(agent, {"_method": "GET"}).status_code == 405


def test_what_is_too_large_is_refused_before_it_is_read(
    web: Flask, subject: Subject, owner: Browser, stranger: Browser
) -> None:
    for rule in routes(web, "POST", without={"imports.receive"}):
        for person in (owner, stranger):
            body = Endless()
            sent = {"wsgi.input": body, "CONTENT_LENGTH": str(MAX_FORM_BYTES + 1), "CONTENT_TYPE": FORM}
            headers = {"X-CSRFToken": person.token}
            answer = person.client.post(subject.path(rule), headers=headers, environ_overrides=sent)
            assert answer.status_code == 413, rule
            assert body.taken == 0, rule


def test_bodies_in_odd_forms_break_nothing(web: Flask, subject: Subject, owner: Browser) -> None:
    odd = [
        ("application/json", b"{" * 100_000),
        ("application/json", b'{"agent": [1, {"a": null}]}'),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data; name="),
        ("multipart/form-data", b"--x"),
        ("application/x-www-form-urlencoded", b"&".join(b"agent=%d" % n for n in range(3000))),
        ("application/x-www-form-urlencoded", b"name=%ff%fe%00&agent=\xed\xa0\x80&minutes=%F0%9F"),
        ("text/plain; charset=utf-7", b"+ADw-script+AD4-"),
    ]
    for rule in routes(web, "POST", without=SIGN_IN):
        for kind, body in odd:
            headers = {"X-CSRFToken": owner.token, "Content-Type": kind}
            answer = owner.client.post(make_path(rule, subject), data=body, headers=headers)
            assert answer.status_code < 500, (rule, kind, body[:40])


def make_path(rule: Rule, subject: Subject) -> str:
    return subject.path(rule, **act_of(rule).named(subject))


class Endless(io.RawIOBase):
    """A body of which somebody counts what is taken."""

    def __init__(self) -> None:
        self.taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.taken += len(buffer)
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


MARKED_AS_SAFE = {
    ("app/views/live.py", "wrap_part"),
    ("app/views/inert.py", "inert"),
    ("app/views/markup.py", "fill"),
    ("app/views/markup.py", "fill_each"),
    ("app/views/markup.py", "_moment"),
    ("app/views/icons.py", "icon"),
}
"""What a template rendered, what was escaped piece by piece, digits, and drawings that are constants."""


def test_every_page_is_escaped_and_no_template_says_otherwise(web: Flask) -> None:
    env = web.jinja_env
    names = [name for name in env.list_templates() if name.endswith(".html")]
    assert len(names) > 30
    for name in names:
        assert callable(env.autoescape) and env.autoescape(name), name
        path = ROOT / "templates" / name
        if not path.exists():
            continue  # a library's own, which is not rendered
        source = path.read_text()
        assert not re.findall(r"\|\s*safe\b", source), name
        assert "autoescape" not in source, name
    assert render_template_string("{{ text }}", text="<b>&\"'") == "&lt;b&gt;&amp;&#34;&#39;"


def test_no_page_is_rendered_from_a_file_that_is_not_escaped(web: Flask) -> None:
    """Flask escapes `.html` and its like only: all that is rendered by name has to end so."""
    names = {name for path in views() for name in re.findall(r'"([a-z_/]+\.[a-z0-9.]+)"', path.read_text())}
    rendered = {name for name in names if (ROOT / "templates" / name).exists()}
    assert len(rendered) > 20
    assert {name for name in rendered if not name.endswith(".html")} == set()


def test_no_text_is_declared_safe(web: Flask) -> None:
    """`Markup(…)` of anything but a constant, by function."""
    found = set()
    for path in views():
        tree = ast.parse(path.read_text())
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                is_markup = ast.unparse(call.func).rpartition(".")[2] in ("Markup", "HTMLString")
                is_markup |= any(ast.unparse(argument) == "Markup" for argument in call.args)
                if is_markup and not all(isinstance(argument, ast.Constant) for argument in call.args):
                    found.add((str(path.relative_to(ROOT)), function.name))
        assert "render_template_string" not in path.read_text(), path
    assert found <= MARKED_AS_SAFE, found - MARKED_AS_SAFE


def test_what_is_filled_with_values_is_a_form_of_ours(web: Flask) -> None:
    """The first argument of `fill(…)`: a text that stands in the code, or a constant of the module."""
    calls = 0
    for path in views():
        tree = ast.parse(path.read_text())
        known = {name.id for each in tree.body if _is_constant(each) for name in _names(each)}
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            known_here = known | {name.id for each in ast.walk(function) if _is_constant(each) for name in _names(each)}
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                if ast.unparse(call.func) in ("fill", "fill_each"):
                    form, calls = call.args[0], calls + 1
                    assert isinstance(form, ast.Constant) or ast.unparse(form) in known_here, (path, ast.unparse(call))
    assert calls > 20


def _is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def _names(assigned: ast.AST) -> list[ast.Name]:
    targets = assigned.targets if isinstance(assigned, ast.Assign) else []
    return [each for each in targets if isinstance(each, ast.Name)]


@pytest.mark.parametrize("piece", [markup.tag, markup.fill])
def test_a_piece_of_markup_escapes_what_it_is_filled_with(piece: Any) -> None:
    filled = piece("<b>&\"'") if piece is markup.tag else piece("{}", "<b>&\"'")
    assert "&lt;b&gt;&amp;&#34;&#39;" in filled
    assert "<b>" not in filled


def views() -> list[Path]:
    found = sorted((ROOT / "app").rglob("*.py"))
    assert len(found) > 100
    return found


def test_a_body_without_a_length_counts_as_none(site: Site, owner: Browser, subject: Subject) -> None:
    """Sent in chunks, by somebody who is signed in, however long: it is not read, so nothing has to hold it."""
    assert owner.user is not None
    first = f"agent={subject.values['agent_id']}&".encode()
    headers = {"Cookie": site.cookie_of(owner.user), "Content-Type": FORM, "X-CSRFToken": owner.token}
    for body in ([first], [first, *([b"x" * 100_000] * 100)]):
        answer = httpx.post(f"{site.url}/agents/pause", content=iter(body), headers=headers)
        assert answer.status_code == 422
        assert "No agents selected. Select at least one." in answer.text
