"""Asking for an exception, deciding on it, and taking it back: who may, when, and what is written."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from app.asking.calls import ModelCalls
from app.asking.human_questions import check_not_resting
from app.asking.replies import ConsentAnswer
from app.errors import Invalid, NotFound, Refused
from app.extensions import db, now, writing
from app.keys.bearer import Bearer
from app.keys.tokens import check_may_decide
from app.models import (
    OPEN_GRANTS,
    WORKER,
    AccessGrant,
    Action,
    Actor,
    Agent,
    Consent,
    GrantCategory,
    GrantStatus,
    Refinement,
    User,
    announce,
    note_to_admins,
    record,
)
from app.models.base import iso, require_row
from app.models.declaring import declare, hash_words, sign_request
from app.models.grant import ACCESS_REQUEST
from app.models.statement import StatementKind
from app.models.user import ADMIN
from app.silo import AgentKeys, TokenKey
from app.values.text import clean_text, is_blank

MIN_MINUTES, MAX_MINUTES = 15, 480
MAX_PURPOSE = 500
SILENCE = timedelta(hours=72)
"""An exception that nobody answered for so long ends as unanswered."""


class AlreadyAsked(Refused):
    """The same human has an open exception of this scope."""

    code = "already_asked"

    def __init__(self, grant: AccessGrant) -> None:
        live = grant.status == GrantStatus.GRANTED
        state = "is live already" if live else "is waiting for the agent's answer"
        super().__init__(f"Exception {grant.id} for the same person and scope {state}.", "Nothing new was asked.")
        self.grant_id = grant.id


@dataclass(frozen=True)
class WantedException:
    """What a human asks for. `refinement_id` null means the ledger."""

    category: GrantCategory
    purpose: str
    minutes: int
    refinement_id: str | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> WantedException:
        """From a form, options or JSON: category, purpose, minutes, scope. Raises Invalid with what is allowed."""
        category = str(given.get("category") or "").strip().lower()
        if category not in list(GrantCategory):
            raise Invalid(f"The category must be one of {', '.join(GrantCategory)}.", "Nothing was asked.")
        scope = str(given.get("scope") or "ledger").strip().lower()
        purpose, minutes = _parse_purpose(given.get("purpose")), _parse_minutes(given.get("minutes"))
        return cls(GrantCategory(category), purpose, minutes, None if scope == "ledger" else scope)


def request_access(agent_id: int, wish: WantedException, *, for_user: User, by: Actor) -> AccessGrant:
    """Write the question down; the caller lets a worker ask once it is committed.

    Raises NotFound, Invalid, AlreadyAsked, RestingAfterAsk or Refused; nothing is written then.
    """
    with writing():
        agent = Agent.lock(agent_id)
        _check_request(agent, wish, for_user)
        grant = AccessGrant(
            id=str(uuid.uuid4()),
            account_id=agent.account_id,
            agent_id=agent.id,
            user_id=for_user.id,
            **asdict(wish),
            status=GrantStatus.PENDING,
            requested_by=str(by),
            requested_at=now(),
            views=0,
        )
        grant.note = sign_request(ACCESS_REQUEST, grant.requested())
        db.session.add(grant)
        db.session.flush()
        asked = {"category": str(wish.category), "purpose": wish.purpose, "scope": grant.scope, "minutes": wish.minutes}
        data = {"exception": grant.id, "for": for_user.email} | asked
        record(Action.ACCESS_REQUESTED, actor=by, of=agent, subject=grant.subject, data=data)
        announce("exception.requested", *agent.audited_as, exception=grant.id)
    return grant


def decide_grant(
    grant_id: str,
    answer: ConsentAnswer,
    *,
    agent_id: int,
    by: Actor,
    keys: AgentKeys | None,
    asked_at: datetime | None = None,
    calls: ModelCalls | None = None,
    bearer: Bearer | None = None,
    question: str | None = None,
    about: Mapping[str, Any] | None = None,
) -> AccessGrant:
    """Write the agent's answer down: it counts once. Raises NotFound or Refused.

    `keys` seal its words; where its model was asked, `asked_at` says when, `question` and `about` what, and `calls` are
    those of it; where a token of the agent decided, it is `bearer`, and what it granted ends when it is revoked. A YES
    for a human who may not look any more ends it: as revoked, never granted.
    """
    with writing():
        agent, grant = lock_both(grant_id)
        if grant.agent_id != agent_id:
            raise NotFound("There is no such exception.")
        if grant.status != GrantStatus.PENDING:
            may = " To take it back, revoke it." if grant.status == GrantStatus.GRANTED else ""
            raise Refused(f"This exception is {grant.status} already.", f"Nothing was changed.{may}")
        consent = Consent(account_id=grant.account_id, agent_id=agent_id, grant_id=grant.id, granted=answer.granted)
        if bearer is not None:
            check_may_decide(agent, bearer, ())
            grant.by_token = bearer.public_id
        consent.asked_at, consent.answered_at = asked_at or grant.requested_at, now()
        if keys is not None and answer.words:
            grant.reason = keys.seal(answer.words, purpose="exception", subject=grant.id)
            consent.words = keys.seal(answer.words, purpose="consent", subject=grant.id)
        db.session.add(consent)
        if about is not None and about != grant.requested():
            grant.end(agent, GrantStatus.FAILED, by=WORKER, why="what was asked is not what stands there now")
            return grant
        if not answer.granted:
            grant.end(agent, GrantStatus.DENIED, by=by)
        elif not grant.end_if_lost(agent, by=WORKER):
            grant.allow(agent, by=by)
        _state_decision(grant, agent, answer, keys, question, bearer.opener if bearer else None)
        note_to_admins(agent, answer.note_to_admins, about=grant)
        if calls is not None:
            calls.book()
    return grant


def _state_decision(
    grant: AccessGrant,
    agent: Agent,
    answer: ConsentAnswer,
    keys: AgentKeys | None,
    question: str | None,
    signer: TokenKey | None,
) -> None:
    """Sign what was decided: who may see what, why, and for how long."""
    granted = grant.status == GrantStatus.GRANTED
    if answer.granted and not granted:
        return
    said = {"granted": granted, "database_time": iso(grant.decided_at)}
    said |= hash_words(keys, grant.subject, question, answer.words)
    declare(StatementKind.EXCEPTION_DECIDED, agent, grant.subject, grant.stated() | said, signer=signer)


def revoke_grant(grant_id: str, *, by: Actor, signer: TokenKey | None = None) -> AccessGrant:
    """Take it back at once, whoever may: the agent, or any admin. Does nothing to an ended one. Raises NotFound."""
    with writing():
        agent, grant = lock_both(grant_id)
        grant.end(agent, GrantStatus.REVOKED, by=by, signer=signer)
    return grant


def lock_both(grant_id: str) -> tuple[Agent, AccessGrant]:
    """The agent's row, then the exception's. Raises NotFound."""
    agent_id = db.session.scalar(select(AccessGrant.agent_id).where(AccessGrant.id == grant_id))
    agent = Agent.lock(require_row(agent_id, "There is no such exception."))
    return agent, AccessGrant.lock(grant_id)


def _check_request(agent: Agent, wish: WantedException, for_user: User) -> None:
    if agent.forgotten_at is not None:
        raise Refused(f"{agent.name} was forgotten: there is nothing left that could be shown.", "Nothing was asked.")
    if for_user.account_id != agent.account_id or not for_user.active or not for_user.may(ADMIN):
        raise Refused("An exception is for one active admin of the agent's own account.", "Nothing was asked.")
    if wish.refinement_id is not None:
        mine = (Refinement.id == wish.refinement_id, Refinement.agent_id == agent.id)
        if db.session.scalar(select(Refinement.id).where(*mine)) is None:
            raise NotFound(f"{agent.name} has no such refinement.", "Nothing was asked.")
    same = db.session.scalar(
        select(AccessGrant).where(
            AccessGrant.agent_id == agent.id,
            AccessGrant.user_id == for_user.id,
            AccessGrant.refinement_id.is_not_distinct_from(wish.refinement_id),
            AccessGrant.status.in_(OPEN_GRANTS),
        )
    )
    if same is not None and not _has_run_out(same):
        raise AlreadyAsked(same)
    check_not_resting(agent)


def _has_run_out(grant: AccessGrant) -> bool:
    """Granted, and past its minute: the sweeper has only not written it down yet."""
    return grant.status == GrantStatus.GRANTED and not AccessGrant.row_matches(grant.id, AccessGrant.is_live())


def _parse_purpose(value: object) -> str:
    cleaned = " ".join(clean_text(value if value is not None else "", what="purpose").split())
    if is_blank(cleaned) or len(cleaned) > MAX_PURPOSE:
        raise Invalid(f"The purpose must have 1 to {MAX_PURPOSE} characters.", "Nothing was asked.")
    return cleaned


def _parse_minutes(value: object) -> int:
    written = str(value).strip()
    is_number = not isinstance(value, bool) and written.isascii() and written.isdigit() and len(written) <= 4
    if not is_number or not MIN_MINUTES <= int(written) <= MAX_MINUTES:
        raise Invalid(f"The minutes must be a whole number from {MIN_MINUTES} to {MAX_MINUTES}.", "Nothing was asked.")
    return int(written)
