"""The stream's twin for whoever can't hold one open: `GET /events/poll?topic=…&after=ID` answers at once.

204 when nothing is new, else the same partials, with the newest event's id in the header `Last-Event-ID`.
"""

from __future__ import annotations

from flask import Blueprint, Response, abort, current_app, request
from flask_security import current_user

from app.errors import NotFound
from app.events.topics import Topic, Visitor, catch_up, last_seen
from app.models.user import AUDITOR

blueprint = Blueprint("events", __name__)


@blueprint.get("/events/poll")
def poll() -> Response:
    visitor = Visitor.of(current_user._get_current_object())
    if visitor is None:
        abort(401)
    if not visitor.viewer.may(AUDITOR):
        abort(403)
    account_id = visitor.viewer.account_id
    topic = Topic.parse(request.args.get("topic", ""))
    if topic is None or not topic.belongs_to(account_id):
        raise NotFound("There is no such topic in this account.")
    newest = catch_up(topic, account_id, last_seen(request.args.get("after"), account_id))
    if newest is None:
        return Response(status=204)
    markup = str(current_app.extensions["stream_partials"](topic.name, visitor.viewer))
    return Response(markup, headers={"Last-Event-ID": str(newest)}, mimetype="text/html")
