"""The network under every call of a model: whichever provider LiteLLM asks, and whichever client it makes for it.

LiteLLM's providers make httpx clients of many kinds and settings. All of them send through one method,
`httpx.HTTPTransport.handle_request`: there a call is bounded. The whole reply is there by the deadline, however slowly
it comes; it is no larger than a model's reply; it is not compressed, so that it can't grow; a redirect is not followed.
It also keeps how the call went, which LiteLLM folds into one HTTP 500.
Imported with LiteLLM, never before: httpx is heavy too.
"""

from __future__ import annotations

import functools
import socket
import ssl
import threading
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

from app.llm import body as bodies
from app.llm.client import ModelErrorKind
from app.llm.exchange import Exchange, current_exchange

_NOT_PASSED_ON = {"content-encoding", "content-length", "transfer-encoding", "location", "x-should-retry"}
"""Headers of a body as it was sent, the one that a redirect follows, and the one that asks for another attempt."""

_NOT_AGAIN = ("x-should-retry", "false")
"""Read by the clients of OpenAI and Anthropic: 15 of LiteLLM's providers ask three times, whatever it is told."""

_send_unbounded = httpx.HTTPTransport.handle_request


def shared_tls_context() -> ssl.SSLContext:
    """One a process: contexts, not connections, are what limits how many calls are in flight.

    The first calls of many threads wait for one of them to make it: it takes longer than a call.
    """
    with _MAKING:
        return _make_tls_context()


_MAKING = threading.Lock()


@functools.cache
def _make_tls_context() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def own_connections() -> httpx.Client:
    """A client to lend to one refinement after another, where a provider takes one of ours: it keeps no cookie."""
    client = httpx.Client(verify=shared_tls_context())
    client._cookies = _NoCookies()
    return client


class _NoCookies(httpx.Cookies):
    """Takes none, without the two copies of request and response that the standard library's jar would look at."""

    def extract_cookies(self, response: httpx.Response) -> None:
        pass


def bound_every_client() -> None:
    """From now on what this process sends by httpx while it asks a model is bounded, whoever made the client.

    Requests of threads that ask no model are sent as ever.
    """
    httpx.HTTPTransport.handle_request = _send_bounded  # type: ignore[method-assign,assignment]


def _send_bounded(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
    exchange = current_exchange()
    if exchange is None:
        return _send_unbounded(transport, request)
    asked = f"{request.method} {request.url}"
    if asked in exchange.failed:
        raise httpx.ConnectError("It failed just now, and is not sent again within the same call.")
    exchange.forget()
    transport._pool._network_backend = _BACKEND
    request.headers["Accept-Encoding"] = "identity"
    try:
        return _read_response(_send_unbounded(transport, request), exchange)
    except httpx.TransportError as error:
        exchange.failed.add(asked)
        is_late = isinstance(error, httpx.TimeoutException)
        exchange.fault = ModelErrorKind.TIMEOUT if is_late else ModelErrorKind.UNREACHABLE
        raise


def _read_response(response: httpx.Response, exchange: Exchange) -> httpx.Response:
    """The response with all of its body, in a form that LiteLLM's parser accepts."""
    try:
        body = _read_body(response, exchange)
    finally:
        response.close()
    exchange.status = status = response.status_code
    exchange.retry_after = response.headers.get("retry-after")
    if exchange.problem:
        exchange.fault, status = ModelErrorKind.SERVER_ERROR, 502
    elif response.is_client_error and bodies.says_too_long(body):
        exchange.fault = ModelErrorKind.CONTEXT_TOO_LONG
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _NOT_PASSED_ON]
    return httpx.Response(
        status,
        headers=[*headers, _NOT_AGAIN],
        stream=httpx.ByteStream(bodies.tidy_body(body)),
        extensions=response.extensions,
    )


def _read_body(response: httpx.Response, exchange: Exchange) -> bytes:
    """The body as far as it counts: of an error its beginning, and nothing of what is no reply."""
    is_error = response.status_code >= 400
    limit = bodies.MAX_ERROR_BYTES if is_error else bodies.MAX_REPLY_BYTES
    sent = _read_up_to(limit + 1, response, exchange)
    body = bodies.unpack_body(sent, response.headers.get("content-encoding", ""), limit + 1)
    if is_error:
        return (body or b"")[:limit]
    if body is None:
        exchange.problem = "it is packed in a way that was not asked for"
    elif len(body) > limit:
        exchange.problem = f"it is longer than {limit / 2**20:g} MB"
    elif bodies.has_too_many_parts(body):
        exchange.problem = f"it has more than {bodies.MAX_PARTS:,} parts"
    return b"" if exchange.problem or body is None else body


def _read_up_to(limit: int, response: httpx.Response, exchange: Exchange) -> bytes:
    body = bytearray()
    for part in response.stream:  # type: ignore[union-attr]
        body += part
        if exchange.seconds_left() <= 0:
            raise httpx.ReadTimeout("The reply as a whole took too long.")
        if len(body) >= limit:
            break
    return bytes(body)


class _Backend(httpcore.NetworkBackend):
    """Connects within what is left of the exchange, over all addresses of a name."""

    def __init__(self) -> None:
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        failed: Exception = httpcore.ConnectError("The name has no address.")
        for address in _resolve_host(host, port):
            left = _at_most(timeout, httpcore.ConnectTimeout)
            try:
                return _Stream(self._plain.connect_tcp(address, port, left, local_address, socket_options))
            except httpcore.ConnectError as error:
                failed = error
        raise failed

    def connect_unix_socket(self, path: str, timeout: float | None = None, *_: Any) -> httpcore.NetworkStream:
        raise httpcore.ConnectError("Models are asked over the network alone.")


class _Stream(httpcore.NetworkStream):
    """A connection that waits no longer than its exchange has left, at each single read and write."""

    def __init__(self, plain: httpcore.NetworkStream) -> None:
        self._plain = plain

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._plain.read(min(max_bytes, _READ_AT_ONCE), _at_most(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITTEN_AT_ONCE):
            part = buffer[start : start + _WRITTEN_AT_ONCE]
            self._plain.write(part, _at_most(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._plain.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _at_most(timeout, httpcore.ConnectTimeout)
        return _Stream(self._plain.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._plain.get_extra_info(info)


_BACKEND = _Backend()
_WRITTEN_AT_ONCE = 16 * 1024
_READ_AT_ONCE = 8 * 1024
"""Bytes. Python makes room for all of them before it begins to wait: httpcore asks for 64 kB, and most of a refinement
is waiting."""


def _resolve_host(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _at_most(timeout: float | None, otherwise: type[Exception]) -> float | None:
    """The time-out of one step: its own, or what is left. Raises `otherwise` when nothing is."""
    exchange = current_exchange()
    if exchange is None:
        return timeout
    left = exchange.seconds_left()
    if left <= 0:
        raise otherwise("The time of the call is over.")
    return left if timeout is None else min(timeout, left)
