"""Who is signed in in which browser: a cookie names one session, and a session that has ended lets nobody in.

The cookie's user id is `FS_UNIQUIFIER:KEY`, in the session's cookie and in the one that keeps somebody signed in: a new
password makes the first part anew and ends all, the end of one session ends what carries its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import structlog
from flask import Flask, Response, current_app, g, request, session
from flask_security import current_user
from flask_security.utils import set_request_attr
from sqlalchemy import bindparam, select
from sqlalchemy.orm.attributes import set_committed_value

from app.errors import Unavailable
from app.extensions import db, read_rows, writing
from app.models import Role, User, UserSession
from app.models.base import Model
from app.models.visits import end_visits
from app.plain_rows import make_row, object_of
from app.prepared import Prepared, Row

log = structlog.get_logger(__name__)


INSIDE = "inside"
"""The key in the cookie's session: the account that this browser's newest page was of, where it is another one's."""

_WITHOUT_FORMS = {"assets", "health", "well_known", "api"}


def init_app(app: Flask) -> None:
    app.login_manager.user_loader(load_user)  # type: ignore[attr-defined]
    app.before_request(_renew_token_at_the_door)
    app.after_request(_note_seen)
    app.after_request(_note_over)


def load_user(cookie_id: str) -> User | None:
    """The active user of an open session; None for anybody else."""
    uniquifier, _, key = cookie_id.rpartition(":")
    found = read_rows(_session_query(), {"uniquifier": uniquifier, "key": key})
    if not found:
        return None
    user, opened = _read_user(found), make_row(UserSession, _part_of(found[0], UserSession))
    if opened.is_to_be_noted:
        g.session_to_note = opened.id
    user.ask_in_session(opened)
    g.visit_is_over = opened.entered_account_id is not None and user.visit is None
    set_request_attr("fs_authn_via", "session")
    set_request_attr("fs_paa", session.get("fs_paa", 0))
    return user


def _read_user(found: Sequence[Row]) -> User:
    """As the rows of `_session_query` say, with its roles, whatever was known of it before."""
    held = (_part_of(row, Role) for row in found)
    roles = [object_of(db.session(), Role, role) for role in held if role["id"] is not None]
    user = object_of(db.session(), User, _part_of(found[0], User))
    set_committed_value(user, "roles", roles)
    return user


def _part_of(row: Row, model: type[Model]) -> dict[str, Any]:
    names, start = _PARTS[model]
    return dict(zip(names, row[start:], strict=False))


@cache
def _session_query() -> Prepared:
    """Made once: every request asks it. A row for each role of the user, and one without for who has none."""
    users, roles, held = User.__table__, Role.__table__, db.metadata.tables["roles_users"]
    joined = users.join(UserSession, UserSession.user_id == User.id)
    joined = joined.outerjoin(held.join(roles, roles.c.id == held.c.role_id), held.c.user_id == users.c.id)
    theirs = select(*(model.__table__ for model in _PARTS)).select_from(joined).order_by(roles.c.id)
    is_open = (User.active.is_(True), UserSession.key == bindparam("key"), UserSession.ended_at.is_(None))
    return Prepared(theirs.where(User.fs_uniquifier == bindparam("uniquifier"), *is_open))


def _places() -> dict[type[Model], tuple[Sequence[str], int]]:
    places, start = dict[type[Model], tuple[Sequence[str], int]](), 0
    for model in (User, UserSession, Role):
        names = model.__table__.columns.keys()
        places[model] = names, start
        start += len(names)
    return places


_PARTS = _places()
"""Whose columns a row of `_session_query` has: their names, and where they begin."""


def _renew_token_at_the_door() -> None:
    """What was open before an account was entered or left can't be acted from: it would act on the other account."""
    if request.blueprint in _WITHOUT_FORMS or "_user_id" not in session or not current_user.is_authenticated:
        return
    visit = current_user.visit
    inside = visit.account_id if visit else None
    if session.get(INSIDE) != inside:
        session[INSIDE] = inside
        renew_token()


def renew_token() -> None:
    """No page from before carries the token against forged requests that counts from now on."""
    token = current_app.config["WTF_CSRF_FIELD_NAME"]
    session.pop(token, None)
    g.pop(token, None)


def begin_session(user: User) -> UserSession:
    """In the transaction of the sign-in's entry. `name_in_cookie` comes after the commit."""
    return UserSession.begin(
        user.id, address=request.remote_addr or "", browser=browser_words(request.user_agent.string)
    )


def name_in_cookie(user: User, key: str) -> None:
    """From now on this browser's cookies name this session."""
    session["_user_id"] = f"{user.fs_uniquifier}:{key}"


def keep_in_cookies(user: User, key: str) -> None:
    """The same after the user's name for cookies changed; who is kept signed in on this device stays so."""
    name_in_cookie(user, key)
    if current_app.config.get("REMEMBER_COOKIE_NAME", "remember_token") in request.cookies:
        session["_remember"] = "set"


_BROWSERS = (("Edg", "Edge"), ("OPR", "Opera"), ("Firefox", "Firefox"), ("Chrome", "Chrome"), ("Safari", "Safari"))
_SYSTEMS = (
    *(("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows"), ("Mac OS", "macOS")),
    ("Linux", "Linux"),
)


def browser_words(agent: str) -> str:
    """`Firefox on Linux`, or as much of it as a browser says of itself."""
    name = next((words for mark, words in _BROWSERS if mark in agent), "")
    system = next((words for mark, words in _SYSTEMS if mark in agent), "")
    if name and system:
        return f"{name} on {system}"
    return name or system or "".join(each for each in agent[:60] if each.isprintable()) or "Unknown browser"


def _note_seen(response: Response) -> Response:
    """Every few minutes, once the page is made. When the database is busy just now, the next page notes it."""
    session_id: int | None = g.pop("session_to_note", None)
    if session_id is None:
        return response
    try:
        with writing():
            UserSession.note_seen(session_id)
    except Unavailable as error:
        log.warning("not noted that a session is in use", why=error.sentence)
    return response


def _note_over(response: Response) -> Response:
    """A visit to another account that is over gets its entry there; beat finds what no page does."""
    if g.pop("visit_is_over", False):
        try:
            end_visits()
        except Unavailable as error:
            log.warning("not noted that a visit is over", why=error.sentence)
    return response
