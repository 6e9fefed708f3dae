"""A message by HTTP: one POST to the address that was judged, with no redirect, a deadline, and the answer unread."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from app.notices.addresses import JudgedAddress

SECONDS = 10.0
"""All of a delivery."""


class NoAnswerInTime(OSError):
    """The receiver did not answer in time."""


def post(
    address: JudgedAddress,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float = SECONDS,
    tls: ssl.SSLContext | None = None,
) -> int:
    """The status that it answered with; nothing else of the answer is kept. Raises OSError or HTTPException."""
    connection = _PinnedConnection(address, seconds, tls)
    named = {"Host": address.named, "Content-Type": "application/json"}
    try:
        connection.request("POST", address.path, body, {**named, **headers})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException):
        if connection.is_over:
            raise NoAnswerInTime from None
        raise
    finally:
        connection.close()
    if connection.is_over:  # a head that was cut off at the deadline reads like a whole one
        raise NoAnswerInTime
    return status


class _PinnedConnection(http.client.HTTPConnection):
    """Connects to the judged address, whatever its name means by now, and hangs up at the deadline: also on a peer that
    sends a byte now and then.
    """

    def __init__(self, address: JudgedAddress, seconds: float, tls: ssl.SSLContext | None) -> None:
        super().__init__(address.host, address.port, timeout=seconds)
        self._address, self._ends, self._tls = address, time.monotonic() + seconds, tls
        self._clock: threading.Timer | None = None
        self._held: socket.socket | None = None

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._ends

    def connect(self) -> None:
        plain = socket.create_connection((self._address.ip, self._address.port), self._ends - time.monotonic())
        self._held = plain.dup()
        self._clock = threading.Timer(max(0.0, self._ends - time.monotonic()), _hang_up, (self._held,))
        self._clock.daemon = True
        self._clock.start()
        self.sock = plain
        if self._address.scheme == "https":
            context = self._tls or ssl.create_default_context()
            self.sock = context.wrap_socket(plain, server_hostname=self._address.host)

    def close(self) -> None:
        super().close()
        if self._clock is not None and self._held is not None:
            self._clock.cancel()
            self._clock.join()
            self._held.close()
            self._clock = self._held = None


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
