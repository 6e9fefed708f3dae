"""Who sends a request, asked of Flask by its head: may they send a large body, and which agent's turn is it?"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import structlog
from a2wsgi.wsgi import build_environ
from flask import Flask
from starlette.datastructures import Headers
from starlette.types import Scope

from app.api.mcp_endpoint import MOST_BYTES
from app.api.operation import PREFIX
from app.api.operations import OPERATIONS
from app.keys.bearer import authenticate
from app.logs import error_place
from app.views.access import may_act
from app.views.frame import MAX_FILE_BYTES, MAX_FORM_BYTES

THREADS = 2
MOST_LOOKS = 100
"""Of tokens that this process has not seen yet, at the same time. More are strangers for now."""

MOST_REMEMBERED = 10_000

FILE_PAGES = re.compile(r"/agents/[0-9]+/imports")
LARGE_OPERATIONS = {f"{PREFIX}{each.path}": each.most_bytes for each in OPERATIONS if each.most_bytes}

T = TypeVar("T")
log = structlog.get_logger(__name__)


def most_bytes_of_page(scope: Scope) -> int:
    return MAX_FILE_BYTES if FILE_PAGES.fullmatch(scope["path"]) else MAX_FORM_BYTES


def most_bytes_of_operation(scope: Scope) -> int:
    return LARGE_OPERATIONS.get(scope["path"]) or MAX_FORM_BYTES


def most_bytes_of_tool(_scope: Scope) -> int:
    return MOST_BYTES


class SenderLookup:
    """Asks in threads of its own, which no request holds for longer than a look into the database."""

    def __init__(self, flask: Flask) -> None:
        self._flask = flask
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="known")
        self._agents: dict[int, int] = {}
        self._looks: dict[int, asyncio.Future[int | None]] = {}

    async def may_act(self, scope: Scope) -> bool:
        """Whether the cookie is that of somebody who may change something."""

        def ask() -> bool:
            with self._flask.request_context(build_environ(scope, io.BytesIO())):
                return may_act()

        return bool(await self._in_thread(ask))

    async def has_token(self, scope: Scope) -> bool:
        """Whether the token is a live one."""
        return await self._in_thread(partial(self._owner_of, _authorization_header(scope))) is not None

    async def agent_of(self, scope: Scope) -> int | None:
        """Whose token it is, looked up once and then remembered: for turns, not for rights. It may be revoked since.

        By the whole token: who knows only its public part must not take its owner's turns.
        """
        said = _authorization_header(scope)
        key = hash(said)
        if key in self._agents or (key not in self._looks and len(self._looks) >= MOST_LOOKS):
            return self._agents.get(key)
        if key not in self._looks:
            self._looks[key] = asyncio.ensure_future(self._look_up(said, key))
        return await asyncio.shield(self._looks[key])

    async def _look_up(self, said: str, key: int) -> int | None:
        """Once for all requests that come with this token meanwhile."""
        try:
            found = await self._in_thread(partial(self._owner_of, said))
        finally:
            del self._looks[key]
        if found is not None:
            if len(self._agents) >= MOST_REMEMBERED:
                del self._agents[next(iter(self._agents))]
            self._agents[key] = found
        return found

    def _owner_of(self, authorization: str) -> int | None:
        scheme, _, secret = authorization.partition(" ")
        with self._flask.app_context():
            bearer = authenticate(secret.strip()) if scheme.lower() == "bearer" else None
            return bearer.agent_id if bearer else None

    async def _in_thread(self, ask: Callable[[], T]) -> T | None:
        """None where it can't be found out: the request itself then says why."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except Exception as error:  # noqa: BLE001 - such as a database that is away
            log.error("sender not recognised", error=type(error).__name__, at=error_place(error))  # noqa: TRY400
            return None


def _authorization_header(scope: Scope) -> str:
    return Headers(scope=scope).get("authorization", "")
