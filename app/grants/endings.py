"""How exceptions end by themselves, and how the agent is told: who looked, why, how often and when."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, func, select

from app.extensions import db, now, writing
from app.grants.request import SILENCE, lock_both
from app.history.telling import tell_agent
from app.models import OPEN_GRANTS, WORKER, AccessGrant, AccessView, Action, Actor, Agent, AuditLog, GrantStatus, User
from app.models.base import CLAIM_EXPIRES_AFTER, database_now
from app.values.plural import count_times

SKEW = timedelta(days=1)
"""The clocks of web and worker, by which entries are dated, may differ; no more than that."""


def end_what_is_over() -> list[str]:
    """Write down what has run out by the database's clock, what nobody answered, and what is for no admin any more.

    Returns their ids.
    """
    run_out = (AccessGrant.status == GrantStatus.GRANTED) & (AccessGrant.expires_at <= database_now())
    silent = (AccessGrant.status == GrantStatus.PENDING) & (AccessGrant.requested_at <= now() - SILENCE)
    ended = []
    for condition, status in ((run_out, GrantStatus.EXPIRED), (silent, GrantStatus.UNANSWERED)):
        found = AccessGrant.find_ids(condition, limit=1000)
        ended += [grant_id for grant_id in found if _end_grant(grant_id, condition, status)]
    return ended + list(filter(end_if_lost, AccessGrant.find_ids(AccessGrant.is_lost(), limit=1000)))


def end_if_lost(grant_id: str) -> bool:
    """End one whose human is no active admin of the account any more. Returns whether it was so. Raises NotFound."""
    with writing():
        agent, grant = lock_both(grant_id)
        return grant.end_if_lost(agent, by=WORKER)


def revoke_exceptions_of(user_id: int, *, by: Actor, why: str) -> None:
    """All that are open for this user, pending or granted."""
    for grant_id in AccessGrant.find_ids(AccessGrant.user_id == user_id, AccessGrant.status.in_(OPEN_GRANTS)):
        with writing():
            agent, grant = lock_both(grant_id)
            if grant.is_open:
                grant.end(agent, GrantStatus.REVOKED, by=by, why=why)


def entries_about(grant: AccessGrant, *actions: Action, limit: int) -> list[AuditLog]:
    """Newest first. The agent's entries since the request are few enough to be looked through."""
    about = (AuditLog.agent_id == grant.agent_id, AuditLog.subject == grant.subject, AuditLog.action.in_(actions))
    query = select(AuditLog).where(AuditLog.at >= grant.requested_at - SKEW, *about)
    return list(db.session.scalars(query.order_by(AuditLog.at.desc(), AuditLog.id.desc()).limit(limit)))


def why_it_ended(grant: AccessGrant) -> str:
    """The reason that stands in the entry of its end; empty where the end alone says enough."""
    ends = entries_about(grant, Action.ACCESS_FAILED, Action.ACCESS_REVOKED, limit=1)
    return next((str(entry.data.get("why", "")) for entry in ends), "")


def find_endings_to_tell() -> list[str]:
    """Ids of ended exceptions of which the agent's journal says nothing yet."""
    is_known = (Agent.id == AccessGrant.agent_id, Agent.forgotten_at.is_(None))
    untold = (AccessGrant.told_at.is_(None), AccessGrant.status.not_in(OPEN_GRANTS), *is_known)
    return AccessGrant.find_ids(*untold, first=AccessGrant.ended_at)


def find_unasked() -> list[str]:
    """Ids of pending exceptions whose question got lost on the way to a worker, or died with one."""
    late = AccessGrant.requested_at < now() - CLAIM_EXPIRES_AFTER
    unasked = (AccessGrant.status == GrantStatus.PENDING, late, AccessGrant.is_free())
    return AccessGrant.find_ids(*unasked, first=AccessGrant.requested_at)


def tell_ending(grant_id: str) -> None:
    """Write the note into the agent's journal, once, after the end."""
    with writing():
        agent, grant = lock_both(grant_id)
        if grant.told_at is not None or grant.is_open or agent.forgotten_at is not None:
            return
        grant.told_at = now()
        tell_agent(agent, _compose_note(grant), about={"exception": grant.id})


def _end_grant(grant_id: str, condition: ColumnElement[bool], status: GrantStatus) -> bool:
    """Whether it was still so."""
    with writing():
        agent, grant = lock_both(grant_id)
        if not AccessGrant.row_matches(grant_id, condition):
            return False
        grant.end(agent, status, by=WORKER)
        return True


def _compose_note(grant: AccessGrant) -> str:
    user = db.session.get_one(User, grant.user_id)
    looks = db.session.execute(
        select(func.count(), func.coalesce(func.sum(AccessView.seen), 0), func.min(AccessView.answered_at))
        .add_columns(func.max(AccessView.answered_at))
        .where(AccessView.grant_id == grant.id, AccessView.seen.is_not(None))
    ).one()
    what = "my ledger" if grant.refinement_id is None else f"the history of refinement {grant.refinement_id}"
    why = f"{grant.category}; their reason, quoted: {json.dumps(grant.purpose)}"
    asked = f"{user.email} had my consent to read {what} ({why})"
    since = f"for {grant.minutes} minutes from {_shown_time(grant.decided_at)}"
    return f"{asked}, {since}. It {_end_words(grant)}. {_describe_looks(*looks)}"


def _describe_looks(count: int, seen: int, first: datetime | None, last: datetime | None) -> str:
    when = f"from {_shown_time(first)} to {_shown_time(last)}"
    return f"They looked {count_times(count)}, {when}, at {seen} texts in all." if count else "They never looked."


def _end_words(grant: AccessGrant) -> str:
    if grant.status == GrantStatus.EXPIRED:
        return f"ended by itself at {_shown_time(grant.ended_at)}"
    by, why = (grant.ended_by or "").partition(":")[2], why_it_ended(grant)
    return f"was taken back at {_shown_time(grant.ended_at)} by {by}{f' ({why})' if why else ''}"


def _shown_time(moment: datetime | None) -> str:
    return "–" if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC"
