"""Channels: made with an address that was judged, sealed so that only who delivers can read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from flask import current_app

from app.config import Settings
from app.errors import Refused, Unavailable
from app.extensions import writing
from app.models import Account, ChannelType, NoticeChannel
from app.models.master_key import holds_master_key, master_key
from app.models.statement_log import master_public_key
from app.notices.addresses import judge_address
from app.notices.mail import check_mail_address
from app.silo import MasterPublicKey, WebNoticeKey, new_webhook_secret, open_target, seal_target
from app.values.actor import Actor

NO_MAIL_SERVER = "This installation sends no e-mail: an operator sets WHETSTONE_SMTP_URL and WHETSTONE_SMTP_FROM first."


@dataclass(frozen=True)
class WebhookTarget:
    """Where a webhook's messages go, and what signs them. Neither is printed."""

    url: str = field(repr=False)
    secret: str = field(repr=False)

    def encode(self) -> str:
        return json.dumps({"url": self.url, "secret": self.secret})

    @classmethod
    def decode(cls, text: str) -> WebhookTarget:
        return cls(**json.loads(text))


def settings_of_app() -> Settings:
    settings: Settings = current_app.extensions["settings"]
    return settings


def check_target(type_: ChannelType, to: str) -> str:
    """What the pages show of it: the address of an e-mail, the host of a webhook.

    Looks a webhook's name up, so not in a transaction. Raises Invalid, or Refused without a mail server.
    """
    if type_ is not ChannelType.EMAIL:
        return judge_address(to.strip(), allowed=settings_of_app().webhook_networks).named
    address = check_mail_address(to)
    if not settings_of_app().smtp_url.get_secret_value():
        raise Refused(NO_MAIL_SERVER)
    return address


def create_channel(
    account_id: int, type_: ChannelType, *, name: str, to: str, kinds: Sequence[str], by: Actor
) -> tuple[NoticeChannel, str]:
    """A channel, and of a webhook the secret that signs its messages: shown this once.

    Raises Invalid or Refused; then nothing is written.
    """
    shown = check_target(type_, to)
    secret = "" if type_ is ChannelType.EMAIL else new_webhook_secret()
    with writing():
        account = Account.lock(account_id)
        channel = NoticeChannel.create(account, type_, name=name, shown=shown, kinds=kinds, by=by)
        if secret:
            _seal(channel, WebhookTarget(to.strip(), secret), master_public_key())
        channel.record_creation(account, by=by)
    return channel, secret if type_ is ChannelType.WEBHOOK else ""


def open_channel(channel: NoticeChannel) -> WebhookTarget:
    """Raises SealBroken, KeyFileError, or Unavailable in a process that has no key for it."""
    if holds_master_key():
        key = master_key(channel.reader)
        return WebhookTarget.decode(open_target(channel.sealed or b"", channel_id=channel.id, key=key))
    return WebhookTarget.decode(open_target(channel.sealed_for_web or b"", channel_id=channel.id, key=_web_key()))


def _seal(channel: NoticeChannel, target: WebhookTarget, master: MasterPublicKey) -> None:
    text = target.encode()
    channel.sealed = seal_target(text, channel_id=channel.id, reader=master)
    channel.sealed_for_web = seal_target(text, channel_id=channel.id, reader=_web_key().public)
    channel.reader = master.fingerprint


def _web_key() -> WebNoticeKey:
    secret = current_app.config.get("SECRET_KEY")
    if not secret or holds_master_key():
        raise Unavailable("Webhooks are added in the browser: only the web process has its part of the key.")
    return WebNoticeKey(str(secret))
