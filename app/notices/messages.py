"""What a message says: numbers, names and reasons as the pages show them, in the form that each receiver takes.

Names are typed by people and agents: in Slack and Discord they can neither mention anybody nor draw a link.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.models import Account, ChannelType, Notice, NoticeKind
from app.models.base import iso
from app.vocabulary.notices import NOTICE_KINDS

_MARKS = re.compile(r"([\\*_~`|>\[\]()#@:<])")
SHOWN_REASONS = 5
MOST_TEXT = 1900
"""Discord takes 2,000 characters."""


@dataclass(frozen=True)
class Message:
    """`title` is one line; `lines` are what follows it; `url` leads to the page that shows it."""

    notice: Notice
    account: str
    title: str
    lines: tuple[str, ...]
    url: str

    @classmethod
    def of(cls, notice: Notice, account: Account, public_url: str) -> Message:
        term = NOTICE_KINDS[notice.kind]
        title = (term.one if notice.count == 1 else term.many).format(n=f"{notice.count:,}")
        if notice.count > 1 and notice.kind != NoticeKind.DIGEST:
            title += f" since {notice.first_at:%H:%M} UTC"
        return cls(notice, account.name, title, tuple(_lines(notice)), f"{public_url}{term.path}")

    @property
    def subject(self) -> str:
        """Of an e-mail."""
        return f"[Whetstone] {self.title}"[:200]

    @property
    def text(self) -> str:
        """For people, as plain text."""
        first = [f"{self.title}:", *self.lines] if self.lines else [f"{self.title}."]
        return "\n".join([*first, f"Account: {self.account}. Open: {self.url}"])

    def body_for(self, type_: ChannelType) -> bytes:
        """What is posted."""
        if type_ is ChannelType.SLACK:
            return _encode({"text": self._marked(_for_slack)})
        if type_ is ChannelType.DISCORD:
            text = self._marked(lambda words: _MARKS.sub(r"\\\1", words))
            return _encode({"content": text[:MOST_TEXT], "allowed_mentions": {"parse": []}})
        return _encode(self._as_event())

    def _marked(self, quote: Any) -> str:
        """Everything but the link is quoted."""
        whole, _, _ = self.text.rpartition(self.url)
        return f"{quote(whole)[: MOST_TEXT - len(self.url)]}{self.url}"

    def _as_event(self) -> dict[str, Any]:
        notice = self.notice
        data: dict[str, Any] = {"account": self.account, "kind": str(notice.kind), "count": notice.count}
        data |= {"since": iso(notice.first_at), "text": self.text, "url": self.url, **notice.data}
        return {"type": NOTICE_KINDS[notice.kind].event, "timestamp": iso(notice.created_at), "data": data}


def _lines(notice: Notice) -> list[str]:
    if notice.kind == NoticeKind.DIGEST:
        return [str(line) for line in notice.data.get("lines", ())]
    reasons: Mapping[str, int] = notice.data.get("reasons", {})
    ordered = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    found = [reason if notice.count == 1 else f"{reason} ({count:,})" for reason, count in ordered[:SHOWN_REASONS]]
    if len(ordered) > SHOWN_REASONS:
        found.append(f"and {len(ordered) - SHOWN_REASONS:,} more reasons")
    agents = notice.data.get("agents", ())
    if agents:
        more = " and others" if notice.count > len(agents) else ""
        found.append(f"Agents: {', '.join(agents)}{more}")
    return found


def _for_slack(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
