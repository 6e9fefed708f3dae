"""Flask behind the event loop: a request is handed to a thread once, whole, and its answer comes back in one piece.

a2wsgi's own middleware asks the loop for each piece of an answer, its head and its end, and waits in the thread each
time: five hand-overs a request, each of which may wait for the interpreter's lock. Only a long answer comes in several
pieces here, and one that is still being made: its length is not known. No thread waits then while its peer reads.
"""

from __future__ import annotations

import asyncio
import contextvars
import io
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from a2wsgi.wsgi import build_environ
from starlette.types import Receive, Scope, Send

from app.gateway.thread_turns import ThreadTurns

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

T = TypeVar("T")

PIECE_BYTES = 256_000
"""What is sent at once of a long answer that is there already. Every page fits in."""


class FlaskThreads:
    """ASGI: `app` in one of so many threads. The body is expected whole, as `Bodies` hands it on.

    `at_once`: where answers are short, so many work at a time, in order, while none is slow (`thread_turns`).
    """

    def __init__(self, app: WSGIApplication, threads: int, at_once: int | None = None) -> None:
        self._app = app
        self._turns = ThreadTurns(at_once) if at_once else None
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="flask")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive()).get("body", b"")
        answer = _Answer(self._app, build_environ(scope, io.BytesIO(body)))
        try:
            piece = await self._in_thread(answer, answer.begin)
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            while not answer.is_whole:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await self._in_thread(answer, answer.take)
            await send({"type": "http.response.body", "body": piece})
        finally:
            if not answer.is_whole:  # it broke, or the server stops
                self._threads.submit(answer.carry_out, answer.close)

    async def _in_thread(self, answer: _Answer, step: Callable[[], bytes]) -> bytes:
        turn = await self._turns.take() if self._turns else None
        try:
            return await self._hand_over(answer, step)
        finally:
            if turn is not None:
                turn.end()

    def _hand_over(self, answer: _Answer, step: Callable[[], bytes]) -> asyncio.Future[bytes]:
        """As `run_in_executor` does it, which chains two futures: that takes as long as all the rest of it."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[bytes] = loop.create_future()

        def carry_out() -> None:
            if done.cancelled():  # before a thread had come to it
                return
            try:
                piece = answer.carry_out(step)
            except BaseException as error:  # noqa: BLE001 - it is the request's, whatever it is
                told = _as_told(error)
                loop.call_soon_threadsafe(_unless_cancelled, done, done.set_exception, told)
            else:
                loop.call_soon_threadsafe(_unless_cancelled, done, done.set_result, piece)

        self._threads.submit(carry_out)
        return done


def _unless_cancelled(done: asyncio.Future[bytes], tell: Callable[[T], None], told: T) -> None:
    if not done.cancelled():
        tell(told)


def _as_told(error: BaseException) -> BaseException:
    """A future takes no StopIteration, and whoever waits for it would wait for ever."""
    if not isinstance(error, StopIteration):
        return error
    told = RuntimeError("the application ended in a StopIteration")
    told.__cause__ = error
    return told


class _Answer:
    """What Flask says to one request: `begin`, then `take` until it `is_whole`, each by `carry_out`."""

    status = 500
    headers: list[tuple[bytes, bytes]]
    is_whole = False

    def __init__(self, app: WSGIApplication, environ: dict[str, Any]) -> None:
        self._context = contextvars.copy_context()
        self._turn = threading.Lock()
        self._app, self._environ = app, environ
        self._body: Iterable[bytes] = ()
        self._pieces: Iterator[bytes] = iter(())

    def carry_out(self, step: Callable[[], T]) -> T:
        """One step at a time, in whatever thread, and all in one context: Flask's own variables need it."""
        with self._turn:
            return self._context.run(step)

    def begin(self) -> bytes:
        self._body = self._app(self._environ, self._start_response)
        self._pieces = iter(self._body)
        return self.take()

    def take(self) -> bytes:
        """The next `PIECE_BYTES`, or all that is left; of what is still being made, the next piece that there is."""
        taken, size = list[bytes](), 0
        for piece in self._pieces:
            taken.append(piece)
            size += len(piece)
            if size >= self._at_once:
                return b"".join(taken)
        self.close()
        return b"".join(taken)

    def close(self) -> None:
        self.is_whole = True
        if close := getattr(self._body, "close", None):
            close()

    @property
    def _at_once(self) -> int:
        """Flask says the length of what it has, and none of a file that it reads as it goes."""
        return PIECE_BYTES if any(name == b"content-length" for name, _ in self.headers) else 1

    def _start_response(self, status: str, headers: list[tuple[str, str]], _error: Any = None) -> Any:
        self.status = int(status.split(" ", 1)[0])
        self.headers = [(name.lower().encode("latin1"), value.strip().encode("latin1")) for name, value in headers]
        return self._refuse_to_write

    @staticmethod
    def _refuse_to_write(_piece: bytes) -> None:
        raise NotImplementedError("Flask returns what it answers")
