"""A model server that means harm: real HTTP, whatever it is asked, until whoever asks hangs up.

with HostileServer() as server:
    server.attack = "drip"
    ...  # any provider with api_base=server.base_url
    assert server.lured == 0 and server.paths
"""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import socketserver
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from types import TracebackType

PAUSE = 0.2
"""Seconds between the bytes of what is slow."""

MEGABYTE = 1024 * 1024
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
LARGE = 200 * MEGABYTE


class HostileServer:
    """Answers each request by `attack`. `lured` counts who followed its redirects, `paths` has all that was asked."""

    def __init__(self, attack: str = "silence") -> None:
        self.attack = attack
        self.paths: list[str] = []
        self.lured = 0
        self.is_over = threading.Event()
        self._trap = _Server(self, _Lured)
        self._http = _Server(self, _Handler)
        self._threads = [
            threading.Thread(target=each.serve_forever, args=(0.02,), name="hostile-server", daemon=True)
            for each in (self._http, self._trap)
        ]

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def trap_url(self) -> str:
        return f"http://127.0.0.1:{self._trap.server_address[1]}/v1"

    def __enter__(self) -> HostileServer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.is_over.set()
        for server, thread in zip((self._http, self._trap), self._threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join(5)


Send = Callable[[bytes], None]
Pause = Callable[[], bool]


def _silence(send: Send, pause: Pause, server: HostileServer) -> None:
    while pause():
        """Nothing is said."""


def _slow_headers(send: Send, pause: Pause, server: HostileServer) -> None:
    for byte in _forever(OK + b"X-Slow: " + b"x" * 1000):
        send(bytes([byte]))
        if not pause():
            return


def _endless_headers(send: Send, pause: Pause, server: HostileServer) -> None:
    send(OK)
    while True:
        send(b"X-More: " + b"x" * 1000 + b"\r\n")


def _drip(send: Send, pause: Pause, server: HostileServer) -> None:
    send(OK + b"Content-Length: 1000000\r\n\r\n")
    while pause():
        send(b" ")


def _endless_chunks(send: Send, pause: Pause, server: HostileServer) -> None:
    send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    while pause():
        send(b"1\r\n \r\n")


def _endless_interim(send: Send, pause: Pause, server: HostileServer) -> None:
    while pause():
        send(b"HTTP/1.1 103 Early Hints\r\n\r\n")


def _large(send: Send, pause: Pause, server: HostileServer) -> None:
    send(OK + b"Content-Length: %d\r\n\r\n" % LARGE)
    for _ in range(LARGE // MEGABYTE):
        send(b" " * MEGABYTE)


def _large_error(send: Send, pause: Pause, server: HostileServer) -> None:
    send(b"HTTP/1.1 400 No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % LARGE)
    for _ in range(LARGE // MEGABYTE):
        send(b"x" * MEGABYTE)


def _redirect(send: Send, pause: Pause, server: HostileServer) -> None:
    send(b"HTTP/1.1 307 Elsewhere\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % server.trap_url.encode())


def _bomb(send: Send, pause: Pause, server: HostileServer) -> None:
    _send_whole(send, BOMB, b"Content-Encoding: gzip, gzip\r\n")


def _many_choices(send: Send, pause: Pause, server: HostileServer) -> None:
    _send_whole(send, MANY_CHOICES)


def _many_lists(send: Send, pause: Pause, server: HostileServer) -> None:
    _send_whole(send, MANY_LISTS)


def _long_word(send: Send, pause: Pause, server: HostileServer) -> None:
    _send_whole(send, LONG_WORD)


def _forever(first: bytes) -> Iterator[int]:
    yield from first
    while True:
        yield ord("x")


def _send_whole(send: Send, body: bytes, header: bytes = b"") -> None:
    send(OK + header + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def _reply(content: str, more: str = "") -> bytes:
    choice = json.dumps({"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}})
    return f'{{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{choice}{more}]}}'.encode()


def _gzip_of_spaces(megabytes: int) -> bytes:
    """As gzip would make it, block by block the same: the zip of a megabyte is made once."""
    one = b" " * MEGABYTE
    block = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed, check = block.compress(one) + block.flush(zlib.Z_FULL_FLUSH), 0
    for _ in range(megabytes):
        check = zlib.crc32(one, check)
    end = b"\x03\x00" + struct.pack("<II", check, megabytes * MEGABYTE)
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff" + packed * megabytes + end


BOMB = gzip.compress(_gzip_of_spaces(512), 9)
"""Some kB that hold half a gigabyte."""

MANY_CHOICES = _reply("YES", ",{}" * 600_000)
MANY_LISTS = b'{"choices":[' + b"[]," * 600_000 + b"[]]}"
LONG_WORD = _reply("a" * 1_900_000 + "\N{GRINNING FACE}")

ATTACKS: dict[str, Callable[[Send, Pause, HostileServer], None]] = {
    "silence": _silence,
    "slow headers": _slow_headers,
    "endless headers": _endless_headers,
    "endless interim answers": _endless_interim,
    "drip": _drip,
    "endless chunks": _endless_chunks,
    "200 MB": _large,
    "200 MB error": _large_error,
    "redirect": _redirect,
    "gzip, gzip": _bomb,
    "many choices": _many_choices,
    "many lists": _many_lists,
    "long word": _long_word,
}


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, hostile: HostileServer, handler: type[socketserver.BaseRequestHandler]) -> None:
        self.hostile = hostile
        super().__init__(("127.0.0.1", 0), handler)


class _Lured(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        self.server.hostile.lured += 1


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        hostile = self.server.hostile
        with contextlib.suppress(ConnectionError, IndexError):
            hostile.paths.append(self._read_request())
            ATTACKS[hostile.attack](self.request.sendall, self._pause, hostile)

    def _read_request(self) -> str:
        length, path = 0, self.rfile.readline().decode("latin-1").split(" ")[1]
        while (line := self.rfile.readline()).strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        self.rfile.read(length)
        return path

    def _pause(self) -> bool:
        """Whether to go on: nobody has hung up, and the server is not over."""
        if self.server.hostile.is_over.wait(PAUSE):
            return False
        self.request.settimeout(0)
        try:
            return bool(self.request.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        finally:
            self.request.settimeout(None)
