"""What waits for an admin's eyes: the list of it, and marking one as seen, or as not seen after all."""

from __future__ import annotations

from collections.abc import Callable

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.extensions import db
from app.models import AttentionItem
from app.views.access import changing_agent, my_row, post_act, signed_in_pages, viewer
from app.views.answers import answer_act, page
from app.views.live import parts_of_this_page, pressed_on, wrap_part
from app.views.shown.attention import AttentionList, ShownItem

blueprint = signed_in_pages("attention", __name__)


@page(blueprint, "/attention", "attention/index.html")
def index() -> AttentionList:
    with_seen = request.args.get("seen") == "1"
    return AttentionList(viewer().account_id, with_seen=with_seen, before=request.args.get("before", "")[:80])


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
