"""Refinements: the list of an account's and what can be done to many; the live page of one, and its Stop."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from flask import redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from werkzeug.datastructures import MultiDict

from app.errors import Invalid, NotFound
from app.history.several import MOST_ROLLED_BACK, roll_back_several
from app.models import Refinement
from app.models.base import iso
from app.refinement.attention import MOST_AT_ONCE, unsee_many
from app.refinement.bulk import find_chosen, mark_refinements_seen, retry_refinements
from app.refinement.listing import ATTENTION, FILTERS, TypedFilters
from app.refinement.start import request_stop
from app.values.plural import count_nouns
from app.values.refinement_states import BROKEN_STATES
from app.views.access import my_row, post_act, signed_in_pages, viewer
from app.views.answers import answer_act, is_htmx, page, wants_json
from app.views.errors import answer_error
from app.views.live import parts_of, parts_of_this_page
from app.views.shown.refinement import RefinementPage
from app.views.shown.refinements import RefinementList
from app.views.shown.several_rollbacks import SeveralRollbacksPage
from tasks import refinement as queue

blueprint = signed_in_pages("refinements", __name__)

LISTED = (*FILTERS, "sort", "before")


class RefinementsNotChosen(Invalid):
    """The chosen refinements can't be acted on together."""


@page(blueprint, "/refinements", "refinements/index.html")
def index() -> RefinementList:
    return RefinementList(viewer().account_id, request.args, time_zone=viewer().time_zone or "")


@blueprint.get("/failures")
@blueprint.get("/failures.json")
def show_failures() -> ResponseReturnValue:
    """Where old links lead: the list of refinements, with the filters that leave failures."""
    named = {name: request.args[name] for name in ("reason", "before") if request.args.get(name)}
    twin = ".json" if wants_json() else ""
    filters = {"status": ",".join(BROKEN_STATES), "needs": ATTENTION, **named}
    return redirect(f"{url_for('refinements.index')}{twin}?{urlencode(filters, safe=',')}", 301)


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


@post_act(blueprint, "/refinements/selection")
def show_selection() -> ResponseReturnValue:
    """What Enter on a box does without scripts: the same list with the same boxes checked. Nothing is done."""
    _chosen_ids()
    return _list_again()


@blueprint.errorhandler(RefinementsNotChosen)
def refuse_selection(error: RefinementsNotChosen) -> ResponseReturnValue:
    """The list as it was, with its boxes checked and the reason above them."""
    if wants_json() or is_htmx():
        return answer_error(error.http_status, error.code, error.sentence)
    return _list_again(problem=error.sentence), error.http_status


@post_act(blueprint, "/refinements/retry")
def retry_matching() -> ResponseReturnValue:
    """Start the agents of the checked refinements anew, or of all that match; each by itself."""
    done = retry_refinements(_chosen_ids(), by=viewer().actor, started=queue.enqueue)
    return _stay_on_page(done.line + _cut_words(), tone="warning" if done.refused else "success")


@post_act(blueprint, "/refinements/seen")
def mark_matching_seen() -> ResponseReturnValue:
    marked = mark_refinements_seen(_chosen_ids(), by=viewer().actor)
    if not marked.items:
        return _stay_on_page("Nothing of these waits to be seen.", tone="info")
    undo = url_for("refinements.unsee_matching", since=iso(marked.since), until=iso(marked.until))
    words = f"{count_nouns(marked.refinements, 'refinement')} marked as seen.{_cut_words()}"
    return _stay_on_page(words, undo=undo)


@post_act(blueprint, "/refinements/unseen")
def unsee_matching() -> ResponseReturnValue:
    """Take back what one click marked: the address says from when to when that was."""
    since, until = (_parse_moment(request.args.get(name, "")) for name in ("since", "until"))
    user = viewer()
    count = unsee_many(user.account_id, since, until, by=user.actor)
    if not count:
        return _stay_on_page("Nothing of these is marked as seen.", tone="info")
    return _stay_on_page(f"{count_nouns(count, 'item')} marked as not seen.")


@page(blueprint, "/refinements/rollback", "refinements/rollback.html")
def plan_matching() -> SeveralRollbacksPage:
    """What rolling back the checked refinements, or all that match, would do."""
    chosen = _chosen_ids() if request.args else []
    matching = len(chosen) if _are_checked() or not chosen else _read_filters().filters.count()
    return SeveralRollbacksPage(chosen, matching)


@post_act(blueprint, "/refinements/rollback")
def roll_back_matching() -> ResponseReturnValue:
    """Each by itself, the newest first; of more than one click takes, only those."""
    done = roll_back_several(_chosen_ids()[:MOST_ROLLED_BACK], by=viewer().actor)
    return answer_act(done.line, to=url_for("refinements.index"), tone="warning" if done.left_out else "success")


def _chosen_ids() -> Sequence[str]:
    """The checked refinements, or the newest of all that match the filters which the form carries.

    Raises RefinementsNotChosen or NotFound before anything is done.
    """
    if _are_checked():
        return _find_checked(_checked_ids())
    form = _read_filters()
    if "matching" not in _sent() and ("boxes" in _sent() or not form.typed):
        raise RefinementsNotChosen("No refinements selected. Select at least one.")
    return find_chosen(viewer().account_id, *form.filters.conditions)


def _sent() -> MultiDict[str, str]:
    """What the form of an act carries, or the address of a page that says beforehand what one would do."""
    return request.form if request.method == "POST" else request.args


def _are_checked() -> bool:
    """Whether single refinements are meant, and not all that match."""
    return bool(_checked_ids()) and "matching" not in _sent()


def _checked_ids() -> list[str]:
    return list(dict.fromkeys(_sent().getlist("refinement")))


def _find_checked(ids: Sequence[str]) -> Sequence[str]:
    if len(ids) > MOST_AT_ONCE:
        raise RefinementsNotChosen(f"{len(ids):,} refinements selected. Select at most {MOST_AT_ONCE}.")
    usable = [each for each in ids if len(each) == 36 and each.isprintable()]
    found = find_chosen(viewer().account_id, Refinement.id.in_(usable))
    if len(found) != len(ids):
        raise NotFound("There is no such refinement in this account.", "Nothing was changed.")
    return found


def _read_filters() -> TypedFilters:
    form = TypedFilters.read(viewer().account_id, _sent())
    if form.errors:
        raise RefinementsNotChosen(" ".join(form.errors.values()), "Nothing was changed.")
    return form


def _cut_words() -> str:
    """What is said where more match than one click acts on."""
    if _are_checked():
        return ""
    matching = _read_filters().filters.count()
    if matching <= MOST_AT_ONCE:
        return ""
    return f" These are the newest {MOST_AT_ONCE:,}; {matching:,} match now."


def _parse_moment(typed: str) -> datetime:
    try:
        moment = datetime.fromisoformat(typed)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Invalid("This address does not say when they were marked as seen.", "Nothing was changed.")
    return moment


def _list_again(problem: str = "") -> str:
    user, sent = viewer(), _sent()
    named = {"time_zone": user.time_zone or "", "problem": problem}
    shown = RefinementList(user.account_id, sent, selected=_checked_ids(), **named)
    return render_template("refinements/index.html", page=shown, json_url=f"{url_for('refinements.index')}.json")


def _stay_on_page(text: str, *, undo: str = "", tone: str = "success") -> ResponseReturnValue:
    return answer_act(text, to=_page_url(), undo=undo, tone=tone, parts=parts_of_this_page())


def _page_url() -> str:
    """Where the button was: the overview, or the list as it was looked at."""
    if request.form.get("on") == "overview":
        return url_for("overview.index")
    kept: dict[str, Any] = {name: request.form[name] for name in LISTED if request.form.get(name)}
    return url_for("refinements.index", **kept)
