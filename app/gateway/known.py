"""Who may send a large body, and how large: asked of Flask by the request's head, before any of the body is read."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog
from a2wsgi.wsgi import build_environ
from flask import Flask
from starlette.datastructures import Headers
from starlette.types import Scope

from app.api.mcp import MOST_BYTES
from app.api.operations import OPERATIONS
from app.api.v1 import PREFIX
from app.logs import place
from app.models.bearer import authenticate
from app.views.access import may_act
from app.views.frame import MAX_FILE_BYTES, MAX_FORM_BYTES

THREADS = 2

FILE_PAGES = re.compile(r"/agents/[0-9]+/imports")
LARGE_OPERATIONS = {f"{PREFIX}{each.path}": each.most_bytes for each in OPERATIONS if each.most_bytes}

log = structlog.get_logger(__name__)


def most_bytes_of_page(scope: Scope) -> int:
    return MAX_FILE_BYTES if FILE_PAGES.fullmatch(scope["path"]) else MAX_FORM_BYTES


def most_bytes_of_operation(scope: Scope) -> int:
    return LARGE_OPERATIONS.get(scope["path"]) or MAX_FORM_BYTES


def most_bytes_of_tool(_scope: Scope) -> int:
    return MOST_BYTES


class Known:
    """Asks in threads of its own, which no request holds for longer than a look into the database."""

    def __init__(self, flask: Flask) -> None:
        self._flask = flask
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="known")

    async def may_act(self, scope: Scope) -> bool:
        """Whether the cookie is that of somebody who may change something."""

        def ask() -> bool:
            with self._flask.request_context(build_environ(scope, io.BytesIO())):
                return may_act()

        return await self._in_thread(ask)

    async def has_token(self, scope: Scope) -> bool:
        """Whether the token is a live one."""
        scheme, _, secret = Headers(scope=scope).get("authorization", "").partition(" ")

        def ask() -> bool:
            with self._flask.app_context():
                return scheme.lower() == "bearer" and authenticate(secret.strip()) is not None

        return await self._in_thread(ask)

    async def _in_thread(self, ask: Callable[[], bool]) -> bool:
        """False where it can't be found out: the request itself then says why."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except Exception as error:  # noqa: BLE001 - such as a database that is away
            log.error("sender not recognised", error=type(error).__name__, at=place(error))  # noqa: TRY400
            return False
