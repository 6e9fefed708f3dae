"""What happens at night reaches people once, grouped, soon, and whatever the receiver does meanwhile."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask
from sqlalchemy import func, select

from app.errors import Refused
from app.extensions import db, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.history.verify import verify
from app.models import (
    COMMAND_LINE,
    Account,
    Agent,
    ChannelType,
    Mode,
    Notice,
    NoticeAttempt,
    NoticeChannel,
    NoticeKind,
    NoticeStatus,
    Refinement,
    Status,
    Trigger,
    announce,
)
from app.models.notice import FOLDED, HELD, MAX_TESTS, PAUSES, drop_old_notices
from app.models.presence import AWAY_AFTER, note_beat
from app.notices import outbox
from app.notices.addresses import JudgedAddress
from app.notices.away import AwayWatch
from app.notices.timer import NoticeTimer
from app.notices.webhooks import NoAnswerInTime, post
from app.statements.checkpointing import make_checkpoint
from tests.notices.conftest import add_hook, add_mail, work
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, remember
from tests.support.receivers import HookReceiver, MailReceiver
from tests.support.tampering import tamper

HTTP_500 = "HTTP 500 from openai/gpt-5"


def end(agent: Agent, status: Status = Status.FAILED, failure: str | None = HTTP_500) -> str:
    with writing():
        locked = Agent.lock(agent.id)
        refinement = Refinement.queue(locked, trigger=Trigger.AGENT, mode=Mode.FULL, cap=10, by=locked.as_actor)
        refinement.end(locked, status, reason=failure, failure=failure)
    return refinement.id


def messages(**like: object) -> list[Notice]:
    db.session.rollback()
    return list(db.session.scalars(select(Notice).filter_by(**like).order_by(Notice.id)))


def test_a_night_of_fifty_failures_is_one_message_within_a_minute_and_an_hour_later_one_more(
    app: Flask, mail: MailReceiver, clock: FakeClock
) -> None:
    add_mail(NoticeKind.FAILED)
    began = clock.now()
    for number in range(50):
        end(make_agent(f"agent {number}"), failure=HTTP_500 if number else "No answer from ollama/llama")
        if number in (0, 20):
            assert work() == []  # it waits for the others
        clock.advance(seconds=0.5)
    clock.advance(seconds=30)
    work()
    work()

    assert len(mail.mails) == 1
    told = mail.mails[0]
    assert (told.sender, told.to) == ("whetstone@example.org", ["ann@example.org"])
    assert told.message["Subject"] == f"[Whetstone] 50 refinements failed since {began:%H:%M} UTC"
    assert f"{HTTP_500} (49)" in told.text
    assert "No answer from ollama/llama (1)" in told.text
    assert "Agents: agent 0, agent 1, agent 2 and others" in told.text
    assert "http://127.0.0.1:8000/refinements?status=failed,interrupted&needs=attention" in told.text

    late = db.session.scalars(select(Agent).limit(3)).all()
    for agent in late:
        end(agent)
        clock.advance(minutes=5)
        work()
    assert len(mail.mails) == 1
    clock.advance(minutes=60)
    work()
    assert len(mail.mails) == 2
    assert "3 refinements failed" in mail.mails[1].message["Subject"]
    assert messages(status=NoticeStatus.WAITING) == []


def test_the_first_message_leaves_within_sixty_seconds_of_the_first_event(
    app: Flask, mail: MailReceiver, clock: FakeClock
) -> None:
    add_mail(NoticeKind.FAILED)
    began = clock.now()
    end(make_agent())
    while not mail.mails:
        assert clock.now() - began < timedelta(seconds=60)
        clock.advance(seconds=4)
        work()
    assert "A refinement failed" in mail.mails[0].message["Subject"]


def test_each_kind_has_its_own_message_and_a_channel_gets_only_what_it_chose(
    app: Flask, mail: MailReceiver, clock: FakeClock
) -> None:
    everything, little = add_mail(), add_mail(NoticeKind.LATCH, to="bob@example.org")
    agent, saved = make_agent("wren"), make_agent("finch")
    (number,) = remember(saved, "Ann likes tea.")
    for status in (Status.FAILED, Status.ROLLED_BACK, *[Status.DECLINED] * 4):
        end(agent, status)
        clock.advance(seconds=1)
    with writing():
        Agent.lock(saved.id).change(by=COMMAND_LINE, core_token_budget=1)
    for _ in range(3):
        end(saved, Status.COMPLETED, None)
        clock.advance(seconds=1)
    entry = db.session.scalar(select(func.max(db.metadata.tables["memories"].c.entry_id)))
    roll_back(Target.entry(entry), by=COMMAND_LINE)
    with writing():
        announce("exception.requested", 1, agent.id, exception="x")
        announce("agent.token", 1, agent.id, request="x", status="pending")
        announce("agent.token", 1, agent.id, request="x", status="granted")
        announce("agent.stopped", 1, agent.id)
        announce("proof.failed", 1)
        announce("proof.passed", 1)
    clock.advance(seconds=55)
    work()

    kinds = {notice.kind: notice.count for notice in messages(channel_id=everything.id)}
    assert kinds == {
        NoticeKind.FAILED: 1,
        NoticeKind.LATCH: 1,
        NoticeKind.DECLINED: 1,  # the third NO, not the fourth
        NoticeKind.OVER_BUDGET: 1,
        NoticeKind.ROLLED_BACK: 1,
        NoticeKind.REQUEST: 2,
        NoticeKind.STATEMENT: 1,
        NoticeKind.VERIFY: 1,
    }
    assert [notice.kind for notice in messages(channel_id=little.id)] == [NoticeKind.LATCH]
    assert number
    assert all("tea" not in each.text for each in mail.mails)
    assert sorted(each.to[0] for each in mail.mails).count("bob@example.org") == 1


def test_a_webhook_is_signed_in_the_standard_form_and_its_receiver_can_check_it(
    app: Flask, web: Flask, hook: HookReceiver, clock: FakeClock
) -> None:
    _, secret = add_hook(web, hook.url)
    end(make_agent())
    work()
    clock.advance(seconds=55)
    work()

    (got,) = hook.posts
    assert got.path == "/hook/secret-path"
    told = json.loads(got.body)
    assert (told["type"], told["data"]["count"], told["data"]["reasons"]) == ("refinements.failed", 1, {HTTP_500: 1})
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert got.headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 60


def test_slack_and_discord_get_their_forms_where_hostile_names_are_inert(
    app: Flask, web: Flask, hook: HookReceiver, mail: MailReceiver, clock: FakeClock
) -> None:
    add_hook(web, hook.url, ChannelType.SLACK)
    add_hook(web, hook.url, ChannelType.DISCORD)
    add_mail()
    end(make_agent("<!channel> @everyone [x](https://evil.example) <script>"))
    work()
    clock.advance(seconds=55)
    work()

    slack, discord = sorted((json.loads(each.body) for each in hook.posts), key=lambda body: "content" in body)
    assert set(slack) == {"text"}
    assert "&lt;!channel&gt;" in slack["text"] and "<" not in slack["text"]
    assert set(discord) == {"content", "allowed_mentions"}
    assert discord["allowed_mentions"] == {"parse": []}
    assert r"\[x\]\(" in discord["content"] and r"\@everyone" in discord["content"]
    assert all(body.endswith("needs=attention") for body in (slack["text"], discord["content"]))
    assert mail.mails[0].message.get_content_type() == "text/plain"


def test_a_receiver_that_fails_is_tried_again_until_it_recovers_under_the_same_id(
    app: Flask, web: Flask, hook: HookReceiver, clock: FakeClock
) -> None:
    add_hook(web, hook.url)
    hook.answers.extend([500, 429, 301])
    hook.location = "http://127.0.0.1:9/elsewhere"
    end(make_agent())
    work()
    clock.advance(seconds=55)
    for pause in (timedelta(0), *PAUSES[:3]):
        clock.advance(seconds=pause.total_seconds() - 1)
        before = len(hook.posts)
        if pause:
            assert work() == []
        assert len(hook.posts) == before
        clock.advance(seconds=2)
        work()
    assert len(hook.posts) == 4
    assert len({each.headers["webhook-id"] for each in hook.posts}) == 1
    attempts = db.session.scalars(select(NoticeAttempt).order_by(NoticeAttempt.id)).all()
    assert [(each.number, each.ok, each.status) for each in attempts] == [
        (1, False, 500),
        (2, False, 429),
        (3, False, 301),
        (4, True, 204),
    ]
    assert attempts[2].words == "Redirects are not followed"
    assert [each.status for each in messages()] == [NoticeStatus.SENT]


def test_one_that_never_gets_through_is_given_up_after_a_day(
    app: Flask, web: Flask, hook: HookReceiver, clock: FakeClock
) -> None:
    add_hook(web, hook.url, ChannelType.WEBHOOK, NoticeKind.FAILED)
    hook.answers.extend([503] * 50)
    end(make_agent())
    work()
    began = clock.now()
    while messages(status=NoticeStatus.WAITING):
        clock.advance(minutes=10)
        work()
    assert timedelta(hours=23) < clock.now() - began < timedelta(hours=26)
    assert len(hook.posts) == len(PAUSES) + 1
    clock.advance(days=91)
    assert drop_old_notices() == len(PAUSES) + 2
    assert messages() == []


def test_a_process_that_dies_between_sending_and_saying_so_loses_nothing(
    app: Flask, web: Flask, hook: HookReceiver, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_hook(web, hook.url, ChannelType.WEBHOOK, NoticeKind.FAILED)
    end(make_agent())
    work()
    clock.advance(seconds=55)
    with monkeypatch.context() as dying:
        dying.setattr(Notice, "settle", _die)
        with pytest.raises(KeyboardInterrupt):
            work()
    db.session.rollback()
    assert work() == []  # it may still be at it
    clock.advance(seconds=HELD.total_seconds() + 1)
    work()
    clock.advance(days=2)
    work()

    assert len(hook.posts) == 2
    assert len({each.headers["webhook-id"] for each in hook.posts}) == 1
    assert [each.status for each in messages()] == [NoticeStatus.SENT]


def _die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_of_two_that_look_and_send_at_once_one_does(
    app: Flask, web: Flask, hook: HookReceiver, clock: FakeClock
) -> None:
    channel_id, _ = add_hook(web, hook.url)
    end(make_agent())
    seen = db.session.get_one(NoticeChannel, channel_id).seen_event_id
    db.session.rollback()
    newest = seen + 1000
    outbox._look_for(channel_id, seen, newest)
    outbox._look_for(channel_id, seen, newest)
    assert [each.count for each in messages()] == [1]
    clock.advance(seconds=55)
    (due,) = outbox.find_due(away=False)
    assert (outbox.deliver(due) is None, outbox.deliver(due) is None) == (False, True)
    assert len(hook.posts) == 1


def test_a_name_that_turns_into_the_own_network_later_is_refused_then_too(
    app: Flask, web: Flask, hook: HookReceiver, clock: FakeClock
) -> None:
    add_hook(web, hook.url)
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"webhook_networks": ()})
    end(make_agent())
    work()
    clock.advance(seconds=55)
    (outcome,) = work()

    assert outcome is not None and not outcome.ok and "own network" in outcome.words
    assert hook.posts == []


def test_the_connection_goes_to_the_address_that_was_judged_whatever_the_name_means(hook: HookReceiver) -> None:
    judged = JudgedAddress("http", "does-not-exist.invalid", hook.port, "127.0.0.1", "/x")
    assert post(judged, b"{}", {}) == 204
    assert hook.posts[0].headers["host"] == f"does-not-exist.invalid:{hook.port}"


def test_a_receiver_that_drips_is_hung_up_on(hook: HookReceiver) -> None:
    hook.drip = threading.Event()
    judged = JudgedAddress("http", "slow.example", hook.port, "127.0.0.1", "/x")
    began = time.monotonic()
    with pytest.raises(NoAnswerInTime):
        post(judged, b"{}", {}, seconds=0.5)
    assert time.monotonic() - began < 3
    assert hook.drip.wait(5), "the connection stayed open"


def test_a_mail_server_that_refuses_is_logged_by_its_number_alone(
    app: Flask, mail: MailReceiver, clock: FakeClock
) -> None:
    add_mail()
    mail.refusing = b"554 no, secret words of the server"
    end(make_agent())
    work()
    clock.advance(seconds=55)
    work()
    attempt = db.session.scalars(select(NoticeAttempt)).one()
    assert (attempt.ok, attempt.status, attempt.words) == (False, 554, "The mail server refused it")


def test_paused_and_removed_channels_send_nothing_and_nothing_of_that_time_later(
    app: Flask, mail: MailReceiver, clock: FakeClock
) -> None:
    channel = add_mail()
    agent = make_agent()
    end(agent)
    work()
    for change in (NoticeChannel.pause, NoticeChannel.resume, NoticeChannel.remove, NoticeChannel.restore):
        with writing():
            account = Account.lock(1)
            assert change(NoticeChannel.lock(channel.id), account, by=COMMAND_LINE)
            assert not change(NoticeChannel.lock(channel.id), account, by=COMMAND_LINE)
        if change in (NoticeChannel.pause, NoticeChannel.remove):
            end(agent)
        clock.advance(minutes=5)
        work()
    assert mail.mails == []
    assert {each.status for each in messages()} == {NoticeStatus.DROPPED}
    clock.advance(seconds=FOLDED.total_seconds())
    end(agent)
    work()
    clock.advance(seconds=55)
    work()
    assert len(mail.mails) == 1


def test_tests_are_sent_at_once_and_are_bounded(app: Flask, mail: MailReceiver) -> None:
    channel = add_mail()

    def ask() -> None:
        with writing():
            Account.lock(1)
            Notice.put_test(NoticeChannel.lock(channel.id))

    ask()
    work()
    assert "This is a test" in mail.mails[0].message["Subject"]
    for _ in range(MAX_TESTS - 1):
        ask()
    with pytest.raises(Refused, match="At most 5 tests"):
        ask()


def test_the_week_in_numbers_comes_once_on_monday_morning(app: Flask, mail: MailReceiver, clock: FakeClock) -> None:
    add_mail(NoticeKind.DIGEST)
    for status in (Status.COMPLETED, Status.COMPLETED, Status.DECLINED):
        end(make_agent(f"agent {clock.now()}"), status, None)
        clock.advance(seconds=1)
    now = clock.now()
    monday = now.replace(hour=8, minute=0, second=0, microsecond=0)  # it is Monday, four in the morning
    clock.advance(seconds=(monday - now).total_seconds() - 60)
    assert work() == []
    clock.advance(seconds=120)
    work()
    work()
    (told,) = mail.mails
    assert "3 refinements: 2 completed, 1 declined" in told.text
    clock.advance(days=7)
    work()
    assert len(mail.mails) == 2


def test_that_no_worker_answers_the_web_process_tells_by_itself_once_an_hour(
    app: Flask, web: Flask, hook: HookReceiver, mail: MailReceiver, clock: FakeClock
) -> None:
    """The worker's share of the key is not needed: the web process opens the channel by its own."""
    add_hook(web, hook.url)
    add_mail(NoticeKind.FAILED)
    answering = True
    with web.app_context():
        watch = AwayWatch(lambda: answering, patience=0.0)
        assert watch.look() == ""
        answering = False
        for _ in range(3):
            assert watch.look() == "No worker answers"
        assert [outbox.deliver(each) for each in outbox.find_due(away=False)] == []
        sent = [outbox.deliver(each) for each in outbox.find_due(away=True)]
        db.session.remove()
    assert [outcome and outcome.ok for outcome in sent] == [True]
    (got,) = hook.posts
    assert "No worker answers" in json.loads(got.body)["data"]["text"]
    assert got.headers["webhook-signature"].startswith("v1,")
    assert mail.mails == []
    clock.advance(minutes=61)
    with web.app_context():
        watch.look()
        assert len(outbox.find_due(away=True)) == 1
        db.session.remove()


def test_a_scheduler_that_falls_silent_is_told_and_one_that_works_is_not(app: Flask, clock: FakeClock) -> None:
    watch = AwayWatch(lambda: True)
    assert watch.look() == ""
    for _ in range(5):
        clock.advance(minutes=1)
        with writing():
            note_beat()
        assert watch.look() == ""
    clock.advance(seconds=AWAY_AFTER.total_seconds() + 1)
    assert watch.look() == "The scheduler has stopped"


def test_that_no_checkpoint_was_signed_for_two_hours_is_told(
    app: Flask, web: Flask, hook: HookReceiver, clock: FakeClock
) -> None:
    add_hook(web, hook.url, ChannelType.WEBHOOK, NoticeKind.AWAY)
    clock.at = datetime.now(UTC)
    make_checkpoint()
    db.session.rollback()
    with web.app_context():
        web.extensions["clock"] = clock
        watch = AwayWatch(lambda: True)
        clock.advance(minutes=119)
        assert watch.look() == ""
        clock.advance(minutes=2)
        with writing():
            note_beat()
        assert watch.look() == "No checkpoint was signed for two hours"
        assert [outbox.deliver(each) for each in outbox.find_due(away=True)]
        db.session.remove()
    assert "No checkpoint was signed for two hours" in hook.posts[-1].body.decode()


def test_a_worker_s_own_thread_does_all_of_it(app: Flask, mail: MailReceiver, clock: FakeClock) -> None:
    add_mail()
    end(make_agent())
    work()
    clock.advance(seconds=55)
    db.session.rollback()
    arrived = threading.Event()
    mail.mails = _Ringing(arrived)
    timer = NoticeTimer(app, outbox.look, away=False, interval=0.05)
    timer.start()
    try:
        assert arrived.wait(10)
    finally:
        timer.stop()
    assert [each.status for each in messages()] == [NoticeStatus.SENT]


class _Ringing(list):  # type: ignore[type-arg]
    def __init__(self, bell: threading.Event) -> None:
        super().__init__()
        self._bell = bell

    def append(self, item: object) -> None:
        super().append(item)
        self._bell.set()


def test_who_reads_the_database_finds_no_address_and_no_secret_and_who_edits_it_is_found(
    app: Flask, web: Flask, hook: HookReceiver
) -> None:
    channel_id, secret = add_hook(web, hook.url)
    with db.engine.connect() as connection:
        for table in db.metadata.tables.values():
            rows = repr(connection.execute(select(table)).all())
            assert "secret-path" not in rows and secret.removeprefix("whsec_") not in rows, table.name
    assert verify().ok
    tamper("UPDATE notice_channels SET shown = 'evil.example'")
    assert "shown of notice-channel" in str(verify().first_problem)
    assert channel_id
