"""Who is told of what while nobody looks: channels by e-mail and webhook, tests of them, and the log of deliveries."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.errors import Invalid, Refused
from app.extensions import writing
from app.models import Account, ChannelType, Notice, NoticeChannel
from app.models.notice import clean_kinds
from app.notices.channels import check_target, create_channel
from app.values.text import clean_name
from app.views.access import my_row, post_act, viewer
from app.views.answers import answer_act, page
from app.views.house.shell import blueprint
from app.views.shown.notices import ChannelForm, NewSecret, NoticesPage


@page(blueprint, "/settings/notices", "house/notices.html")
def notices() -> NoticesPage:
    return NoticesPage(viewer().account_id, before=request.args.get("before", "")[:20])


@post_act(blueprint, "/settings/notices")
def add_channel() -> ResponseReturnValue:
    """A webhook's secret is in this one answer and nowhere else: not in a redirect, a session or a log."""
    form = _read_form()
    actor, account_id = viewer().actor, viewer().account_id
    if not form.errors:
        try:
            type_, to = ChannelType(form.type), form.to
            made, secret = create_channel(account_id, type_, name=form.name, to=to, kinds=form.kinds, by=actor)
        except (Invalid, Refused) as error:
            form = form.blame(error, "general")
    if form.errors:
        return _show_page(NoticesPage(account_id, form=form)), 422
    if secret:
        return _show_page(NoticesPage(account_id, made=NewSecret(made.name, secret))), 201
    undo = url_for("house.remove_channel", channel_id=made.id)
    return answer_act(
        f"{made.name} is added. Send a test to see that it works.", to=url_for("house.notices"), undo=undo
    )


@post_act(blueprint, "/settings/notices/<uuid:channel_id>/test")
def test_channel(channel_id: UUID) -> ResponseReturnValue:
    channel = my_row(NoticeChannel, channel_id)
    name, account_id = channel.name, channel.account_id
    with writing():
        Account.lock(account_id)
        Notice.put_test(NoticeChannel.lock(str(channel_id)))
    words = f"A test to {name} is on its way. How it went stands in the log below within seconds; reload to see it."
    return answer_act(words, to=url_for("house.notices"))


@post_act(blueprint, "/settings/notices/<uuid:channel_id>/kinds")
def choose_kinds(channel_id: UUID) -> ResponseReturnValue:
    """They stand in the form, or in the address of an Undo."""
    before = list(my_row(NoticeChannel, channel_id).kinds)
    wanted = request.form.getlist("kind") or request.args.getlist("kind")
    undo = url_for("house.choose_kinds", channel_id=channel_id, kind=before)
    return _change(
        channel_id, lambda *args, by: args[0].choose(args[1], wanted, by=by), "tells of that from now on", undo
    )


@post_act(blueprint, "/settings/notices/<uuid:channel_id>/pause")
def pause_channel(channel_id: UUID) -> ResponseReturnValue:
    undo = url_for("house.resume_channel", channel_id=channel_id)
    return _change(channel_id, NoticeChannel.pause, "is paused: nothing is sent there", undo)


@post_act(blueprint, "/settings/notices/<uuid:channel_id>/resume")
def resume_channel(channel_id: UUID) -> ResponseReturnValue:
    undo = url_for("house.pause_channel", channel_id=channel_id)
    return _change(channel_id, NoticeChannel.resume, "is resumed", undo)


@post_act(blueprint, "/settings/notices/<uuid:channel_id>/remove")
def remove_channel(channel_id: UUID) -> ResponseReturnValue:
    undo = url_for("house.restore_channel", channel_id=channel_id)
    return _change(channel_id, NoticeChannel.remove, "is removed", undo)


@post_act(blueprint, "/settings/notices/<uuid:channel_id>/restore")
def restore_channel(channel_id: UUID) -> ResponseReturnValue:
    return _change(channel_id, NoticeChannel.restore, "is back", "")


def _change(channel_id: UUID, change: Callable[..., bool], words: str, undo: str) -> ResponseReturnValue:
    """Do it, once; a second press finds it done and offers no Undo."""
    channel, actor = my_row(NoticeChannel, channel_id), viewer().actor
    account_id, name = channel.account_id, channel.name
    with writing():
        account = Account.lock(account_id)
        changed = change(NoticeChannel.lock(str(channel_id)), account, by=actor)
    if not changed:
        return answer_act("Nothing was different.", to=url_for("house.notices"), tone="info")
    return answer_act(f"{name} {words}.", to=url_for("house.notices"), undo=undo)


def _read_form() -> ChannelForm:
    """With a sentence beside each field that can't be used."""
    sent = request.form
    typed = {"type": sent.get("type", "")[:20], "name": sent.get("name", "")[:200], "to": sent.get("to", "")[:1000]}
    kinds = sent.getlist("kind")[:50]
    errors: dict[str, str] = {}
    try:
        type_ = ChannelType(typed["type"])
    except ValueError:
        return ChannelForm(**typed, kinds=kinds, errors={"type": "Choose what kind of channel it is."})
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("name", lambda: clean_name(typed["name"])),
        ("to", lambda: check_target(type_, typed["to"])),
        ("kind", lambda: clean_kinds(kinds)),
    )
    for field, check in checks:
        try:
            check()
        except (Invalid, Refused) as error:
            errors[field] = error.sentence
    return ChannelForm(**typed, kinds=kinds, errors=errors)


def _show_page(shown: NoticesPage) -> str:
    return render_template("house/notices.html", page=shown, json_url=url_for("house.notices_json"))
