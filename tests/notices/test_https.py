"""A webhook over HTTPS: to whom the host trusts, and to nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from flask import Flask
from sqlalchemy import select

from app.extensions import db, writing
from app.models import Account, Notice, NoticeAttempt, NoticeChannel, NoticeStatus
from app.notices.outbox import Outcome
from tests.notices.conftest import add_hook, work
from tests.support.certificates import HERE, certificate
from tests.support.receivers import LOCAL, HookReceiver


@pytest.fixture
def allowed(app: Flask, web: Flask) -> None:
    for each in (app, web):
        networks = {"webhook_networks": (LOCAL,)}
        each.extensions["settings"] = each.extensions["settings"].model_copy(update=networks)


def send_test(web: Flask, url: str) -> Outcome:
    channel_id, _ = add_hook(web, url)
    with writing():
        Account.lock(1)
        Notice.put_test(NoticeChannel.lock(channel_id))
    (outcome,) = work()
    assert outcome is not None
    return outcome


@pytest.mark.usefixtures("allowed")
def test_a_receiver_whose_certificate_the_host_trusts_gets_the_message(
    app: Flask, web: Flask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = certificate(tmp_path / "trusted.pem", HERE)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with HookReceiver(trusted) as receiver:
        assert receiver.url.startswith("https://")
        outcome = send_test(web, receiver.url)

    assert (outcome.ok, outcome.status) == (True, 204)
    assert [each.path for each in receiver.posts] == ["/hook/secret-path"]


@pytest.mark.usefixtures("allowed")
@pytest.mark.parametrize(
    ("names", "days", "is_trusted", "why"),
    [
        (HERE, 1, False, "self-signed"),
        (x509.DNSName("hooks.example.org"), 1, True, "IP address mismatch"),
        (HERE, -1, True, "certificate has expired"),
    ],
)
def test_a_wrong_certificate_is_refused_in_words_and_nothing_is_sent(
    app: Flask,
    web: Flask,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: x509.GeneralName,
    days: int,
    is_trusted: bool,
    why: str,
) -> None:
    shown = certificate(tmp_path / "shown.pem", names, days=days)
    trusted = shown if is_trusted else certificate(tmp_path / "other.pem", HERE)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    with HookReceiver(shown) as receiver:
        outcome = send_test(web, receiver.url)

    assert not outcome.ok
    assert outcome.words.startswith("Its certificate was refused: ")
    assert why in outcome.words
    assert receiver.posts == []
    attempt = db.session.scalars(select(NoticeAttempt)).one()
    assert (attempt.ok, attempt.status, attempt.words) == (False, None, outcome.words)
    assert db.session.scalars(select(Notice)).one().status == NoticeStatus.WAITING  # it is tried again
