"""What is said when something can't be done: a page, a toast or a problem document; a sentence, never any content."""

from __future__ import annotations

import secrets
from typing import cast

import structlog
from flask import Flask, Response, g, make_response, render_template, request, url_for
from flask_wtf.csrf import CSRFError
from sqlalchemy.exc import OperationalError
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from app.errors import DiskFull, WhetstoneError, has_no_room
from app.extensions import db
from app.logs import error_place
from app.problems import problem_response, status_phrase
from app.views.answers import is_htmx, wants_json

log = structlog.get_logger(__name__)

SENTENCES = {
    400: "Something in the request was missing or malformed. Nothing was written.",
    401: "Nobody is signed in, or not any more. Sign in again; nothing was written.",
    403: "Your role in this account does not allow it. Nothing was written.",
    404: "There is no such page, or it belongs to another account.",
    405: "This address can't be used in that way. Nothing was written.",
    408: "What you sent did not arrive in time. Nothing was written; try again.",
    413: "The request is larger than allowed. Nothing was written.",
    429: "Too many requests in a short time. Wait a minute, then try again; nothing was written.",
    500: "Something went wrong. The request failed, and its changes were rolled back.",
    503: "The database does not answer. Nothing was written; try again in a few seconds.",
    507: "The disk of this server is full. Nothing was written; free some space, then try again.",
}

NO_ADDRESS = "There is no such address; /api/v1/openapi.json names them all. Nothing was written."


def init_app(app: Flask) -> None:
    app.register_error_handler(WhetstoneError, _of_ours)
    app.register_error_handler(CSRFError, _of_csrf)
    app.register_error_handler(HTTPException, _of_http)
    app.register_error_handler(OperationalError, _of_the_database)
    app.register_error_handler(Exception, _answer_unexpected)


def _of_ours(error: WhetstoneError) -> Response:
    response = answer_error(error.http_status, error.code, error.sentence)
    if retry_after := getattr(error, "retry_after", None):
        response.headers["Retry-After"] = str(retry_after)
    return response


def _of_csrf(error: CSRFError) -> Response:
    sentence = "This page is too old to act from: your sign-in has changed since. Reload it; nothing was written."
    return answer_error(400, "stale_page", sentence)


def _of_http(error: HTTPException) -> Response:
    code = error.code or 500
    if error.response is not None or code < 400:
        return cast(Response, error.get_response())
    response = answer_error(code, status_phrase(code).lower().replace(" ", "_"), _status_sentence(code))
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    if code == 429:
        response.headers["Retry-After"] = "60"
    if code == 401 and is_htmx():
        response.headers["HX-Redirect"] = url_for("security.login")
    return response


def _status_sentence(code: int) -> str:
    if code == 404 and request.path.startswith("/api/"):
        return NO_ADDRESS
    return SENTENCES.get(code, SENTENCES[400 if code < 500 else 500])


def _of_the_database(error: OperationalError) -> Response:
    log.error("database unavailable", error=type(error.orig).__name__, path=request.path)
    return answer_error(503, "unavailable", SENTENCES[503])


def _answer_unexpected(error: Exception) -> Response:
    """Log where it happened, never what the exception says: it may quote what was sent."""
    if has_no_room(error):
        log.error("no room on the disk", place=error_place(error), endpoint=request.endpoint)
        return _of_ours(DiskFull(SENTENCES[507]))
    reference = secrets.token_hex(6)
    name, endpoint = type(error).__name__, request.endpoint
    log.error("request failed", error=name, place=error_place(error), reference=reference, endpoint=endpoint)
    return answer_error(500, "unexpected", SENTENCES[500], reference=reference)


def answer_error(status: int, code: str, sentence: str, *, reference: str = "") -> Response:
    """The error in the form that the asker reads. From 500 on, the page does without the database."""
    if status >= 500:
        g.bare = True
        db.session.remove()
    if wants_json():
        return problem_response(status, code, sentence, reference=reference)
    if is_htmx():
        return make_response(render_template("errors/toast.html", sentence=sentence), status)
    page = render_template("errors/error.html", code=status, name=code, sentence=sentence, request_id=reference)
    return make_response(page, status)
