"""An installation that may send to this machine, its receivers, and what one hour of it looks like."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Flask
from pydantic import SecretStr

from app.extensions import db
from app.models import ChannelType, NoticeChannel, NoticeKind
from app.models.notice import CHOICES
from app.notices import outbox
from app.notices.channels import create_channel
from app.notices.outbox import Outcome
from app.values.actor import COMMAND_LINE
from tests.support.factories import HOME
from tests.support.receivers import LOCAL, HookReceiver, MailReceiver


@pytest.fixture
def mail(app: Flask, web: Flask) -> Iterator[MailReceiver]:
    with MailReceiver() as receiver:
        told = {"smtp_url": SecretStr(receiver.url), "smtp_from": "whetstone@example.org"}
        for each in (app, web):
            each.extensions["settings"] = each.extensions["settings"].model_copy(update=told)
        yield receiver


@pytest.fixture
def hook(app: Flask, web: Flask) -> Iterator[HookReceiver]:
    with HookReceiver() as receiver:
        for each in (app, web):
            allowed = {"webhook_networks": (LOCAL,)}
            each.extensions["settings"] = each.extensions["settings"].model_copy(update=allowed)
        yield receiver


def add_mail(*kinds: NoticeKind, to: str = "ann@example.org", account_id: int = HOME) -> NoticeChannel:
    chosen = kinds or CHOICES
    return create_channel(account_id, ChannelType.EMAIL, name="Ann", to=to, kinds=chosen, by=COMMAND_LINE)[0]


def add_hook(web: Flask, url: str, type_: ChannelType = ChannelType.WEBHOOK, *kinds: NoticeKind) -> tuple[str, str]:
    """Its id and its secret: made by the web process, as from the browser."""
    with web.app_context():
        made, secret = create_channel(HOME, type_, name="Hook", to=url, kinds=kinds or CHOICES, by=COMMAND_LINE)
        return made.id, secret


def work() -> list[Outcome | None]:
    """What a worker's thread does every few seconds."""
    outbox.look()
    outbox.write_digests()
    sent = [outbox.deliver(each) for each in outbox.find_due(away=False)]
    db.session.rollback()
    db.session.expire_all()
    return sent
