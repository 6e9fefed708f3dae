"""What the page of notices shows: the account's channels, what each tells of, and the log of what was delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flask import current_app

from app.errors import WhetstoneError
from app.events.topics import newest_event
from app.extensions import db
from app.models import ChannelType, Notice, NoticeAttempt, NoticeChannel
from app.models.keyset import cut_page
from app.models.notice import CHOICES, NEWEST_ATTEMPTS
from app.notices.channels import NO_MAIL_SERVER
from app.shapes.notice import AttemptShape, ChannelShape
from app.vocabulary import CHANNEL_TYPES

ROWS = 50

USUAL = ("failed", "latch", "verify", "statement", "away")
"""Checked in a new form."""


Attempted = tuple[NoticeAttempt, Notice, str]
"""An attempt, its message, and the name of the channel."""


@dataclass(frozen=True)
class ChannelForm:
    """What was typed for a new channel, with what is wrong: `field` is where that is said, empty for above them all."""

    type: str = ChannelType.EMAIL
    name: str = ""
    to: str = field(default="", repr=False)
    kinds: Sequence[str] = USUAL
    errors: Mapping[str, str] = field(default_factory=dict)

    def blame(self, error: WhetstoneError, at: str) -> ChannelForm:
        return replace(self, errors={at: error.sentence})


@dataclass(frozen=True)
class NewSecret:
    """A webhook's secret, in the one answer that shows it. It stays out of a printed form."""

    name: str
    secret: str = field(repr=False)


class NoticesPage:
    """`before` and `next_before` are numbers of attempts; the newest update themselves. `made` was added just now."""

    choices = CHOICES
    channel_options = tuple((str(each), CHANNEL_TYPES[each].words) for each in ChannelType)

    def __init__(
        self, account_id: int, *, before: str = "", form: ChannelForm | None = None, made: NewSecret | None = None
    ) -> None:
        self.last_event, self.is_newest = newest_event(account_id), not before
        self.channels, self.waiting = NoticeChannel.of_account(account_id), Notice.count_waiting(account_id)
        self.attempts, last = _load_attempts(account_id, before)
        self.next_before = last[0].id if last else ""
        self.form, self.made = form or ChannelForm(), made
        self.no_mail = "" if current_app.extensions["settings"].smtp_url.get_secret_value() else NO_MAIL_SERVER

    def as_json(self) -> dict[str, Any]:
        channels = [ChannelShape.of(each, waiting=self.waiting.get(each.id, 0)).as_json() for each in self.channels]
        attempts = [AttemptShape.told(*each).as_json() for each in self.attempts]
        return {"channels": channels, "attempts": attempts, "next_before": self.next_before or None}


def _load_attempts(account_id: int, before: str) -> tuple[list[Attempted], Attempted | None]:
    number = int(before) if before.isascii() and before.isdigit() and len(before) <= 18 else None
    position = NEWEST_ATTEMPTS.find(number, NoticeAttempt.account_id == account_id)
    page = NEWEST_ATTEMPTS.page(NoticeAttempt.newest(account_id), ROWS, position)
    return cut_page(db.session.execute(page).tuples(), ROWS)
