"""Addresses of pages, made by the router once a request: of many rows they differ in their ids only."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote_plus

from flask import g, url_for

_NUMBER, _UUID, _TYPED = "1000000000000001", "00000000-0000-4000-8000-00000000000f", "SAMPLE"
_SAMPLES = {
    **dict.fromkeys(("agent_id", "entry_id"), _NUMBER),
    **dict.fromkeys(("refinement_id", "rollback_id", "exception_id", "change_id", "receipt_id"), _UUID),
}
_UNQUOTED = "!$'()*,/:;?@"
"""What the router leaves as it is in a query."""

Address = Callable[[object], str]


def page_url(endpoint: str) -> str:
    """Of a page that takes no argument."""
    made: dict[str, str] = g.setdefault("page_urls", {})
    if endpoint not in made:
        made[endpoint] = url_for(endpoint)
    return made[endpoint]


def row_url(endpoint: str, name: str, row_id: object) -> str:
    """Of the page of one row, whose id, a number or a UUID, is the argument `name`."""
    made: dict[str, tuple[str, str]] = g.setdefault("row_urls", {})
    if endpoint not in made:
        head, tail = url_for(endpoint, **{name: _SAMPLES[name]}).rsplit(_SAMPLES[name], 1)  # type: ignore[arg-type]
        made[endpoint] = head, tail
    head, tail = made[endpoint]
    return f"{head}{row_id}{tail}"


def query_url(url: str, name: str) -> Address:
    """What completes an address by one more parameter, whatever its value."""
    start = f"{url}{'&' if '?' in url else '?'}{name}="
    return lambda value: start + quote_plus(str(value), safe=_UNQUOTED)


def agent_url(agent_id: int) -> str:
    return row_url("agents.show", "agent_id", agent_id)


def refinement_url(refinement_id: str) -> str:
    return row_url("refinements.show", "refinement_id", refinement_id)
