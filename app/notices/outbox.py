"""The outbox: what happened becomes rows, in the transaction that notes how far was looked; rows become deliveries.

At least once: who dies between sending and writing that down has another process send it again after two minutes. Both
carry the same id.
"""

from __future__ import annotations

import http.client
import smtplib
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from sqlalchemy import func, select

from app.errors import WhetstoneError
from app.extensions import now, reading, writing
from app.mailserver import parse_mail_server
from app.models import Account, ChannelType, Event, Notice, NoticeChannel, NoticeKind
from app.models.base import claim_row
from app.notices.addresses import AddressRefused, Resolver, judge_address
from app.notices.channels import NO_MAIL_SERVER, open_channel, settings_of_app
from app.notices.digest import week_in_numbers
from app.notices.mail import compose_mail, send_mail
from app.notices.messages import Message
from app.notices.sightings import BATCH, load_events, sight
from app.notices.webhooks import NoAnswerInTime, post
from app.silo import sign_webhook

DIGEST_HOUR = 8
"""Of Monday, UTC."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How an attempt went: `status` is the receiver's number, if it gave one; `words` are ours."""

    ok: bool
    words: str
    status: int | None = None


def look() -> int:
    """Put what happened into the outbox; returns how many channels had something to look at. Not in a transaction."""
    newest = select(func.max(Event.id)).where(Event.account_id == NoticeChannel.account_id).scalar_subquery()
    behind = select(NoticeChannel.id, NoticeChannel.seen_event_id, newest).where(
        NoticeChannel.is_live(), newest > NoticeChannel.seen_event_id
    )
    with reading() as session:
        found = session.execute(behind.order_by(NoticeChannel.id)).tuples().all()
    for channel_id, seen, until in found:
        _look_for(channel_id, seen, until)
    return len(found)


def write_digests() -> int:
    """Each Monday one message a channel that wants it; returns how many were written now."""
    monday = _latest_monday(now())
    with reading() as session:
        live = select(NoticeChannel).where(NoticeChannel.is_live(), NoticeChannel.digest_at < monday)
        due = [channel.id for channel in session.scalars(live) if NoticeKind.DIGEST in channel.kinds]
    for channel_id in due:
        with writing():
            still = (NoticeChannel.id == channel_id, NoticeChannel.is_live(), NoticeChannel.digest_at < monday)
            channel = claim_row(NoticeChannel, *still, digest_at=now())
            if channel is not None:
                seen, lines = week_in_numbers(channel.account_id, monday)
                Notice.put(channel, NoticeKind.DIGEST, seen, due_at=now(), lines=lines)
    return len(due)


def find_due(*, away: bool) -> list[int]:
    """Ids of messages to send now. Of parts that are away only the web process tells, of all else only workers."""
    kind = Notice.kind == NoticeKind.AWAY if away else Notice.kind != NoticeKind.AWAY
    with reading():
        return Notice.find_due(kind)


def deliver(notice_id: int, *, resolve: Resolver | None = None) -> Outcome | None:
    """Send a message that is due, unless another process has it, and write down how that went. Not in a transaction."""
    with writing() as session:
        notice = Notice.claim(notice_id)
        if notice is None:
            return None
        channel = session.get_one(NoticeChannel, notice.channel_id, populate_existing=True)
        account = session.get_one(Account, notice.account_id)
        message, number = Message.of(notice, account, settings_of_app().public_url), notice.attempts
    begun = time.monotonic()
    outcome = _send(message, channel, resolve)
    seconds = time.monotonic() - begun
    with writing():
        notice.settle(number, ok=outcome.ok, status=outcome.status, words=outcome.words, seconds=seconds)
    log.info("notice", id=notice.uuid, kind=str(notice.kind), ok=outcome.ok, status=outcome.status)
    return outcome


def _look_for(channel_id: str, seen: int, until: int) -> None:
    """Its events up to `until`; for exactly one process, by the change of how far was looked."""
    with writing() as session:
        channel = session.get_one(NoticeChannel, channel_id)
        events = load_events(channel.account_id, seen, until)
        if len(events) == BATCH:
            until = events[-1].id
        still = (NoticeChannel.id == channel_id, NoticeChannel.is_live(), NoticeChannel.seen_event_id == seen)
        channel_now = claim_row(NoticeChannel, *still, seen_event_id=until)
        if channel_now is None:
            return
        for kind, what in sight(events).items():
            if kind in channel_now.kinds:
                Notice.collect(channel_now, kind, what)


def _send(message: Message, channel: NoticeChannel, resolve: Resolver | None) -> Outcome:
    try:
        if channel.type == ChannelType.EMAIL:
            return _send_mail(message, channel)
        return _send_webhook(message, channel, resolve)
    except AddressRefused as error:
        return Outcome(False, error.sentence)
    except WhetstoneError as error:
        return Outcome(False, f"It could not be opened: {error.code}")
    except smtplib.SMTPResponseException as error:
        return Outcome(False, "The mail server refused it", int(error.smtp_code))
    except (NoAnswerInTime, TimeoutError):
        return Outcome(False, "No answer in time")
    except ssl.SSLCertVerificationError as error:
        return Outcome(False, f"Its certificate was refused: {error.verify_message}"[:120])
    except (OSError, http.client.HTTPException, smtplib.SMTPException) as error:
        return Outcome(False, f"Not reached ({type(error).__name__})")


def _send_mail(message: Message, channel: NoticeChannel) -> Outcome:
    settings = settings_of_app()
    url = settings.smtp_url.get_secret_value()
    if not url:
        return Outcome(False, NO_MAIL_SERVER[:120])
    notice = message.notice
    about = {"sender": settings.smtp_from, "to": channel.shown, "message_id": notice.uuid}
    send_mail(compose_mail(message.subject, message.text, at=notice.created_at, **about), parse_mail_server(url))
    return Outcome(True, "Taken by the mail server", 250)


def _send_webhook(message: Message, channel: NoticeChannel, resolve: Resolver | None) -> Outcome:
    target = open_channel(channel)
    address = judge_address(target.url, allowed=settings_of_app().webhook_networks, resolve=resolve)
    body, headers = message.body_for(ChannelType(channel.type)), {"User-Agent": "Whetstone"}
    if channel.type == ChannelType.WEBHOOK:
        timestamp = int(time.time())
        headers |= {
            "webhook-id": message.notice.uuid,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign_webhook(target.secret, message.notice.uuid, timestamp, body),
        }
    status = post(address, body, headers)
    if 200 <= status < 300:
        return Outcome(True, "Taken", status)
    words = "Redirects are not followed" if 300 <= status < 400 else "Refused by the receiver"
    return Outcome(False, words, status)


def _latest_monday(at: datetime) -> datetime:
    """The last Monday at 08:00 UTC that has begun."""
    hour = at.astimezone(UTC).replace(hour=DIGEST_HOUR, minute=0, second=0, microsecond=0)
    monday = hour - timedelta(days=hour.weekday())
    return monday if monday <= at else monday - timedelta(days=7)
