"""Channels for notices, and how messages were delivered: no address of a webhook, no secret."""

from __future__ import annotations

from typing import Any, Self

from app.models import Notice, NoticeAttempt, NoticeChannel
from app.shapes.response import Moment, ResponseModel


class ChannelShape(ResponseModel):
    """`to` is an e-mail address, or the host of a webhook; `waiting` counts its messages in the outbox."""

    id: str
    type: str
    name: str
    to: str
    kinds: list[str]
    created_at: Moment
    paused_at: Moment | None
    waiting: int

    @classmethod
    def of(cls, channel: NoticeChannel, /, **more: Any) -> Self:
        return super().of(channel, to=channel.shown, **more)


class AttemptShape(ResponseModel):
    """One attempt to deliver: the receiver's status and how long it took, never its words."""

    id: int
    at: Moment
    channel: str
    notice: str
    kind: str
    count: int
    number: int
    ok: bool
    status: int | None
    reason: str
    seconds: float
    outcome: str

    @classmethod
    def told(cls, attempt: NoticeAttempt, notice: Notice, channel: str) -> Self:
        about = {"channel": channel, "notice": notice.uuid, "kind": str(notice.kind), "count": notice.count}
        about["reason"] = attempt.words
        return cls.of(attempt, **about, seconds=attempt.milliseconds / 1000, outcome=str(notice.status))
