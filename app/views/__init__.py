"""The pages: what admins see and press. One module a noun; `init_app` registers everything for the web process."""

from __future__ import annotations

from flask import Flask
from werkzeug.routing import IntegerConverter, Map

from app.views import (
    agents,
    assets,
    attention,
    audit,
    auth,
    errors,
    exceptions,
    forget,
    frame,
    house,
    imports,
    live,
    memories,
    overview,
    receipts,
    refinements,
    rollbacks,
    settings,
    timings,
    tokens,
    welcome,
)
from tasks import statements


class RowNumber(IntegerConverter):
    """A number that a row can have; any larger one is in no address of ours."""

    def __init__(self, map: Map) -> None:
        super().__init__(map, max=2**63 - 1)


def init_app(app: Flask) -> None:
    """Sign-in, the frame of every page, the pages themselves, and what the event stream sends.

    What web and agents sign is settled by a worker at once, which the rows themselves can't ask for.
    """
    app.extensions["settle_soon"] = statements.enqueue
    app.url_map.converters["int"] = RowNumber
    timings.init_app(app)
    assets.init_app(app)
    auth.init_app(app)
    frame.init_app(app)
    errors.init_app(app)
    for module in (
        overview,
        attention,
        agents,
        settings,
        tokens,
        memories,
        imports,
        refinements,
        rollbacks,
        audit,
        exceptions,
        receipts,
        forget,
        house,
        house.accounts,
        welcome,
    ):
        app.register_blueprint(module.blueprint)
    live.init_app(app)
