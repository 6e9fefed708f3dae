"""The roof: puts an application together, for one of its roles."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flask import Flask

    from app.config import Settings


class Part(StrEnum):
    """Which process this is. Only the worker and the command line may hold the private master key."""

    WEB = "web"
    WORKER = "worker"
    BEAT = "beat"
    COMMAND_LINE = "command_line"


def create_app(settings: Settings | None = None, *, part: Part = Part.COMMAND_LINE) -> Flask:
    """An application bound to its database. Raises Misconfigured; opens no connection and reads no key.

    Flask and the settings are imported here, because every small command imports this package. Only Flask's own command
    line (`flask --app app db …`) gets Flask-Migrate's commands, which take long to import.
    """
    from app import events, extensions
    from app import models as models
    from app.config import ROOT, load_settings

    settings = settings or load_settings()
    app = _application_class(part)("whetstone", template_folder=str(ROOT / "templates"), static_folder=None)
    app.config.update(SQLALCHEMY_DATABASE_URI=settings.sqlalchemy_url)
    app.extensions.update(settings=settings, part=part, wake_streams=events.wake_streams, settle_soon=lambda _: None)
    extensions.init_app(app)
    if os.environ.get("FLASK_RUN_FROM_CLI") == "true":
        extensions.init_migrations(app)
    if part is Part.WEB:
        from app import health, views
        from app.api import v1, well_known
        from app.events import stream

        views.init_app(app)
        v1.init_app(app)
        health.init_app(app)
        app.register_blueprint(stream.blueprint)
        app.register_blueprint(well_known.blueprint)
    return app


def _application_class(part: Part) -> type[Flask]:
    if part is Part.WEB:
        from app.views.webapp import WebApp

        return WebApp
    from flask import Flask

    return Flask
