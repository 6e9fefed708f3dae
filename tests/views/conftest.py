"""The web process's application beside the command line's, and people of every role who are signed in to it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from flask_security import hash_password
from itsdangerous import URLSafeTimedSerializer
from werkzeug.test import TestResponse

import tasks.grants
from app.extensions import writing
from app.grants import opening
from app.models import Account, User
from app.models.user import ADMIN, AUDITOR, OWNER, SITE_ADMIN
from tests.support.cookies import new_session, serializer_of
from tests.support.factories import HOME, make_user

PASSWORD = "correct horse battery"


class Browser:
    """A signed-in person, or a stranger: sends the CSRF token with every POST unless told not to."""

    def __init__(self, web: Flask, user: User | None) -> None:
        self.client: FlaskClient = web.test_client()
        self.user = user
        self._secret = str(web.secret_key)
        self._cookie = str(web.config["SESSION_COOKIE_NAME"])
        self._serializer = serializer_of(web)
        self.client.set_cookie(self._cookie, str(self._serializer.dumps(new_session(user))))

    @property
    def token(self) -> str:
        """What the pages of the present session carry."""
        raw = self._session().get("csrf_token")
        if raw is None:
            with self.client.session_transaction() as session:
                raw = session.setdefault("csrf_token", "raw")
        made = URLSafeTimedSerializer(self._secret, salt="wtf-csrf-token").dumps(raw)
        return made if isinstance(made, str) else made.decode()

    def _session(self) -> dict[str, Any]:
        """What the cookie holds: to read it as Flask's client does takes a request of its own."""
        cookie = self.client.get_cookie(self._cookie)
        return dict(self._serializer.loads(cookie.value)) if cookie else {}

    def get(self, path: str, **options: Any) -> TestResponse:
        return self.client.get(path, **options)

    def post(self, path: str, data: dict[str, Any] | None = None, **options: Any) -> TestResponse:
        return self.client.post(path, data={"csrf_token": self.token, **(data or {})}, **options)

    def press(self, path: str, data: dict[str, Any] | None = None) -> TestResponse:
        """The same as htmx sends it."""
        return self.post(path, data, headers={"HX-Request": "true"})


@pytest.fixture
def worker(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that answers every look at once, in an application of its own: the web's has no key."""

    def answered(view_id: str, timeout: float = 5.0) -> bool:
        with app.app_context():
            opening.answer_view(view_id)
        return True

    monkeypatch.setattr(tasks.grants, "wait_for_answer", answered)


@pytest.fixture
def auditor(web: Flask) -> Browser:
    return browser(web, AUDITOR)


@pytest.fixture
def admin(web: Flask) -> Browser:
    return browser(web, ADMIN)


@pytest.fixture
def owner(web: Flask) -> Browser:
    return browser(web, OWNER)


@pytest.fixture
def operator(web: Flask) -> Browser:
    return browser(web, SITE_ADMIN)


@pytest.fixture
def stranger(web: Flask) -> Browser:
    return Browser(web, None)


@pytest.fixture
def neighbour(web: Flask) -> Browser:
    """An owner of another account."""
    with writing():
        account = Account.create("Next door")
    return browser(web, OWNER, account_id=account.id)


def toast_of(answer: TestResponse) -> str:
    """The one toast that comes beside the fresh parts of a page."""
    found = re.findall(r'<hx-partial hx-target="#toasts" hx-swap="beforeend">(.*?)</hx-partial>', answer.text, re.S)
    assert len(found) == 1
    return str(found[0])


def browser(web: Flask, *roles: str, account_id: int = HOME) -> Browser:
    """Signed in as a user with `PASSWORD`, whose hash is made once for all tests."""
    with web.app_context():
        hashed = hashed_password()
    email = f"{roles[0]}-{account_id}@example.org"
    return Browser(web, make_user(email, *roles, account_id=account_id, password=hashed))


@cache
def hashed_password() -> str:
    """Of `PASSWORD`; in the context of an app that has Flask-Security."""
    return hash_password(PASSWORD)
