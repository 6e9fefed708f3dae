"""The page of notices: channels are added, tried, chosen for, paused and removed; what is shown, once and never."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from flask import Flask
from sqlalchemy import select

from app.extensions import db, writing
from app.history.verify import verify
from app.models import Account, AuditLog, Notice, NoticeAttempt, NoticeChannel, NoticeKind
from app.models.notice import CHOICES, MAX_CHANNELS, Sighting
from tests.notices.conftest import add_mail, hook, mail, work
from tests.support.receivers import HookReceiver, MailReceiver
from tests.views.conftest import Browser

__all__ = ["hook", "mail"]

PAGE = "/settings/notices"


def form(**given: object) -> dict[str, object]:
    return {"type": "email", "name": "Ann", "to": "ann@example.org", "kind": ["failed", "latch"], **given}


def channels() -> list[NoticeChannel]:
    db.session.rollback()
    return list(db.session.scalars(select(NoticeChannel).order_by(NoticeChannel.created_at, NoticeChannel.id)))


def test_nobody_is_told_yet_and_the_page_says_what_to_do(admin: Browser, auditor: Browser) -> None:
    assert "Add a channel below." in admin.get(PAGE).text
    page = auditor.get(PAGE).text
    assert "An admin can add a channel." in page
    assert "Add the channel" not in page
    assert admin.get(f"{PAGE}.json").json == {"channels": [], "attempts": [], "next_before": None}


def test_a_webhook_s_secret_is_shown_once_and_its_address_never(admin: Browser, hook: HookReceiver) -> None:
    made = admin.post(PAGE, form(type="webhook", name="Pager", to=hook.url))

    assert made.status_code == 201
    found = re.search(r"whsec_[A-Za-z0-9+/=]{44}", unescape(made.text))
    assert found is not None
    for later in (admin.get(PAGE).text, admin.get(f"{PAGE}.json").text, admin.get("/audit.json").text):
        assert "127.0.0.1" in later
        assert found[0] not in unescape(later)
        assert "secret-path" not in later
    assert made.headers["Cache-Control"] == "no-store" or "no-store" in made.headers["Cache-Control"]
    entry = db.session.scalars(select(AuditLog).where(AuditLog.action == "notice_channel_create")).one()
    assert entry.data["name"] == "Pager"
    assert verify().ok


def test_a_test_goes_out_and_the_log_tells_how_it_went(admin: Browser, mail: MailReceiver) -> None:
    admin.post(PAGE, form())
    (channel,) = channels()
    said = admin.post(f"{PAGE}/{channel.id}/test")
    assert said.status_code == 303
    work()

    assert "This is a test" in mail.mails[0].message["Subject"]
    page = admin.get(PAGE).text
    assert "Taken by the mail server (250)" in page
    (attempt,) = admin.get(f"{PAGE}.json").json["attempts"]  # type: ignore[index]
    assert (attempt["kind"], attempt["ok"], attempt["status"], attempt["channel"]) == ("test", True, 250, "Ann")
    for _ in range(4):
        admin.post(f"{PAGE}/{channel.id}/test")
    refused = admin.press(f"{PAGE}/{channel.id}/test")
    assert refused.status_code == 409
    assert "At most 5 tests" in refused.text


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"type": "pigeon"}, "Choose what kind of channel it is."),
        ({"name": " "}, "The name must have 1 to 80 characters."),
        ({"kind": []}, "Choose at least one thing to be told of."),
        ({"kind": ["failed", "test"]}, "There is no such kind of notice."),
        ({"to": "ann@example.org, bob@example.org"}, "This is no e-mail address."),
        ({"to": "ann@example.org\r\nBcc: eve@example.org"}, "This is no e-mail address."),
        ({"to": "<script>alert(1)</script>@x"}, "This is no e-mail address."),
        ({"type": "webhook", "to": "https://[::ffff:a9fe:a9fe]/"}, "own network"),
        ({"type": "slack", "to": "https://localhost/x"}, "own network"),
        ({"type": "discord", "to": "ftp://example.org"}, "This is no address."),
    ],
)
def test_nonsense_gets_a_sentence_at_its_field_and_the_rest_of_the_form_stays(
    admin: Browser, mail: MailReceiver, wrong: dict[str, object], sentence: str
) -> None:
    answer = admin.post(PAGE, form(**wrong))

    assert answer.status_code == 422
    assert sentence in unescape(answer.text)
    assert "<script>alert" not in answer.text
    kept = form(**wrong)
    assert str(kept["name"]).strip() in answer.text
    assert channels() == []


def test_without_a_mail_server_e_mail_is_refused_with_what_an_operator_does(admin: Browser) -> None:
    answer = admin.post(PAGE, form())
    assert answer.status_code == 422
    assert "an operator sets WHETSTONE_SMTP_URL" in answer.text
    assert channels() == []


def test_pausing_removing_and_choosing_happen_at_once_and_can_be_undone(admin: Browser, mail: MailReceiver) -> None:
    channel = add_mail(NoticeKind.FAILED)
    base = f"{PAGE}/{channel.id}"
    for act, undo, is_so in (
        ("pause", "resume", lambda row: row.paused_at is not None),
        ("remove", "restore", lambda row: row.removed_at is not None),
        ("kinds", f"kinds?kind={NoticeKind.FAILED}", lambda row: row.kinds == ["latch", "away"]),
    ):
        given = {"kind": ["away", "latch"]} if act == "kinds" else {}
        admin.post(f"{base}/{act}", given)
        assert is_so(channels()[0]), act
        entries = len(admin.get("/audit.json").json["entries"])  # type: ignore[index]
        admin.post(f"{base}/{act}", given)  # a double click
        assert len(admin.get("/audit.json").json["entries"]) == entries  # type: ignore[index]
        admin.post(f"{base}/{undo}")
        assert not is_so(channels()[0]), undo
    assert channels()[0].kinds == ["failed"]
    assert admin.post(f"{base}/kinds", {}).status_code in (303, 422)
    assert channels()[0].kinds == ["failed"]
    assert verify().ok


def test_another_account_s_channels_are_not_there(admin: Browser, neighbour: Browser, mail: MailReceiver) -> None:
    channel = add_mail()
    for act in ("test", "kinds", "pause", "resume", "remove", "restore"):
        assert neighbour.post(f"{PAGE}/{channel.id}/{act}", {"kind": "latch"}).status_code == 404
    assert "Ann" not in neighbour.get(PAGE).text
    assert (channels()[0].is_active, db.session.scalars(select(Notice)).all()) == (True, [])


def test_an_account_has_at_most_twenty_channels(admin: Browser, mail: MailReceiver) -> None:
    for _ in range(MAX_CHANNELS):
        add_mail()
    answer = admin.post(PAGE, form())
    assert answer.status_code == 422
    assert "An account has at most 20 channels." in answer.text
    assert len(channels()) == MAX_CHANNELS


def test_a_hostile_name_is_inert_on_the_page(admin: Browser, mail: MailReceiver) -> None:
    admin.post(PAGE, form(name="<script>alert(1)</script>", kind=list(CHOICES)))
    page = admin.get(PAGE).text
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert(1)" not in page


def test_the_log_comes_in_pages_and_takes_no_nonsense_for_a_place(
    admin: Browser, app: Flask, mail: MailReceiver
) -> None:
    channel = add_mail()
    with writing() as session:
        notice = Notice.put(channel, NoticeKind.FAILED, Sighting(channel.created_at, 1), due_at=channel.created_at)
        session.flush()
        about = {"notice_id": notice.id, "account_id": 1, "at": channel.created_at, "ok": False, "words": "x"}
        for number in range(70):
            session.add(NoticeAttempt(number=number, milliseconds=1, **about))
            session.flush()
    first = admin.get(f"{PAGE}.json").json
    assert first is not None
    assert len(first["attempts"]) == 50
    rest = admin.get(f"{PAGE}.json?before={first['next_before']}").json
    assert rest is not None
    assert [each["number"] for each in first["attempts"] + rest["attempts"]] == list(range(69, -1, -1))
    for nonsense in ("x", "-1", "9" * 30, "%00"):
        assert len(json.loads(admin.get(f"{PAGE}.json?before={nonsense}").text)["attempts"]) == 50


def test_deliveries_show_by_themselves_and_only_to_their_account(
    admin: Browser, neighbour: Browser, mail: MailReceiver
) -> None:
    channel = add_mail()
    assert "topic=notices" in admin.get("/settings/notices").text
    assert "topic=notices" not in admin.get("/settings/notices?before=5").text  # an older page stands still
    newest = admin.get("/events/poll?topic=notices").headers["Last-Event-ID"]
    assert admin.get(f"/events/poll?topic=notices&after={newest}").status_code == 204
    with writing():
        Account.lock(1)
        Notice.put_test(NoticeChannel.lock(channel.id))
    work()

    came = admin.get(f"/events/poll?topic=notices&after={newest}").text
    assert 'hx-target="#deliveries"' in came
    assert "Taken by the mail server" in came
    assert "Taken by the mail server" not in neighbour.get("/events/poll?topic=notices").text
