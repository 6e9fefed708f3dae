"""`/readyz` for everybody who asks at the same time by one look, in a thread that nobody else uses."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from flask import Flask
from starlette.types import ASGIApp, Receive, Scope, Send

from app.gateway.answers import ShortAnswer, made_by

METHODS = {"GET", "HEAD"}


class OneLook:
    """ASGI: whoever asks while a look is made gets its answer. `others` answers other methods."""

    def __init__(self, flask: Flask, endpoint: str, others: ASGIApp) -> None:
        self._look = partial(made_by, flask, endpoint)
        self._others = others
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ready")
        self._looking: asyncio.Future[ShortAnswer] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in METHODS:
            await self._others(scope, receive, send)
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().run_in_executor(self._thread, self._look)
        answer = await asyncio.shield(self._looking)
        await answer(scope, receive, send)


class AlwaysThere:
    """ASGI: an answer that was made at the start, and needs no thread."""

    def __init__(self, flask: Flask, endpoint: str, others: ASGIApp) -> None:
        self._answer = made_by(flask, endpoint)
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._answer if scope["method"] in METHODS else self._others)(scope, receive, send)
