"""The web process's application: what pages want done around each request is left out at the agents' door.

There a token alone opens anything. So no cookie is read or written, nobody is signed in by one, there is no form that
could be forged, and no page whose time is told. `/api/` has no routes of people's.
"""

from __future__ import annotations

from flask import Flask, Request, Response, request
from flask.sessions import SecureCookieSessionInterface, SessionMixin
from flask.typing import ResponseReturnValue

from app.views.frame import add_headers

DOOR = "/api/"


class SessionsOfPages(SecureCookieSessionInterface):
    def open_session(self, app: Flask, request: Request) -> SessionMixin | None:  # type: ignore[override]
        """One that holds nothing and takes nothing, at the door."""
        return self.make_null_session(app) if _is_at_the_door(request) else super().open_session(app, request)


class WebApp(Flask):
    session_interface = SessionsOfPages()

    def preprocess_request(self) -> ResponseReturnValue | None:
        """The functions of all `before_request`."""
        return None if _is_at_the_door(request) else super().preprocess_request()

    def process_response(self, response: Response) -> Response:
        """The functions of all `after_request`; at the door the headers alone that every answer has."""
        return add_headers(response) if _is_at_the_door(request) else super().process_response(response)


def _is_at_the_door(request: Request) -> bool:
    """By the path as the routes know it, before one is found: what has no route is refused in the same way."""
    return request.path.startswith(DOOR)
