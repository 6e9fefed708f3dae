"""The bytes of a model's reply: small enough, of few enough parts, and in the plain-text form that LiteLLM reads."""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

MAX_REPLY_BYTES = 2 * 1024 * 1024
"""A reply beyond this is no reply of a model; it is not read to its end. The longest of 128,000 tokens take half."""

MAX_ERROR_BYTES = 16 * 1024
"""Of an error only so much is read: its status says enough."""

MAX_PARTS = 2_000
"""Lists, objects and entries of a JSON document. LiteLLM makes objects of 1 to 3 kB of some."""

_CONTEXT_IS_FULL = {"context_length_exceeded", "exceed_context_size_error", "request_too_large"}

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_PART = re.compile(rb"[\[{,]")


def unpack_body(body: bytes, encoding: str, most: int) -> bytes | None:
    """At most so many bytes of what was sent. Nothing but the plain form is asked for; of some servers gzip comes.

    None where it comes in another form, or in more than one: layers of gzip grow a thousandfold each.
    """
    if encoding.strip().lower() in ("", "identity"):
        return body[:most]
    if encoding.strip().lower() != "gzip":
        return None
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(body, most)
    except zlib.error:
        return None


def has_too_many_parts(body: bytes) -> bool:
    """Whether what is no text in it is more than a model's reply holds. It is not parsed for that."""
    most = body.count(b"[") + body.count(b"{") + body.count(b",")
    return most > MAX_PARTS and len(_PART.findall(_STRING.sub(b"", body))) > MAX_PARTS


def says_too_long(body: bytes) -> bool:
    """Whether an error, by code or type, says that the context is full. LiteLLM goes by sentences alone."""
    try:
        error = json.loads(body)["error"]
        return bool({error.get("code"), error.get("type")} & _CONTEXT_IS_FULL)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False


def tidy_body(body: bytes) -> bytes:
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
