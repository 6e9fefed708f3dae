"""Failures: every agent whose newest refinement failed, with the reason, as the overview counts them."""

from __future__ import annotations

from flask import request

from app.views.access import signed_in_pages, viewer
from app.views.answers import page
from app.views.shown.overview import FailuresPage

blueprint = signed_in_pages("failures", __name__)


@page(blueprint, "/failures", "failures/index.html")
def index() -> FailuresPage:
    reason, before = request.args.get("reason", "")[:400], request.args.get("before", "")[:36]
    return FailuresPage(viewer().account_id, reason=reason, before=before)
