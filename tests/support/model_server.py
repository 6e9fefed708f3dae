"""A scripted model server: real HTTP in OpenAI's form, for tests of everything that asks a model.

    with ModelServer() as server:
        server.script(text("YES"), tool_call("delete_memory", id=3, carried_by=4), rate_limited(retry_after=2))
        ...  # openai/anything with api_base=server.base_url
        assert len(server.requests) == 3

By hand: `python -m tests.support.model_server --script FILE --port N`; the script's form is in `replies_from`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

_ids = itertools.count(1)


@dataclass(frozen=True)
class ServerReply:
    """One HTTP answer. `hold` makes it hang until the event is set; `sent_bytes` cuts the body off there."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    hold: threading.Event | None = None
    sent_bytes: int | None = None
    drip: float = 0.0
    """Seconds between single bytes of the body: a server that is never done, yet never silent."""


@dataclass(frozen=True)
class ServedRequest:
    """What a client asked: the decoded body and the headers, in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages


Scripted = ServerReply | Callable[[ServedRequest], ServerReply]


class ModelServer:
    """Answers each POST with the next scripted reply, whatever its path, and records what it was asked."""

    def __init__(self, port: int = 0) -> None:
        self.requests: list[ServedRequest] = []
        self._lock = threading.Lock()
        self._queue: deque[Scripted] = deque()
        self._default: Scripted = error(418, "The script of the model server is empty.")
        self._holds: list[threading.Event] = []
        self._http = _Server(("127.0.0.1", port), _handler_for(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), name="model-server", daemon=True)

    @property
    def base_url(self) -> str:
        """What goes into `api_base`."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def script(self, *replies: Scripted) -> ModelServer:
        """Queue replies, each used once, in order."""
        with self._lock:
            self._queue.extend(replies)
        return self

    def always(self, reply: Scripted) -> ModelServer:
        """Answer so whenever the queue is empty. Without it an unscripted request gets 418, which nobody retries."""
        self._default = reply
        return self

    def start(self) -> ModelServer:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Release whatever hangs, stop listening, and wait for the listener."""
        with self._lock:
            for hold in self._holds:
                hold.set()
        self._http.shutdown()
        self._http.hang_up()
        self._http.server_close()
        self._thread.join(5)

    def __enter__(self) -> ModelServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _answer(self, request: ServedRequest) -> ServerReply:
        with self._lock:
            self.requests.append(request)
            scripted = self._queue.popleft() if self._queue else self._default
        reply = scripted if isinstance(scripted, ServerReply) else scripted(request)
        if reply.hold is not None:
            with self._lock:
                self._holds.append(reply.hold)
        return reply


def completion(message: Mapping[str, Any], *, finish_reason: str = "stop", usage: object = None) -> ServerReply:
    """A chat completion around any assistant message, however odd."""
    counted = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15} if usage is None else usage
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    return recorded(
        {
            "id": f"chatcmpl-{next(_ids)}",
            "object": "chat.completion",
            "created": 1772272944,
            "model": "scripted",
            "choices": [choice],
            "usage": counted,
        }
    )


def text(content: str | None, *, finish_reason: str = "stop") -> ServerReply:
    return completion({"content": content}, finish_reason=finish_reason)


def tool_call(name: str, **arguments: Any) -> ServerReply:
    return tool_calls((name, arguments))


def tool_calls(*calls: tuple[str, Mapping[str, Any] | str], content: str | None = None) -> ServerReply:
    """Several calls in one reply. A string stands for the raw argument text, malformed as it may be."""
    return completion({"content": content, "tool_calls": [_call(*call) for call in calls]}, finish_reason="tool_calls")


def recorded(body: object, *, status: int = 200) -> ServerReply:
    """A body as a real server once sent it: JSON, or text (an event stream, HTML) as it is."""
    raw = body if isinstance(body, str) else json.dumps(body)
    return ServerReply(raw.encode(), status, {"Content-Type": "application/json"})


def error(
    status: int, message: str = "It did not work.", *, code: str = "", headers: Mapping[str, str] | None = None
) -> ServerReply:
    reply = recorded({"error": {"message": message, "type": "error", "code": code or None}}, status=status)
    return replace(reply, headers={**reply.headers, **(headers or {})})


def rate_limited(retry_after: float | str | None = None) -> ServerReply:
    return error(429, "Too many requests.", headers={} if retry_after is None else {"Retry-After": str(retry_after)})


def html(status: int = 200, body: str = "<html><body>Bad gateway</body></html>") -> ServerReply:
    return ServerReply(body.encode(), status, {"Content-Type": "text/html"})


def hang(until: threading.Event, then: ServerReply | None = None) -> ServerReply:
    """Say nothing until the event is set (or the server stops), then answer."""
    return replace(then or text("late"), hold=until)


def cut_off(reply: ServerReply | None = None, sent_bytes: int = 40) -> ServerReply:
    """Promise the whole body, send a part of it, and hang up."""
    return replace(reply or text("never complete"), sent_bytes=sent_bytes)


def replies_from(items: Iterable[Mapping[str, Any]]) -> list[ServerReply]:
    """Replies from a JSON script: one object a reply.

    `{"text": "YES"}` · `{"tool_calls": [["delete_memory", {"id": 3, "carried_by": 4}]]}` ·
    `{"status": 429, "retry_after": 2}` · `{"html": "<p>", "status": 502}` · `{"body": {…}, "status": 200}` ·
    any with `"delay": seconds`, `"repeat": n`.
    """
    return [reply for item in items for reply in [_reply_from(item)] * int(item.get("repeat", 1))]


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    script = replies_from(_read_script(options.script))
    server = ModelServer(options.port).script(*script)
    if options.then_last and script:
        server.always(script[-1])
    with server:
        sys.stdout.write(f"Model server with {len(script)} replies: {server.base_url}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stdout.write(f"Answered {len(server.requests)} requests.\n")


def _call(name: str, arguments: Mapping[str, Any] | str) -> dict[str, Any]:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": f"call_{next(_ids)}", "type": "function", "function": {"name": name, "arguments": raw}}


def _reply_from(item: Mapping[str, Any]) -> ServerReply:
    status = int(item.get("status", 200))
    if "text" in item:
        reply = text(item["text"], finish_reason=item.get("finish_reason", "stop"))
    elif "tool_calls" in item:
        reply = tool_calls(*((name, arguments) for name, arguments in item["tool_calls"]))
    elif "html" in item:
        reply = html(status, item["html"])
    elif "body" in item:
        reply = recorded(item["body"], status=status)
    else:
        retry_after = item.get("retry_after")
        reply = error(status, headers={} if retry_after is None else {"Retry-After": str(retry_after)})
    return replace(reply, delay=float(item.get("delay", 0)))


def _read_script(path: Path) -> list[dict[str, Any]]:
    raw = path.read_text()
    items: list[dict[str, Any]] = (
        json.loads(raw) if raw.lstrip().startswith("[") else [json.loads(line) for line in raw.splitlines() if line]
    )
    return items


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A scripted OpenAI-compatible model server.")
    parser.add_argument("--script", type=Path, required=True, help="JSON list or JSON Lines, one reply each")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--then-last", action="store_true", help="repeat the last reply for ever")
    return parser.parse_args(arguments)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End connections that are kept alive, as a server that goes away does."""
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up is no news; anything else is."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _handler_for(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            self._send(server._answer(ServedRequest(self.path, headers, json.loads(raw or b"{}"))))

        def _send(self, reply: ServerReply) -> None:
            if reply.hold is not None:
                reply.hold.wait()
            if reply.delay:
                threading.Event().wait(reply.delay)
            self.send_response(reply.status)
            for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self._send_body(reply)

        def _send_body(self, reply: ServerReply) -> None:
            for index in range(len(reply.body)) if reply.drip else ():
                self.wfile.write(reply.body[index : index + 1])
                self.wfile.flush()
                threading.Event().wait(reply.drip)
            if not reply.drip:
                self.wfile.write(reply.body if reply.sent_bytes is None else reply.body[: reply.sent_bytes])
            if reply.sent_bytes is not None:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Requests are recorded, not printed."""

    return Handler


if __name__ == "__main__":
    main()
