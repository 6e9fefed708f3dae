"""What people can be told of, where to, and what became of a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.models import ChannelType, NoticeKind, NoticeStatus
from app.vocabulary.term import Term


@dataclass(frozen=True)
class NoticeTerm(Term):
    """`one` and `many` are how a message says it, `{n}` being the number; `path` is where its link leads. A name for
    programs is `event`.
    """

    one: str = ""
    many: str = ""
    path: str = "/"
    event: str = ""


NOTICE_KINDS: Mapping[str, NoticeTerm] = {
    NoticeKind.FAILED: NoticeTerm(
        *("alert", "failed", "bad", "A refinement failed, or its worker stopped"),
        one="A refinement failed",
        many="{n} refinements failed",
        path="/refinements?status=failed,interrupted&needs=attention",
        event="refinements.failed",
    ),
    NoticeKind.ROLLED_BACK: NoticeTerm(
        *("history", "rolled back", "warn", "Somebody used the Time Machine"),
        one="Somebody rolled back changes",
        many="Changes were rolled back {n} times",
        path="/audit?action=memory_rollback",
        event="refinements.rolled_back",
    ),
    NoticeKind.LATCH: NoticeTerm(
        *("undo", "latch", "warn", "A guard reversed a refinement: not enough would have been kept"),
        one="A guard reversed a refinement",
        many="Guards reversed {n} refinements",
        path="/refinements?status=rolled_back",
        event="refinements.latch",
    ),
    NoticeKind.DECLINED: NoticeTerm(
        *("ban", "declined three times", "ask", "An agent said NO to three refinements in a row"),
        one="An agent declined three times in a row",
        many="{n} agents declined three times in a row",
        path="/refinements?status=declined",
        event="agents.declined_three_times",
    ),
    NoticeKind.REQUEST: NoticeTerm(
        *("lock", "request waiting", "ask", "Somebody asked an agent for an exception or a token"),
        one="A request waits for an agent's decision",
        many="{n} requests wait for agents' decisions",
        path="/exceptions",
        event="requests.waiting",
    ),
    NoticeKind.VERIFY: NoticeTerm(
        *("audit", "verify alarm", "bad", "The audit log or what it proves is not as it was written"),
        one="The record is not as it was written",
        many="The record is not as it was written ({n} alarms)",
        path="/",
        event="record.alarm",
    ),
    NoticeKind.STATEMENT: NoticeTerm(
        *("shield", "statement alarm", "bad", "An agent is stopped: a row differs from what was signed"),
        one="An agent is stopped: a row differs from what was signed",
        many="{n} agents are stopped: rows differ from what was signed",
        path="/agents?state=stopped",
        event="statements.alarm",
    ),
    NoticeKind.AWAY: NoticeTerm(
        *("bolt", "worker or scheduler away", "bad"),
        meaning="No worker answers, the scheduler has stopped, or no checkpoint is signed",
        one="A part of Whetstone does not answer",
        many="Parts of Whetstone do not answer",
        path="/settings/health",
        event="parts.away",
    ),
    NoticeKind.OVER_BUDGET: NoticeTerm(
        *("budget", "over budget twice", "warn", "An agent was over its budget after two refinements in a row"),
        one="An agent is over its budget after two refinements in a row",
        many="{n} agents are over their budgets after two refinements in a row",
        path="/agents?state=over_budget",
        event="agents.over_budget_twice",
    ),
    NoticeKind.DIGEST: NoticeTerm(
        *("overview", "weekly digest", "info", "Each Monday at 08:00 UTC, the numbers of the week"),
        one="The week in numbers",
        many="The week in numbers",
        path="/",
        event="digest.weekly",
    ),
    NoticeKind.TEST: NoticeTerm(
        *("check", "test", "neutral", "Asked for by a button or a command"),
        one="This is a test: the channel works",
        many="This is a test: the channel works",
        path="/settings/notices",
        event="channel.test",
    ),
}

CHANNEL_TYPES: Mapping[str, Term] = {
    ChannelType.EMAIL: Term("chat", "e-mail"),
    ChannelType.WEBHOOK: Term("bolt", "webhook", meaning="Signed JSON for a program of yours (Standard Webhooks)"),
    ChannelType.SLACK: Term("chat", "Slack", meaning="An incoming webhook of Slack, Mattermost or Rocket.Chat"),
    ChannelType.DISCORD: Term("chat", "Discord", meaning="A webhook of a Discord channel"),
}

NOTICE_STATUSES: Mapping[str, Term] = {
    NoticeStatus.WAITING: Term("clock", "waiting", "info"),
    NoticeStatus.SENT: Term("check", "sent", "ok"),
    NoticeStatus.GIVEN_UP: Term("alert", "given up", "bad", "It failed for about 24 hours"),
    NoticeStatus.DROPPED: Term("ban", "dropped", "neutral", "The channel was paused or removed"),
}
