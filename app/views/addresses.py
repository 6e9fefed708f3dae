"""Addresses of pages, made by the router once a process: they are constants, and of many rows they differ in their ids.

What stands before all paths is the server's to say, with each request (`SCRIPT_NAME`): each has addresses of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode

from flask import Flask, current_app, request, url_for

_NUMBER, _UUID, _TYPED = "1000000000000001", "00000000-0000-4000-8000-00000000000f", "SAMPLE"
_SAMPLES = {
    **dict.fromkeys(("agent_id", "entry_id"), _NUMBER),
    **dict.fromkeys(("refinement_id", "rollback_id", "exception_id", "change_id", "receipt_id"), _UUID),
}
_UNQUOTED = "!$'()*,/:;?@"
"""What the router leaves as it is in a query."""

_PLAIN = re.compile(r"[0-9a-f-]+", re.ASCII)
"""What an id is that an address may have as it is."""

_MOST_PREFIXES = 8
_MADE = "whetstone.addresses"
"""Where a request has those below its prefix."""

Address = Callable[[object], str]


class _Addresses(NamedTuple):
    """By endpoint, those that are made: of pages; and of rows, what stands before an id and behind it."""

    pages: dict[str, str]
    rows: dict[str, tuple[str, str]]


def init_app(app: Flask) -> None:
    """Templates write `url_for` as everywhere in Flask."""
    app.extensions["addresses"] = dict[str, _Addresses]()
    app.jinja_env.globals["url_for"] = _template_url


def _template_url(endpoint: str, **values: Any) -> str:
    """What Flask's own `url_for` says: of pages without an argument, and of one row, without asking the router anew."""
    if not values:
        return page_url(endpoint)
    if len(values) == 1:
        ((name, value),) = values.items()
        if name in _SAMPLES and (type(value) is int or (type(value) is str and _PLAIN.fullmatch(value))):
            return row_url(endpoint, name, value)
    return url_for(endpoint, **values)


def _made() -> _Addresses:
    environ = request._get_current_object().environ  # type: ignore[attr-defined]  # the proxy takes five times as long
    found: _Addresses | None = environ.get(_MADE)
    if found is None:
        by_prefix: dict[str, _Addresses] = current_app.extensions["addresses"]
        if len(by_prefix) >= _MOST_PREFIXES:
            by_prefix.clear()
        found = environ[_MADE] = by_prefix.setdefault(request.root_path, _Addresses({}, {}))
    return found


def page_url(endpoint: str) -> str:
    """Of a page that takes no argument."""
    made = _made().pages
    if endpoint not in made:
        made[endpoint] = url_for(endpoint)
    return made[endpoint]


def row_url(endpoint: str, name: str, row_id: object) -> str:
    """Of the page of one row, whose id, a number or a UUID, is the argument `name`."""
    made = _made().rows
    if endpoint not in made:
        head, tail = url_for(endpoint, **{name: _SAMPLES[name]}).rsplit(_SAMPLES[name], 1)  # type: ignore[arg-type]
        made[endpoint] = head, tail
    head, tail = made[endpoint]
    return f"{head}{row_id}{tail}"


def list_url(endpoint: str, **query: str) -> str:
    """Of a page that takes no argument, with what its address says beside that."""
    return f"{page_url(endpoint)}?{urlencode(query, safe=_UNQUOTED)}" if query else page_url(endpoint)


def query_url(url: str, name: str) -> Address:
    """What completes an address by one more parameter, whatever its value."""
    start = f"{url}{'&' if '?' in url else '?'}{name}="
    return lambda value: start + quote_plus(str(value), safe=_UNQUOTED)


def agent_url(agent_id: int) -> str:
    return row_url("agents.show", "agent_id", agent_id)


def refinement_url(refinement_id: str) -> str:
    return row_url("refinements.show", "refinement_id", refinement_id)
