"""Visits: an operator enters another account as its admin, for an hour at most; that account's audit log shows it.

The row of the session says so, and `User.visit_in` whether it counts. A visit that is over counts no more at once; its
entry follows within a minute.
"""

from __future__ import annotations

from sqlalchemy import select

from app.errors import Invalid, Refused
from app.extensions import db, now, writing
from app.models.audit import Action, record
from app.models.base import claim_row, iso
from app.models.event import announce
from app.models.user import SITE_ADMIN, Account, User
from app.models.user_session import VISIT, AccountVisit, UserSession
from app.values.text import clean_text, is_blank

MAX_REASON = 200


class NotInside(Refused):
    """You are in your own account already."""

    code = "not_inside"
    outcome = "Nothing was changed."


class InsideAlready(Refused):
    """You are inside another account already. Leave it first."""

    code = "inside_another_account"
    outcome = "Nothing was changed."


class NoOperator(Refused):
    """Only an operator who is signed in enters another account."""

    code = "not_allowed"
    http_status = 403
    outcome = "Nothing was written."


def clean_reason(typed: str) -> str:
    """In one line, as the account's people read it. Raises Invalid."""
    reason = " ".join(clean_text(typed, what="reason").split())
    if is_blank(reason):
        raise Invalid("Say why: the account's people read it in their audit log.")
    if len(reason) > MAX_REASON:
        raise Invalid(f"The reason has {len(reason)} characters; at most {MAX_REASON} are allowed.")
    return reason


def enter_account(account_id: int, *, user: User, reason: str) -> tuple[Account, AccountVisit]:
    """In the session in which the user asks, who has just shown the password.

    Raises NotFound, Invalid, NotInside for the user's own account, InsideAlready and NoOperator.
    """
    reason, user_id, key = clean_reason(reason), user.id, user.session_key
    if account_id == user.account_id:
        raise NotInside
    end_visits()
    with writing():
        account = Account.lock(account_id)
        operator = _find_operator(user_id)
        visit = AccountVisit(account.id, now() + VISIT)
        is_free = (UserSession.ended_at.is_(None), UserSession.entered_account_id.is_(None))
        mine = (UserSession.key == key, UserSession.user_id == user_id, *is_free)
        if not claim_row(UserSession, *mine, entered_account_id=account.id, entered_until=visit.until):
            raise InsideAlready
        data = {"reason": reason, "until": iso(visit.until)}
        record(Action.ACCOUNT_ENTER, actor=operator.actor, of=account, subject=account.subject, data=data)
        announce(f"account.{Action.ACCOUNT_ENTER}", account.id)
    return account, visit


def leave_account(user: User, *, why: str = "left") -> bool:
    """End the visit of the session in which the user asks; returns whether there was one."""
    opened = db.session.scalar(select(UserSession).where(UserSession.key == user.session_key))
    return opened is not None and user.visit is not None and _end_visit(opened, why)


def end_visits() -> int:
    """Write down those that are over by themselves; returns how many."""
    query = select(UserSession, User).join(User, User.id == UserSession.user_id)
    entered = query.where(UserSession.entered_account_id.is_not(None)).order_by(UserSession.id)
    found = db.session.execute(entered.execution_options(populate_existing=True)).tuples().all()
    over = [(opened, _why_over(opened, user)) for opened, user in found if user.visit_in(opened) is None]
    return sum(_end_visit(opened, why) for opened, why in over)


def _find_operator(user_id: int) -> User:
    """As it is now. Raises NoOperator."""
    fresh = select(User).where(User.id == user_id, User.is_active_with(SITE_ADMIN))
    operator = db.session.scalar(fresh.execution_options(populate_existing=True))
    if operator is None:
        raise NoOperator
    return operator


def _why_over(opened: UserSession, user: User) -> str:
    if opened.ended_at is not None:
        return opened.ended_why or "signed out"
    if not user.active:
        return "deactivated"
    return "time" if user.may(SITE_ADMIN) else "role lost"


def _end_visit(opened: UserSession, why: str) -> bool:
    """Once: of two who try, the first writes the entry."""
    session_id, account_id, user_id, until = opened.id, opened.entered_account_id, opened.user_id, opened.entered_until
    if account_id is None:
        return False
    with writing():
        account = Account.lock(account_id)
        same = (UserSession.id == session_id, UserSession.entered_account_id == account_id)
        is_it = (*same, UserSession.entered_until.is_not_distinct_from(until))
        if not claim_row(UserSession, *is_it, entered_account_id=None, entered_until=None):
            return False
        actor = db.session.get_one(User, user_id).actor
        record(Action.ACCOUNT_LEAVE, actor=actor, of=account, subject=account.subject, data={"why": why})
        announce(f"account.{Action.ACCOUNT_LEAVE}", account.id)
    return True
