"""OpenAI's client, as far as LiteLLM uses it, without what takes half of a call's time and nobody reads.

The SDK walks through every message and every tool to rename keys that have their names already, puts address and
headers together anew for each call, and makes objects of the reply, of which LiteLLM makes dicts again at once. Here
messages and reply pass as they are, and its form of a request is made once a client. Requests, time-outs and errors are
the SDK's own. Imported with LiteLLM, never before.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import httpx
from openai import APIConnectionError, APITimeoutError, OpenAI
from openai._models import FinalRequestOptions
from openai._utils._json import openapi_dumps

_ABOUT_ITSELF = "x-stainless-"
"""The SDK tells each server its version, this machine's system and processor, and how long it waits."""


class ChatClient:
    """To be LiteLLM's `client`: it asks for the key, the address, and `chat.completions.with_raw_response.create`."""

    def __init__(self, client: OpenAI) -> None:
        self._client = client
        self._base_url = client.base_url
        self.api_key = client.api_key
        self._form: httpx.Request | None = None
        raw = SimpleNamespace(create=self._create)
        self.chat = SimpleNamespace(completions=SimpleNamespace(with_raw_response=raw))

    def _create(
        self,
        *,
        timeout: float,
        extra_headers: dict[str, str] | None = None,
        extra_query: dict[str, Any] | None = None,
        extra_body: dict[str, object] | None = None,
        **body: Any,
    ) -> _RawReply:
        request = self._make_request(body | (extra_body or {}), timeout)
        request.headers.update(extra_headers)
        request.url = request.url.copy_merge_params(extra_query) if extra_query else request.url
        try:
            response = self._client._client.send(request)
        except httpx.TimeoutException as error:
            raise APITimeoutError(request=request) from error
        except Exception as error:
            raise APIConnectionError(request=request) from error
        if response.is_success:
            return _RawReply(response)
        raise self._client._make_status_error_from_response(response)

    def _make_request(self, body: dict[str, Any], timeout: float) -> httpx.Request:
        """As the SDK makes it, but for its headers about itself and this machine. Address and headers are made once."""
        form = self._form = self._form or self._make_form()
        extensions = {**form.extensions, "timeout": httpx.Timeout(timeout).as_dict()}
        return httpx.Request("POST", form.url, headers=form.headers, content=openapi_dumps(body), extensions=extensions)

    def _make_form(self) -> httpx.Request:
        form = self._client._build_request(FinalRequestOptions(method="post", url="/chat/completions"))
        for name in [name for name in form.headers if name.startswith(_ABOUT_ITSELF) or name == "content-length"]:
            del form.headers[name]
        return form


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
