"""Refinements: the live page of one, and its Stop."""

from __future__ import annotations

from uuid import UUID

from flask import url_for
from flask.typing import ResponseReturnValue

from app.models import Refinement
from app.refinement.start import request_stop
from app.views.access import my_row, post_act, signed_in_pages, viewer
from app.views.answers import answer_act, page
from app.views.live import parts_of
from app.views.shown.refinement import RefinementPage

blueprint = signed_in_pages("refinements", __name__)


@page(blueprint, "/refinements/<uuid:refinement_id>", "refinements/show.html")
def show(refinement_id: UUID) -> RefinementPage:
    return RefinementPage(my_row(Refinement, refinement_id))


@post_act(blueprint, "/refinements/<uuid:refinement_id>/stop")
def stop(refinement_id: UUID) -> ResponseReturnValue:
    refinement = my_row(Refinement, refinement_id)
    was_open = refinement.is_open
    stopped = request_stop(refinement.id, by=viewer().actor)
    if not was_open:
        text, tone = "It had ended already. Nothing was changed.", "info"
    elif stopped.is_open:
        text, tone = "Stopping: it ends before its next change.", "success"
    else:
        text, tone = "Stopped before a worker began. Nothing was changed.", "success"
    to = url_for("refinements.show", refinement_id=refinement_id)
    return answer_act(text, to=to, tone=tone, parts=lambda: parts_of("refinement", my_row(Refinement, refinement_id)))
