"""Where the time of a page went, for its admins: a `Server-Timing` header, which the browser's tools draw.

Sums only, of statements, of rendering and of all; no statement, no name, no content. Nobody else gets it: how long an
answer takes inside says something of what it looked for.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from flask import Flask, Response, before_render_template, g, template_rendered
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


@dataclass
class _Times:
    """Of the page that this thread makes, in seconds; moments are those of `perf_counter`."""

    began_at: float
    statements: int = 0
    database: float = 0.0
    rendering: float = 0.0
    statement_began_at: float = 0.0
    rendering_began_at: float = 0.0


_TIMES: ContextVar[_Times | None] = ContextVar("times of a page", default=None)
"""Not in Flask's `g`: to look there twice for each statement takes longer than to note its time."""


def _begin() -> None:
    _TIMES.set(_Times(time.perf_counter()))


def _begin_statement(*_: Any) -> None:
    if times := _TIMES.get():
        times.statement_began_at = time.perf_counter()


def _end_statement(*_: Any) -> None:
    if times := _TIMES.get():
        times.statements += 1
        times.database += time.perf_counter() - times.statement_began_at


def _begin_rendering(*_: Any, **__: Any) -> None:
    if times := _TIMES.get():
        times.rendering_began_at = time.perf_counter()


def _end_rendering(*_: Any, **__: Any) -> None:
    if times := _TIMES.get():
        times.rendering += time.perf_counter() - times.rendering_began_at


def _tell(response: Response) -> Response:
    times = _TIMES.get()
    _TIMES.set(None)
    if times and g.get("is_for_an_admin"):
        total = time.perf_counter() - times.began_at
        said = f'db;dur={_milliseconds(times.database)};desc="{times.statements} statements"'
        said += f", render;dur={_milliseconds(times.rendering)}, total;dur={_milliseconds(total)}"
        response.headers["Server-Timing"] = said
    return response


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"
