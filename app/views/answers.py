"""The forms that an answer takes: a page and its JSON twin, fresh parts with a toast, or the way to another page.

The twin of a page stands at the same path with `.json` behind it; the overview's is `/overview.json`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, cast

from flask import Blueprint, Response, flash, jsonify, make_response, redirect, render_template, request
from flask.typing import ResponseReturnValue

from app.views.compression import pack_page

_TONES = {"success": "ok", "info": "info", "warning": "warn", "error": "bad"}


class PageData(Protocol):
    """Everything that a page shows, loaded before it is rendered: templates never query."""

    def as_json(self) -> Any:
        """The page's JSON twin."""


View = Callable[..., PageData]


def page(
    blueprint: Blueprint, rule: str, template: str, *, twin: str = "", packed: bool = True
) -> Callable[[View], View]:
    """Register a view for a page and for its JSON twin. The template reads what the view returns as `page`.

    A page that shows content or a secret is not `packed` (see `compression`).
    """
    twin_rule = twin or f"{rule}.json"

    def register(view: View) -> View:
        name = view.__name__

        @wraps(view)
        def as_page(**arguments: Any) -> ResponseReturnValue:
            query = request.query_string.decode("ascii", "replace")
            json_url = (twin or f"{request.path}.json") + (f"?{query}" if query else "")
            response = make_response(render_template(template, page=view(**arguments), json_url=json_url))
            return pack_page(response) if packed else response

        @wraps(view)
        def as_twin(**arguments: Any) -> ResponseReturnValue:
            return jsonify(view(**arguments).as_json())

        blueprint.add_url_rule(rule, endpoint=name, view_func=as_page, methods=["GET"])
        blueprint.add_url_rule(twin_rule, endpoint=f"{name}_json", view_func=as_twin, methods=["GET"])
        return view

    return register


def answer_act(
    text: str, *, to: str, undo: str = "", tone: str = "success", parts: Callable[[], str] | None = None
) -> ResponseReturnValue:
    """Answer an act. Where htmx asks and there are `parts`, the page stays: they are morphed, and a toast speaks.

    Otherwise the browser goes `to` a page, where the toast is waiting. `undo` is an address to POST to.
    """
    if is_htmx() and parts is not None:
        return str(parts()) + render_template("_toast.html", text=text, tone=_TONES[tone], undo=undo)
    flash({"text": text, "undo": undo} if undo else text, tone)  # type: ignore[arg-type]
    return redirect_to(to)


def redirect_to(address: str) -> Response:
    """Send the browser to another page, whether htmx asks or not."""
    if is_htmx():
        return Response("", headers={"HX-Redirect": address})
    return cast(Response, redirect(address, 303 if request.method == "POST" else 302))


def is_htmx() -> bool:
    return "HX-Request" in request.headers


def wants_json() -> bool:
    """Whether the asker is a program: by the twin's path, the agents' door, or by what it sends or accepts."""
    if request.path.endswith(".json") or request.path.startswith("/api/") or request.is_json:
        return True
    best = request.accept_mimetypes.best_match(["text/html", "application/json", "application/problem+json"])
    return best not in (None, "text/html")
