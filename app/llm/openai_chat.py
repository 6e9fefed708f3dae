"""OpenAI's client, as far as LiteLLM uses it, without what takes half of a call's time and nobody reads.

The SDK walks through every message and every tool to rename keys that have their names already, and makes objects of
the reply, of which LiteLLM makes dicts again at once. Here both pass as they are. Requests, headers, time-outs and
errors are the SDK's own, by `OpenAI.post`. Imported with LiteLLM, never before.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import httpx
from openai import OpenAI


class ChatClient:
    """To be LiteLLM's `client`: it asks for the key, the address, and `chat.completions.with_raw_response.create`."""

    def __init__(self, client: OpenAI) -> None:
        self._client = client
        self._base_url = client.base_url
        self.api_key = client.api_key
        raw = SimpleNamespace(create=self._create)
        self.chat = SimpleNamespace(completions=SimpleNamespace(with_raw_response=raw))

    def _create(
        self,
        *,
        timeout: float,
        extra_headers: dict[str, str] | None = None,
        extra_query: dict[str, object] | None = None,
        extra_body: dict[str, object] | None = None,
        **body: Any,
    ) -> _RawReply:
        options: dict[str, Any] = {"timeout": timeout, "headers": extra_headers, "params": extra_query}
        given = {name: value for name, value in options.items() if value is not None}
        sent = body | (extra_body or {})
        return _RawReply(self._client.post("/chat/completions", cast_to=httpx.Response, body=sent, options=given))  # type: ignore[call-overload]


class _RawReply:
    def __init__(self, response: httpx.Response) -> None:
        self.headers = response.headers
        self._body = response.content

    def parse(self) -> object:
        """What LiteLLM takes for a reply has a `model_dump`. Raises ValueError for what is no JSON."""
        document = json.loads(self._body)
        return _Document(document) if isinstance(document, dict) else document


class _Document:
    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def model_dump(self) -> dict[str, Any]:
        return self._document
