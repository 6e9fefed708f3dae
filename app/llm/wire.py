"""The connection under one client: one shared TLS context, a deadline for the whole reply, and what really came back.

LiteLLM folds a refused connection, an HTML page and a broken reply into one HTTP 500; this keeps the truth apart.
Imported with LiteLLM, never before: httpx is heavy too.
"""

from __future__ import annotations

import functools
import json
import ssl
import time
from typing import Any

import httpx

from app.llm.client import ModelErrorKind

MAX_REPLY_BYTES = 32 * 1024 * 1024
"""A reply beyond this is no reply of a model; it is not read to its end."""

_DESCRIBES_ENCODED_BODY = {"content-encoding", "content-length", "transfer-encoding"}

_CONTEXT_IS_FULL = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}


@functools.cache
def shared_tls_context() -> ssl.SSLContext:
    """One a process: contexts, not connections, are what limits how many calls are in flight."""
    return httpx.create_ssl_context()


class Wire(httpx.Client):
    """An HTTP client of one refinement. After a call, `status`, `retry_after` and `fault` tell how it went.

    httpx's read time-out starts again with every byte; a server that drips whitespace would hold a refinement for
    ever. Here the time-out of a request bounds its reply as a whole (at worst twice, when the last byte is late).
    """

    def __init__(self) -> None:
        super().__init__(verify=shared_tls_context())
        self.forget()

    def forget(self) -> None:
        """Start a new call: nothing has come back yet."""
        self.status: int | None = None
        self.retry_after: str | None = None
        self.fault: ModelErrorKind | None = None

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Send, read the whole reply, and hand it on in a form that LiteLLM's parser accepts."""
        self.forget()
        try:
            return self._send(request, options)
        except httpx.TimeoutException:
            self.fault = ModelErrorKind.TIMEOUT
            raise
        except httpx.TransportError:
            self.fault = ModelErrorKind.UNREACHABLE
            raise

    def _send(self, request: httpx.Request, options: dict[str, Any]) -> httpx.Response:
        limit = request.extensions.get("timeout", {}).get("read")
        deadline = time.monotonic() + (float("inf") if limit is None else limit)
        response = super().send(request, **{**options, "stream": True})
        try:
            body = _read(response, deadline)
        finally:
            response.close()
        self.status = response.status_code
        self.retry_after = response.headers.get("retry-after")
        if response.is_client_error and says_too_long(body):
            self.fault = ModelErrorKind.CONTEXT_TOO_LONG
        headers = [
            (name, value) for name, value in response.headers.multi_items() if name not in _DESCRIBES_ENCODED_BODY
        ]
        whole = httpx.Response(response.status_code, headers=headers, content=tidy(body), request=request)
        whole.elapsed = response.elapsed
        return whole


def says_too_long(body: bytes) -> bool:
    """Whether an error, by code or type, says that the context is full. LiteLLM goes by sentences alone."""
    try:
        error = json.loads(body)["error"]
        return bool({error.get("code"), error.get("type")} & _CONTEXT_IS_FULL)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


def tidy(body: bytes) -> bytes:
    """Give content in parts and arguments as objects the plain-text form of a chat completion; else change nothing.

    Some compatible servers send them; LiteLLM fails on the first and warns, quoting it, of the second.
    """
    try:
        document = json.loads(body)
        messages = [choice["message"] for choice in document["choices"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        return body
    changed = [_tidy_message(message) for message in messages if isinstance(message, dict)]
    return json.dumps(document).encode() if any(changed) else body


def visible_text(content: object) -> str:
    """The text of a message's content: a string, a list of parts of which only text counts, or nothing."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _read(response: httpx.Response, deadline: float) -> bytes:
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("The reply as a whole took too long.")
        if len(body) > MAX_REPLY_BYTES:
            raise httpx.ReadError("The reply is too large to be one of a model.")
    return bytes(body)


def _tidy_message(message: dict[str, Any]) -> bool:
    changed = False
    if isinstance(message.get("content"), list):
        message["content"], changed = visible_text(message["content"]), True
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and isinstance(function.get("arguments"), dict | list):
            function["arguments"], changed = json.dumps(function["arguments"]), True
    return changed
