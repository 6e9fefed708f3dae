"""The overview: what needs attention first."""

from __future__ import annotations

from app.views.access import signed_in_pages, viewer
from app.views.answers import page
from app.views.shown.overview import Overview

blueprint = signed_in_pages("overview", __name__)


@page(blueprint, "/", "overview/index.html", twin="/overview.json")
def index() -> Overview:
    return Overview(viewer().account_id)
