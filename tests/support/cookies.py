"""The cookies by which a web process knows who is signed in, signed as it signs them."""

from __future__ import annotations

from typing import Any

from flask import Flask
from flask.sessions import SecureCookieSessionInterface
from itsdangerous import URLSafeTimedSerializer

from app.models import User
from tests.support.factories import cookie_id


def serializer_of(web: Flask) -> URLSafeTimedSerializer:
    """What signs them, and reads them."""
    serializer = SecureCookieSessionInterface().get_signing_serializer(web)
    assert serializer is not None
    return serializer


def new_session(user: User | None) -> dict[str, Any]:
    """What the cookie of somebody who has just signed in holds, or of a stranger."""
    signed_in = {} if user is None else {"_user_id": cookie_id(user), "_fresh": True, "fs_cc": "set"}
    return {"csrf_token": "raw"} | signed_in
