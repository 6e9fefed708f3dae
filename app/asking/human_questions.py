"""Questions that humans put to an agent, whatever they want: when it may be asked, and how a question quotes them.

Every kind of question is asked through here. What a human wrote, and what the agent was asked before, stands in it as
quoted lines of data. A NO rests all of them; refinements rest by a rule of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import func, or_, select

from app.asking.rendering import encode_json, render_prompt
from app.errors import Refused
from app.extensions import db, now
from app.models import (
    AccessGrant,
    Agent,
    Consent,
    GrantStatus,
    SettingsRequest,
    SettingsRequestStatus,
    TokenRequest,
    TokenRequestStatus,
    User,
)
from app.models.base import iso
from app.models.statement_log import current_of
from app.values.plural import count_nouns

REST_AFTER_NO = timedelta(hours=24)
"""After a NO, silence or an error: no human asks this agent. Each further NO or silence in a row doubles it."""

LONGEST_REST = timedelta(days=32)

NAMED_ANSWERS = 10
"""Earlier answers that a question names."""

_READ_ANSWERS = 500
"""So many newest answers decide on the rest."""


class QuestionKind(StrEnum):
    """What a human asked for, as the agent reads it."""

    EXCEPTION = "to read what I remember"
    TOKEN = "for a token of mine"  # noqa: S105 - words
    CHANGE = "to change my settings"


class AnswerKind(StrEnum):
    """How a question ended, as the agent reads it."""

    YES = "YES"
    NO = "NO"
    SILENCE = "no answer"
    FAILED = "my model could not be asked"


@dataclass(frozen=True)
class EarlierAnswer:
    """One question of a human that has ended with an answer, or for want of one."""

    at: datetime
    kind: QuestionKind
    asked_by: str
    answer: AnswerKind
    subject: str = ""

    @property
    def line(self) -> str:
        """As a question quotes it: one line of JSON."""
        return encode_json(
            {"at": iso(self.at), "asked": str(self.kind), "by": self.asked_by, "answer": str(self.answer)}
        )


@dataclass(frozen=True)
class Rest:
    """No human asks the agent before `until`. `nos` in a row led to it; 0 where its model could not be asked."""

    until: datetime
    length: timedelta
    nos: int

    @property
    def words(self) -> str:
        """`24 hours`, `4 days`."""
        return rest_words(self.length)

    @property
    def sentence(self) -> str:
        """For the people who want to ask."""
        since = f"it rests for {self.words} after {count_nouns(self.nos, 'NO')} in a row"
        why = since if self.nos > 1 else f"it rests for {self.words}"
        return f"It is not asked again before {self.until:%A %Y-%m-%d %H:%M} UTC: {why}."


class RestingAfterAsk(Refused):
    """The agent did not agree when a human asked it last, and is not asked again yet."""

    code = "asked_recently"


def earlier_answers(agent_id: int, limit: int = _READ_ANSWERS) -> list[EarlierAnswer]:
    """What this agent answered to humans, newest first; refinements are not among it."""
    found = _stated_answers(agent_id, (_exception_answers, _token_answers, _change_answers), limit)
    return sorted(found, key=lambda each: each.at, reverse=True)[:limit]


def current_rest(agent_id: int) -> Rest | None:
    """The rest that this agent has now, if it has one. Answers about its settings neither begin nor end one."""
    rest = _longest_rest(_stated_answers(agent_id, (_exception_answers, _token_answers), _READ_ANSWERS))
    return rest if rest is not None and rest.until > now() else None


def resting_until(agent_id: int) -> datetime | None:
    """Until when no human asks this agent, if that is so now."""
    rest = current_rest(agent_id)
    return rest.until if rest else None


def check_not_resting(agent: Agent) -> None:
    """Raises RestingAfterAsk."""
    rest = current_rest(agent.id)
    if rest is not None:
        raise RestingAfterAsk(
            f"{agent.name} did not agree when it was asked last. {rest.sentence}", "Nothing was asked."
        )


def rest_words(length: timedelta) -> str:
    """`24 hours`, `4 days`."""
    return count_nouns(length.days, "day") if length.days > 1 else "24 hours"


def render_human_question(template: str, agent_id: int, *, quoted: Mapping[str, object], **plain: object) -> str:
    """A question of `templates/prompts`, with the agent's earlier answers.

    What a human wrote or chose the words of belongs into `quoted`: each stands there as one line of JSON, and so does
    each value of a list of objects. `plain` is for numbers and our own words.
    """
    named = [each.line for each in earlier_answers(agent_id, NAMED_ANSWERS)]
    lines = {name: _quote(value) for name, value in quoted.items()}
    return render_prompt(template, **lines, **plain, earlier_answers=named)


def _quote(value: object) -> object:
    """As one line of JSON; of a list of objects, each of their values."""
    if isinstance(value, list):
        return [{name: encode_json(each) for name, each in row.items()} for row in value]
    return encode_json(value)


def _stated_answers(
    agent_id: int, readers: Iterable[Callable[[int, int], list[EarlierAnswer]]], limit: int
) -> list[EarlierAnswer]:
    """As the rows tell them, but each YES and NO as the log of statements has it, also where a row is gone."""
    told = {each.subject: each for read in readers for each in read(agent_id, limit)}
    agent = db.session.get_one(Agent, agent_id)
    for stated in current_of(agent.id, agent.uuid).answers[-limit:]:
        kind = _KINDS.get(stated.subject.partition(":")[0])
        known = told.get(stated.subject)
        if kind is None or (kind is QuestionKind.CHANGE and known is None):
            continue
        answer = _plain_answer(stated.granted)
        by = known.asked_by if known else str(stated.body.get("email") or "somebody")
        told[stated.subject] = EarlierAnswer(known.at if known else stated.at, kind, by, answer, stated.subject)
    return list(told.values())


_KINDS = {"exception": QuestionKind.EXCEPTION, "token-request": QuestionKind.TOKEN, "change": QuestionKind.CHANGE}


def _exception_answers(agent_id: int, limit: int) -> list[EarlierAnswer]:
    """Of exceptions: each has one answer, written down as a consent; silence and errors stand in its own row."""
    at = func.coalesce(Consent.answered_at, AccessGrant.ended_at)
    query = (
        select(at, User.email, AccessGrant.status, Consent.granted, AccessGrant.id)
        .select_from(AccessGrant)
        .join(User, User.id == AccessGrant.user_id)
        .outerjoin(Consent, Consent.grant_id == AccessGrant.id)
        .where(AccessGrant.agent_id == agent_id)
        .where(or_(Consent.granted.is_not(None), AccessGrant.status.in_(_WITHOUT_ANSWER)))
        .order_by(at.desc(), AccessGrant.id)
        .limit(limit)
    )
    return [
        EarlierAnswer(moment, QuestionKind.EXCEPTION, email, _answer_kind(status, granted), f"exception:{number}")
        for moment, email, status, granted, number in db.session.execute(query).tuples()
    ]


def _token_answers(agent_id: int, limit: int) -> list[EarlierAnswer]:
    """Of requests for tokens: each row has its one answer."""
    query = (
        select(TokenRequest.decided_at, User.email, TokenRequest.status, TokenRequest.id)
        .join(User, User.id == TokenRequest.user_id)
        .where(TokenRequest.agent_id == agent_id, TokenRequest.status.in_(_TOKEN_ANSWERS))
        .order_by(TokenRequest.decided_at.desc(), TokenRequest.id)
        .limit(limit)
    )
    return [
        EarlierAnswer(at, QuestionKind.TOKEN, email, _TOKEN_ANSWERS[status], f"token-request:{number}")
        for at, email, status, number in db.session.execute(query).tuples()
        if at is not None
    ]


_TOKEN_ANSWERS = {
    TokenRequestStatus.GRANTED: AnswerKind.YES,
    TokenRequestStatus.DENIED: AnswerKind.NO,
    TokenRequestStatus.UNANSWERED: AnswerKind.SILENCE,
    TokenRequestStatus.FAILED: AnswerKind.FAILED,
}

_WITHOUT_ANSWER = {GrantStatus.UNANSWERED: AnswerKind.SILENCE, GrantStatus.FAILED: AnswerKind.FAILED}


def _change_answers(agent_id: int, limit: int) -> list[EarlierAnswer]:
    """Of changes of settings, in the same way."""
    at = func.coalesce(Consent.answered_at, SettingsRequest.decided_at)
    failed = SettingsRequest.status == SettingsRequestStatus.FAILED
    query = (
        select(at, User.email, Consent.granted, SettingsRequest.id)
        .select_from(SettingsRequest)
        .join(User, User.id == SettingsRequest.user_id)
        .outerjoin(Consent, Consent.settings_request_id == SettingsRequest.id)
        .where(SettingsRequest.agent_id == agent_id, or_(Consent.granted.is_not(None), failed))
        .order_by(at.desc(), SettingsRequest.id)
        .limit(limit)
    )
    return [
        EarlierAnswer(moment, QuestionKind.CHANGE, email, _plain_answer(granted), f"change:{number}")
        for moment, email, granted, number in db.session.execute(query).tuples()
    ]


def _plain_answer(granted: bool | None) -> AnswerKind:
    if granted is None:
        return AnswerKind.FAILED
    return AnswerKind.YES if granted else AnswerKind.NO


def _answer_kind(status: GrantStatus, granted: bool | None) -> AnswerKind:
    return _WITHOUT_ANSWER[status] if granted is None else _plain_answer(granted)


def _longest_rest(answers: Iterable[EarlierAnswer]) -> Rest | None:
    """The rest that ends last. A YES begins the count anew, and ends no rest; an error counts as no NO."""
    nos, last = 0, None
    for answer in sorted(answers, key=lambda each: each.at):
        if answer.answer == AnswerKind.YES:
            nos = 0
            continue
        nos += answer.answer != AnswerKind.FAILED
        counted = 0 if answer.answer == AnswerKind.FAILED else nos
        length = min(REST_AFTER_NO * 2 ** min(max(counted - 1, 0), 10), LONGEST_REST)
        rest = Rest(answer.at + length, length, counted)
        last = rest if last is None or rest.until >= last.until else last
    return last
