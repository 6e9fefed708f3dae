"""Mechanic's exceptions: the lists, one of them, asking for one and taking it back; and content under a live one.

A page with content makes a look with a key of its own, lets a worker answer it, and shows what comes back, once.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from flask import jsonify, render_template, request, url_for
from flask.typing import ResponseReturnValue
from markupsafe import Markup

from app.errors import Invalid, NotFound, Refused, Unavailable
from app.grants import opening
from app.grants.opening import NotCovered
from app.grants.request import WantedException, request_access
from app.grants.request import revoke_grant as take_back
from app.models import AccessGrant, GrantStatus
from app.models.user import ADMIN
from app.values.text import is_row_id
from app.views import errors
from app.views.access import my_agent, my_row, needs, post_act, signed_in_pages, signed_in_user, viewer
from app.views.answers import answer_act, page, redirect_to, wants_json
from app.views.live import mine_part, parts_of_this_page
from app.views.shown.content import HistoryContent, LedgerContent
from app.views.shown.exception import (
    FIELDS,
    UNLESS_TYPED,
    AskPage,
    ExceptionPage,
    ExceptionsPage,
    ExceptionState,
    milliseconds_left,
)
from tasks import grants as queue

blueprint = signed_in_pages("exceptions", __name__)


@page(blueprint, "/exceptions", "exceptions/index.html")
def index() -> ExceptionsPage:
    return ExceptionsPage(viewer().account_id, before=request.args.get("before", "")[:36])


@page(blueprint, "/agents/<int:agent_id>/exceptions", "exceptions/agent.html")
def agent(agent_id: int) -> ExceptionsPage:
    return ExceptionsPage(viewer().account_id, my_agent(agent_id), before=request.args.get("before", "")[:36])


@page(blueprint, "/exceptions/<uuid:exception_id>", "exceptions/show.html")
def show(exception_id: UUID) -> ExceptionPage:
    return ExceptionPage(my_row(AccessGrant, exception_id))


@blueprint.get("/agents/<int:agent_id>/exceptions/new")
@needs(ADMIN)
def new(agent_id: int) -> ResponseReturnValue:
    asked = my_agent(agent_id)
    typed = UNLESS_TYPED | {"scope": request.args.get("scope", "")[:36] or UNLESS_TYPED["scope"]}
    return render_template("exceptions/new.html", page=AskPage(asked, typed))


@post_act(blueprint, "/agents/<int:agent_id>/exceptions")
def ask(agent_id: int) -> ResponseReturnValue:
    asked, user = my_agent(agent_id), signed_in_user()
    typed = {name: request.form.get(name, "") for name in FIELDS}
    try:
        grant = request_access(agent_id, WantedException.read(typed), for_user=user, by=user.actor)
    except (Invalid, NotFound, Refused) as error:
        return render_template("exceptions/new.html", page=AskPage(asked, typed, error)), 422
    queue.enqueue(grant.id)
    return redirect_to(url_for("exceptions.show", exception_id=grant.id))


@post_act(blueprint, "/exceptions/<uuid:exception_id>/revoke")
def revoke(exception_id: UUID) -> ResponseReturnValue:
    standing = ExceptionState.load(my_row(AccessGrant, exception_id))
    was = standing.status
    take_back(standing.grant.id, by=viewer().actor)
    if was == GrantStatus.GRANTED:
        queue.enqueue_telling(standing.grant.id)
    text, tone = _revocation_words(standing, was)
    to = url_for("exceptions.show", exception_id=exception_id)
    return answer_act(text, to=to, tone=tone, parts=_fresh_parts)


@blueprint.get("/exceptions/mine")
def mine() -> ResponseReturnValue:
    """The viewer's live exceptions, as every page carries them: a part of it, not a page."""
    return mine_part()


@blueprint.get("/exceptions/<uuid:exception_id>/pulse.json")
def pulse(exception_id: UUID) -> ResponseReturnValue:
    """Whether a page with content may go on showing it, by the database's clock: it asks all the time."""
    left = milliseconds_left(my_row(AccessGrant, exception_id).id, viewer().id) if viewer().may(ADMIN) else 0
    return jsonify({"live": left > 0, "milliseconds_left": left})


@page(blueprint, "/exceptions/<uuid:exception_id>/ledger", "exceptions/ledger.html", packed=False)
@needs(ADMIN)
def ledger(exception_id: UUID) -> LedgerContent:
    after = request.args.get("after", "")
    after = after if is_row_id(after) else ""
    grant = my_row(AccessGrant, exception_id)
    return LedgerContent(grant, _fetch_look(grant, is_ledger=True, after=int(after or 0)), after=after)


@page(blueprint, "/exceptions/<uuid:exception_id>/history", "exceptions/history.html", packed=False)
@needs(ADMIN)
def history(exception_id: UUID) -> HistoryContent:
    grant = my_row(AccessGrant, exception_id)
    return HistoryContent(grant, _fetch_look(grant, is_ledger=False))


@blueprint.errorhandler(NotCovered)
def not_covered(error: NotCovered) -> ResponseReturnValue:
    """A page that shows nothing, and says where to look."""
    if wants_json():
        return errors.answer_error(error.http_status, error.code, error.sentence)
    its_page = url_for("exceptions.show", exception_id=(request.view_args or {})["exception_id"])
    advice = Markup('<a href="{}">Its page</a> says how it stands, and whether one may ask again.').format(its_page)
    said = {"title": "Nothing is shown", "sentence": error.sentence, "advice": advice}
    return render_template("errors/error.html", code=error.http_status, **said), error.http_status


class NoAnswer(Unavailable):
    """No worker answered in time. Nothing was shown, and no view was recorded. Try again in a few seconds."""

    code = "no_answer"


class NotThisWay(Refused):
    """Content is not fetched in this way."""

    code = "not_this_way"
    outcome = "Nothing was shown, and no view was recorded."
    http_status = 403


def _fetch_look(grant: AccessGrant, *, is_ledger: bool, **wanted: Any) -> dict[str, Any]:
    """Everything that this look shows, with its receipt written. Raises NotCovered, NotThisWay or NoAnswer."""
    _require_a_reader()
    if is_ledger != (grant.refinement_id is None):
        raise NotCovered
    look = opening.look(grant, viewer(), **wanted)
    if not queue.wait_for_answer(look.view_id) and opening.withdraw_view(look):
        raise NoAnswer
    return opening.fetch_view(look)


def _require_a_reader() -> None:
    """No browser fetches content ahead of its reader, nor keeps the JSON twin in a tab, which nothing could clear."""
    if "prefetch" in request.headers.get("Sec-Purpose", ""):
        raise NotThisWay
    if request.path.endswith(".json") and request.headers.get("Sec-Fetch-Mode") == "navigate":
        raise NotThisWay("This address is for programs: a browser could not clear it in time. Open the page instead.")


def _revocation_words(standing: ExceptionState, was: GrantStatus) -> tuple[str, str]:
    """What happened, and its tone."""
    again = f"{standing.agent.name} may be asked again."
    if was == GrantStatus.GRANTED:
        return f"Revoked: {standing.email} can't read anything any more. {again}", "success"
    if was == GrantStatus.PENDING:
        return f"The question is taken back. {again}", "success"
    return "It had ended already. Nothing was changed.", "info"


def _fresh_parts() -> str:
    """The banner, and the live parts of the page that asked, if it has any."""
    parts = parts_of_this_page()
    return mine_part() + (parts() if parts else "")
