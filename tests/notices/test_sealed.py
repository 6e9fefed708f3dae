"""What a channel is sealed with: it follows a new master key, and e-mail leaves with TLS or not at all."""

from __future__ import annotations

import pytest
from flask import Flask
from pydantic import SecretStr

from app.errors import Unavailable
from app.extensions import db, writing
from app.history.verify import verify
from app.keys.rotation import rotate_master_key
from app.models import COMMAND_LINE, Account, ChannelType, Notice, NoticeChannel
from app.notices.channels import create_channel, open_channel
from app.silo import SealBroken
from tests.notices.conftest import add_hook, add_mail, work
from tests.support.factories import HOME
from tests.support.receivers import HookReceiver, MailReceiver
from tests.support.tampering import tamper


def ask_for_test(channel_id: str) -> None:
    with writing():
        Account.lock(HOME)
        Notice.put_test(NoticeChannel.lock(channel_id))


def test_a_new_master_key_opens_the_channels_and_the_log_says_so(app: Flask, web: Flask, hook: HookReceiver) -> None:
    channel_id, _ = add_hook(web, hook.url)
    before = db.session.get_one(NoticeChannel, channel_id).reader
    db.session.rollback()
    done = rotate_master_key(by=COMMAND_LINE)

    assert (done.finished, done.channels, done.problems) == (True, 1, {})
    after = db.session.get_one(NoticeChannel, channel_id, populate_existing=True).reader
    db.session.rollback()
    assert (before == after, after) == (False, done.fingerprint)
    ask_for_test(channel_id)
    assert [outcome and outcome.status for outcome in work()] == [204]
    assert verify().ok


def test_one_channel_s_target_does_not_open_as_another_s(app: Flask, web: Flask, hook: HookReceiver) -> None:
    first, _ = add_hook(web, hook.url)
    second, _ = add_hook(web, hook.url, ChannelType.SLACK)
    other = f"(SELECT sealed FROM (SELECT * FROM notice_channels) AS kept WHERE id = '{first}')"
    tamper(f"UPDATE notice_channels SET sealed = {other} WHERE id = '{second}'")
    with pytest.raises(SealBroken):
        open_channel(db.session.get_one(NoticeChannel, second, populate_existing=True))
    db.session.rollback()
    ask_for_test(second)
    assert [outcome and outcome.words for outcome in work()] == ["It could not be opened: seal_broken"]
    assert hook.posts == []


def test_webhooks_are_added_where_the_web_process_s_part_of_the_key_is(app: Flask, hook: HookReceiver) -> None:
    with pytest.raises(Unavailable, match="added in the browser"):
        create_channel(HOME, ChannelType.WEBHOOK, name="x", to=hook.url, kinds=["failed"], by=COMMAND_LINE)
    assert NoticeChannel.of_account(HOME) == []


def test_a_mail_server_without_tls_gets_nothing_unless_the_operator_says_so(app: Flask, mail: MailReceiver) -> None:
    channel = add_mail()
    told = {"smtp_url": SecretStr(f"smtp://127.0.0.1:{mail.port}")}
    app.extensions["settings"] = app.extensions["settings"].model_copy(update=told)
    ask_for_test(channel.id)
    (outcome,) = work()
    assert outcome is not None
    assert (outcome.ok, outcome.words) == (False, "Not reached (SMTPNotSupportedError)")
    assert mail.mails == []
