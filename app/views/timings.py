"""Where the time of a page went, for its admins: a `Server-Timing` header, which the browser's tools draw.

Sums only, of statements, of rendering and of all; no statement, no name, no content. Nobody else gets it: how long an
answer takes inside says something of what it looked for.
"""

from __future__ import annotations

import time
from typing import Any

from flask import Flask, Response, before_render_template, g, has_request_context, template_rendered
from sqlalchemy import Engine, event

from app.extensions import db


def init_app(app: Flask) -> None:
    """Before whatever else looks at requests: the total is of all of them."""
    app.before_request(_begin)
    app.after_request(_tell)
    before_render_template.connect(_begin_rendering, app)
    template_rendered.connect(_end_rendering, app)
    with app.app_context():
        _watch(db.engine)


def _watch(engine: Engine) -> None:
    event.listen(engine, "before_cursor_execute", _begin_statement)
    event.listen(engine, "after_cursor_execute", _end_statement)


def _begin() -> None:
    g.began_at, g.statements, g.database_seconds, g.render_seconds = time.perf_counter(), 0, 0.0, 0.0


def _begin_statement(*_: Any) -> None:
    if has_request_context():
        g.statement_began_at = time.perf_counter()


def _end_statement(*_: Any) -> None:
    if has_request_context() and "statements" in g and "statement_began_at" in g:
        g.statements += 1
        g.database_seconds += time.perf_counter() - g.statement_began_at


def _begin_rendering(*_: Any, **__: Any) -> None:
    g.rendering_began_at = time.perf_counter()


def _end_rendering(*_: Any, **__: Any) -> None:
    if "render_seconds" in g:
        g.render_seconds += time.perf_counter() - g.rendering_began_at


def _tell(response: Response) -> Response:
    if "began_at" in g and g.get("is_for_an_admin"):
        total = time.perf_counter() - g.began_at
        said = f'db;dur={_milliseconds(g.database_seconds)};desc="{g.statements} statements"'
        said += f", render;dur={_milliseconds(g.render_seconds)}, total;dur={_milliseconds(total)}"
        response.headers["Server-Timing"] = said
    return response


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"
