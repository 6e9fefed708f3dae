"""Where mail is handed in: a server's address as the operator writes it, and what counts as somebody's address."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

SMTP, SMTPS, PLAIN = "smtp", "smtps", "smtp+plain"
"""TLS begun by STARTTLS, which must succeed; TLS from the start; none."""

_PORTS = {SMTP: 587, SMTPS: 465, PLAIN: 25}

_ADDRESS = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@(?=.{1,189}\Z)[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*", re.ASCII
)


@dataclass(frozen=True)
class MailServer:
    security: str
    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)


def parse_mail_server(url: str) -> MailServer:
    """Raises ValueError with a sentence that quotes nothing of it: it may hold a password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("must be smtp://host (STARTTLS), smtps://host (TLS) or smtp+plain://host (no TLS)")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if bool(user) != bool(password):
        raise ValueError("must hold both a user and a password, or neither: smtp://user:password@host")
    if user and parts.scheme == PLAIN:
        raise ValueError("must not send a password without TLS: use smtp:// or smtps://")
    return MailServer(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], user, password)


def is_mail_address(text: str) -> bool:
    """Whether it is one plain address: ASCII, without a name, a comma or a line break."""
    return _ADDRESS.fullmatch(text) is not None
