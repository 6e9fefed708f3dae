"""A message by e-mail: plain text, handed to the operator's mail server."""

from __future__ import annotations

import smtplib
import ssl
from datetime import datetime
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime

from app.errors import Invalid
from app.mailserver import PLAIN, SMTPS, MailServer, is_mail_address

TIMEOUT = 10.0
"""Seconds that each step may take."""


def check_mail_address(text: str) -> str:
    """Somebody's address, as it is used. Raises Invalid."""
    address = text.strip()
    if not is_mail_address(address):
        raise Invalid("This is no e-mail address. One plain address, such as ann@example.org.")
    return address


def compose_mail(subject: str, body: str, *, sender: str, to: str, message_id: str, at: datetime) -> EmailMessage:
    """`message_id` names the message in every attempt: a second copy can be told for one."""
    mail = EmailMessage(policy=policy.SMTP)
    mail["From"], mail["To"], mail["Subject"] = sender, to, " ".join(subject.split())
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = f"<{message_id}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(body)
    return mail


def send_mail(mail: EmailMessage, server: MailServer, *, tls: ssl.SSLContext | None = None) -> None:
    """Raises smtplib.SMTPException or OSError, whose words may quote the server's: they are told by type alone."""
    context = tls or ssl.create_default_context()
    with _connect(server, context) as connection:
        if server.user:
            connection.login(server.user, server.password)
        connection.send_message(mail)


def _connect(server: MailServer, context: ssl.SSLContext) -> smtplib.SMTP:
    if server.security == SMTPS:
        return smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT, context=context)
    connection = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT)
    if server.security != PLAIN:
        try:
            connection.starttls(context=context)
        except BaseException:
            connection.close()
            raise
    return connection
