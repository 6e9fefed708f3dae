"""What waits for an admin's eyes: the list of it, and marking one or many as seen, or as not seen after all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.errors import Invalid
from app.extensions import db
from app.models import Agent, AttentionItem
from app.models.base import iso
from app.refinement.attention import MOST_AT_ONCE, AttentionFilter, mark_many_seen, parse_kinds, unsee_many
from app.values.plural import count_nouns
from app.views.access import changing_agent, my_row, post_act, signed_in_pages, viewer
from app.views.answers import answer_act, page, wants_json
from app.views.filters import require_printable
from app.views.forms import Wrong
from app.views.live import parts_of_this_page, pressed_on, wrap_part
from app.views.shown.attention import AttentionForm, AttentionList, ShownItem

blueprint = signed_in_pages("attention", __name__)


@page(blueprint, "/attention", "attention/index.html")
def index() -> AttentionList:
    form = read_form(request.args)
    if form.errors and wants_json():
        raise Wrong(form.errors)
    return AttentionList(viewer().account_id, form, before=request.args.get("before", "")[:80])


@post_act(blueprint, "/attention/seen")
def mark_matching_seen() -> ResponseReturnValue:
    """All that the filter wants, `MOST_AT_ONCE` at most."""
    form, user = read_form(request.form), viewer()
    if form.errors:
        raise Wrong(form.errors)
    account_id, actor = user.account_id, user.actor
    seen = mark_many_seen(
        AttentionItem.account_id == account_id, *form.wanted.conditions(), by=actor, most=MOST_AT_ONCE
    )
    if not seen.items:
        return _stay("Nothing matches that is not seen yet.", form, tone="info")
    undo = url_for("attention.unsee_matching", first=iso(seen.since), last=iso(seen.until))
    return _stay(f"{count_nouns(seen.items, 'item')} marked as seen.", form, undo=undo)


@post_act(blueprint, "/attention/unseen")
def unsee_matching() -> ResponseReturnValue:
    """What the user marked as seen between the moments `first` and `last`."""
    account_id, actor = viewer().account_id, viewer().actor
    first, last = _read_moment("first"), _read_moment("last")
    count = unsee_many(account_id, first, last, by=actor)
    if not count:
        return _stay("Nothing of that is marked as seen.", None, tone="info")
    return _stay(f"{count_nouns(count, 'item')} marked as not seen.", None)


def read_form(sent: Mapping[str, str]) -> AttentionForm:
    typed = {name: sent[name].strip() for name in _PARSERS if sent.get(name, "").strip()}
    found: dict[str, Any] = {"with_seen": sent.get("seen") == "1"}
    errors: dict[str, str] = {}
    for name, text in typed.items():
        into, parse = _PARSERS[name]
        try:
            found[into] = parse(viewer().account_id, require_printable(text))
        except Invalid as error:
            errors[name] = error.sentence
    return AttentionForm(AttentionFilter(**found), typed, errors)


_PARSERS: Mapping[str, tuple[str, Callable[[int, str], Any]]] = {
    "kind": ("kinds", lambda _, typed: parse_kinds(typed)),
    "agent": ("agent_id", Agent.find_id),
    "reason": ("reason", lambda _, typed: typed),
}
"""By field: which filter it sets, and how it is read."""


def _read_moment(name: str) -> datetime:
    try:
        return datetime.fromisoformat(request.values.get(name, "")).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(f"{name} is no moment of ours.", "Nothing was written.") from None


def _stay(text: str, form: AttentionForm | None, *, undo: str = "", tone: str = "success") -> ResponseReturnValue:
    """On the overview, whose parts are sent anew; else on the list, as it was looked at."""
    here, _ = pressed_on()
    address: dict[str, Any] = dict(form.address) if form else {}
    on_list = request.form.get("on") == "list" or here == "attention.index"
    to = url_for("attention.index", **address) if on_list else url_for("overview.index")
    return answer_act(text, to=to, undo=undo, tone=tone, parts=None if on_list else parts_of_this_page())


@post_act(blueprint, "/attention/<int:item_id>/seen")
def mark_seen(item_id: int) -> ResponseReturnValue:
    if not _change_item(item_id, AttentionItem.mark_seen):
        return _stay_on_page(item_id, "It was marked as seen already.", tone="info")
    return _stay_on_page(item_id, "Marked as seen.", undo=url_for("attention.mark_unseen", item_id=item_id))


@post_act(blueprint, "/attention/<int:item_id>/unseen")
def mark_unseen(item_id: int) -> ResponseReturnValue:
    if not _change_item(item_id, AttentionItem.mark_unseen):
        return _stay_on_page(item_id, "It is not marked as seen.", tone="info")
    return _stay_on_page(item_id, "Marked as not seen.")


def _change_item(item_id: int, change: Callable[..., bool]) -> bool:
    with changing_agent(my_row(AttentionItem, item_id).agent_id) as (agent, actor):
        return change(AttentionItem.lock(item_id), agent, by=actor)


def _stay_on_page(item_id: int, text: str, *, undo: str = "", tone: str = "success") -> ResponseReturnValue:
    item = db.session.scalars(AttentionItem.newest(AttentionItem.id == my_row(AttentionItem, item_id).id)).one()
    to = {"agent": url_for("agents.show", agent_id=item.agent_id), "list": url_for("attention.index")}
    on_list = pressed_on()[0] == "attention.index"
    return answer_act(
        text,
        to=to.get(request.form.get("on", ""), url_for("overview.index")),
        undo=undo,
        tone=tone,
        parts=(lambda: _render_row(item)) if on_list else parts_of_this_page(),
    )


def _render_row(item: AttentionItem) -> str:
    return wrap_part(f"attention-{item.id}", render_template("attention/_row.html", row=ShownItem(item), on="list"))
