"""`./whetstone notices`: who is told, a test from this machine, the log; and settings that are loud when wrong."""

from __future__ import annotations

import pytest
from flask import Flask

from app.config import load_settings
from app.errors import Misconfigured
from app.mailserver import parse_mail_server
from tests.cli.conftest import Whetstone
from tests.notices.conftest import add_mail, mail
from tests.support.receivers import MailReceiver

__all__ = ["mail"]


def test_they_are_listed_tried_and_their_log_is_read(
    app: Flask, whetstone: Whetstone, mail: MailReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Nobody is told" in whetstone("notices", "list").out
    assert "Nothing was sent yet." in whetstone("notices", "log").out
    channel = add_mail()
    monkeypatch.setenv("WHETSTONE_SMTP_URL", mail.url)
    monkeypatch.setenv("WHETSTONE_SMTP_FROM", "whetstone@example.org")

    (listed,) = whetstone("notices", "list", "--json").json
    assert (listed["id"], listed["to"], listed["waiting"]) == (channel.id, "ann@example.org", 0)
    assert whetstone("notices", "test", "Ann", "--json").json["ok"] is True
    assert len(mail.mails) == 1
    mail.refusing = b"554 no"
    refused = whetstone("notices", "test", channel.id[:8])
    assert (refused.status, "refused it (554)" in refused.out) == (1, True)
    log = whetstone("notices", "log", "--json").json
    assert [(each["ok"], each["status"]) for each in log] == [(False, 554), (True, 250)]
    assert "no channel 'Bob'" in whetstone("notices", "test", "Bob").err


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("SMTP_URL", "mail.example.org", "must be smtp://host"),
        ("SMTP_URL", "smtp://", "must be smtp://host"),
        ("SMTP_URL", "smtp://u:secret-pw@h:x", "must be smtp://host"),
        ("SMTP_URL", "smtp://only-user@h", "both a user and a password"),
        ("SMTP_URL", "smtp+plain://u:secret-pw@h", "without TLS"),
        ("SMTP_URL", "smtp://u:secret-pw@h", "needs WHETSTONE_SMTP_FROM"),
        ("SMTP_FROM", "Whetstone <a@b.org>", "one plain e-mail address"),
        ("SMTP_FROM", "a@b.org\r\nBcc: c@d.org", "one plain e-mail address"),
        ("WEBHOOK_NETWORKS", "10.0.0.0/99", "must be addresses or networks"),
    ],
)
def test_a_wrong_setting_is_named_and_no_password_is_quoted(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, sentence: str
) -> None:
    monkeypatch.setenv(f"WHETSTONE_{name}", value)
    with pytest.raises(Misconfigured) as caught:
        load_settings()
    assert sentence in caught.value.sentence
    assert "secret-pw" not in caught.value.sentence


def test_a_mail_server_is_read_with_its_usual_port_and_printed_without_its_password() -> None:
    server = parse_mail_server("smtps://ann%40example.org:p%2Fw@mail.example.org")
    assert (server.host, server.port, server.user, server.password) == (
        "mail.example.org",
        465,
        "ann@example.org",
        "p/w",
    )
    assert "p/w" not in repr(server)
    assert [parse_mail_server(f"{scheme}://h").port for scheme in ("smtp", "smtps", "smtp+plain")] == [587, 465, 25]
    assert "secret-pw" not in repr(load_settings(smtp_url="smtp://u:secret-pw@h", smtp_from="a@b.org"))
