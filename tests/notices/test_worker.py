"""Notices by a real worker process: killed at the worst moment, and by the clock on the wall."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from flask import Flask
from sqlalchemy import select

from app.config import Settings
from app.extensions import db, writing
from app.models import Account, Notice, NoticeAttempt, NoticeChannel, NoticeKind, NoticeStatus
from app.models.notice import HELD
from app.processes.broker import EmbeddedBroker
from tests.notices.conftest import add_hook, add_mail, work
from tests.notices.test_outbox import end, messages
from tests.support.clock import FakeClock
from tests.support.factories import make_agent
from tests.support.processes import wait_for
from tests.support.receivers import LOCAL, HookReceiver, MailReceiver
from tests.support.workers import Worker, broker_of

pytestmark = pytest.mark.slow


@pytest.fixture
def clock() -> FakeClock:
    """Other processes go by the system's clock; so does the test."""
    return FakeClock(datetime.now(UTC))


@pytest.fixture
def broker(settings: Settings) -> Iterator[EmbeddedBroker]:
    with broker_of(settings) as started:
        yield started


def ask_for_a_test(channel_id: str) -> None:
    with writing():
        Account.lock(1)
        Notice.put_test(NoticeChannel.lock(channel_id))


def test_a_worker_killed_between_sending_and_saying_so_repeats_one_message_once_and_loses_none(
    app: Flask, web: Flask, settings: Settings, broker: EmbeddedBroker, hook: HookReceiver, clock: FakeClock
) -> None:
    channel_id, _ = add_hook(web, hook.url)
    with Worker(settings, environment={"WHETSTONE_WEBHOOK_NETWORKS": LOCAL}) as worker:
        hook.before_answer = worker.kill
        ask_for_a_test(channel_id)
        wait_for(lambda: worker.process.returncode is not None, seconds=60)
    hook.before_answer = None
    clock.at = datetime.now(UTC)
    ask_for_a_test(channel_id)

    assert [each.status for each in messages()] == [NoticeStatus.WAITING] * 2
    assert db.session.scalars(select(NoticeAttempt)).all() == []  # it had no time to say so
    work()
    clock.advance(seconds=HELD.total_seconds() + 5)
    work()
    clock.advance(days=2)
    work()

    sent = [each.headers["webhook-id"] for each in hook.posts]
    assert len(sent) == 3
    assert (sent[0], len(set(sent))) == (sent[2], 2)
    assert [each.status for each in messages()] == [NoticeStatus.SENT] * 2


def test_a_failure_is_in_the_mailbox_within_sixty_seconds_of_the_clock_on_the_wall(
    app: Flask, settings: Settings, broker: EmbeddedBroker, mail: MailReceiver
) -> None:
    add_mail(NoticeKind.FAILED)
    told = {"WHETSTONE_SMTP_URL": mail.url, "WHETSTONE_SMTP_FROM": "whetstone@example.org"}
    with Worker(settings, environment=told) as worker:
        wait_for(lambda: "ready" in worker.said(), seconds=60)
        end(make_agent())
        began = time.monotonic()
        wait_for(lambda: mail.mails, seconds=60)
        assert time.monotonic() - began < 60
    assert "A refinement failed" in mail.mails[0].message["Subject"]
