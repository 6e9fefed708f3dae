"""Who gets notices: a real SMTP server and a real HTTP server on this machine, which keep what they were handed."""

from __future__ import annotations

import email
import email.policy
import socketserver
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.certificates import speak_tls

LOCAL = "127.0.0.0/8"


@dataclass(frozen=True)
class ReceivedMail:
    sender: str
    to: list[str]
    raw: bytes = field(repr=False)

    @property
    def message(self) -> EmailMessage:
        parsed = email.message_from_bytes(self.raw, policy=email.policy.default)
        assert isinstance(parsed, EmailMessage)
        return parsed

    @property
    def text(self) -> str:
        return str(self.message.get_content()).replace("\r\n", "\n")


class _Background:
    """A server in a thread, for as long as a `with`."""

    server: Any

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])


class _Threads(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class MailReceiver(_Background):
    """RFC 5321 as far as a client needs it, without TLS. `refusing` is what it says to each message instead of 250."""

    def __init__(self) -> None:
        self.mails: list[ReceivedMail] = []
        self.refusing = b""
        self.server = _Threads(("127.0.0.1", 0), _handler_of(self))

    @property
    def url(self) -> str:
        return f"smtp+plain://127.0.0.1:{self.port}"


def _handler_of(receiver: MailReceiver) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say(b"220 mail.example.org")
            sender, to = "", list[str]()
            while line := self.rfile.readline():
                verb, _, rest = line.decode().strip().partition(" ")
                match verb.upper():
                    case "MAIL":
                        sender = rest.partition("<")[2].partition(">")[0]
                        self.say(b"250 ok")
                    case "RCPT":
                        to.append(rest.partition("<")[2].partition(">")[0])
                        self.say(b"250 ok")
                    case "DATA":
                        self.say(b"354 go on")
                        raw = b"".join(iter(self.rfile.readline, b".\r\n"))
                        if not receiver.refusing:
                            receiver.mails.append(ReceivedMail(sender, to, raw))
                        self.say(receiver.refusing or b"250 taken")
                        sender, to = "", []
                    case "QUIT":
                        self.say(b"221 bye")
                        return
                    case _:
                        self.say(b"250 mail.example.org")

        def say(self, line: bytes) -> None:
            self.wfile.write(line + b"\r\n")

    return Handler


@dataclass(frozen=True)
class ReceivedPost:
    path: str
    headers: dict[str, str]
    body: bytes


class HookReceiver(_Background):
    """Answers each POST with the next of `answers`, else 204. `location` is where a redirect leads; `before_answer` is
    done with the message in hand. With `tls`, a file of a certificate and its key, it speaks HTTPS alone.
    """

    def __init__(self, tls: Path | None = None) -> None:
        self.posts: list[ReceivedPost] = []
        self.answers: deque[int] = deque()
        self.location = ""
        self.drip: threading.Event | None = None
        self.before_answer: Callable[[], None] | None = None
        self.server = _Web(("127.0.0.1", 0), _hook_of(self))
        self._scheme = "http"
        if tls is not None:
            speak_tls(self.server, tls)
            self._scheme = "https"

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/hook/secret-path"


class _Web(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up, as over a certificate that it does not trust, is no news; anything else is."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _hook_of(receiver: HookReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.posts.append(ReceivedPost(self.path, headers, body))
            if receiver.before_answer is not None:
                receiver.before_answer()
            if receiver.drip is not None:
                self._drip(receiver.drip)
                return
            self.send_response(receiver.answers.popleft() if receiver.answers else 204)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _drip(self, is_over: threading.Event) -> None:
            """One byte of a head now and then, for ever."""
            try:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not is_over.wait(0.05):
                    self.wfile.write(b"x")
            except OSError:
                is_over.set()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    return Handler
