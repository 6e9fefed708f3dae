"""What an account has used of its limits: this month's model cost, and the refinements that workers hold now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import cast

from sqlalchemy import BindParameter, Select, Table, bindparam, case, func, select

from app.errors import Refused
from app.extensions import db, now, read_rows
from app.models.base import UtcDateTime
from app.models.model_call import ModelCall
from app.models.refinement import Refinement
from app.models.user import Account
from app.prepared import Prepared
from app.values.plural import count_nouns
from app.values.refinement_states import Mode, Status, WaitsFor

HELD = (Status.ASKING, Status.RUNNING)
"""In these states a worker carries a refinement."""


_ACCOUNTS, _CALLS = cast(Table, Account.__table__).c, cast(Table, ModelCall.__table__).c
_COST = select(func.sum(_CALLS.cost_usd)).where(
    _CALLS.account_id == _ACCOUNTS.id, _CALLS.started_at >= bindparam("month", type_=UtcDateTime)
)
MONTH_COLUMNS = (_ACCOUNTS.max_monthly_cost, case((_ACCOUNTS.max_monthly_cost.is_not(None), _COST.scalar_subquery())))
"""An account's limit, and where it has one what its calls have cost since `month`, as far as prices are known."""

_MONTH = Prepared(select(*MONTH_COLUMNS).where(_ACCOUNTS.id == bindparam("account")))
_REFINEMENTS = cast(Table, Refinement.__table__)
_LIMITS = Prepared(
    select(_ACCOUNTS.id, _ACCOUNTS.max_refinements, _ACCOUNTS.max_monthly_cost)
    .join(_REFINEMENTS, _REFINEMENTS.c.account_id == _ACCOUNTS.id)
    .where(_REFINEMENTS.c.id == bindparam("refinement"))
)


class MonthlyCostReached(Refused):
    """This month's model cost has reached the account's limit."""

    code = "monthly_cost_reached"


def month_start(at: datetime) -> datetime:
    """The first of the calendar month, UTC."""
    return at.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def next_month(at: datetime) -> datetime:
    return month_start(month_start(at) + timedelta(days=32))


def spent_accounts(at: datetime) -> Select[tuple[int]]:
    """Ids of accounts whose model cost has reached their limit in the month of a moment; none in a month to come."""
    return spent_since(month_start(at))


def spent_since(month: datetime | BindParameter[datetime]) -> Select[tuple[int]]:
    """The same of a month by its start, which may be a parameter of the statement."""
    spent = select(func.coalesce(func.sum(ModelCall.cost_usd), 0)).where(
        ModelCall.account_id == Account.id, ModelCall.started_at >= month
    )
    return select(Account.id).where(
        Account.max_monthly_cost.is_not(None), spent.scalar_subquery() >= Account.max_monthly_cost
    )


def full_accounts() -> Select[tuple[int]]:
    """Ids of accounts of which workers hold as many refinements as may go on at once."""
    held = select(func.count()).where(Refinement.account_id == Account.id, Refinement.status.in_(HELD))
    return select(Account.id).where(
        Account.max_refinements.is_not(None), held.scalar_subquery() >= Account.max_refinements
    )


def find_spent(account_id: int, at: datetime) -> tuple[Decimal, Decimal] | None:
    """The month's cost and the limit that it has reached; None while it has not, or where there is no limit."""
    ((limit, cost),) = read_rows(_MONTH, {"account": account_id, "month": month_start(at)})
    return (cost or Decimal(0), limit) if is_spent(limit, cost) else None


def is_spent(limit: Decimal | None, cost: Decimal | None) -> bool:
    """Of the values of `MONTH_COLUMNS`, in US dollars."""
    return limit is not None and (cost or 0) >= limit


def check_monthly_cost(account_id: int, mode: Mode) -> None:
    """Raises MonthlyCostReached, for what would ask a model."""
    spent = find_spent(account_id, now()) if mode is Mode.FULL else None
    if spent is not None:
        raise MonthlyCostReached(
            spent_words(*spent, now()), "Nothing was started. Removing exact duplicates only asks no model."
        )


def spent_words(cost: Decimal, limit: Decimal, at: datetime) -> str:
    """A sentence; until when, and who can change it."""
    until = next_month(at)
    return (
        f"This month's model cost of the account, ${cost:,.2f}, has reached its limit of ${limit:,.2f}: refinements "
        f"start again on {until.day} {until:%B}, or when the operator raises the limit."
    )


def find_hold(refinement: Refinement) -> WaitsFor | None:
    """Which limit of its account a queued refinement waits for; None where any worker may take it."""
    account = db.session.get_one(Account, refinement.account_id)
    if account.max_refinements is not None:
        mine = (Refinement.account_id == account.id, Refinement.status.in_(HELD))
        if (db.session.scalar(select(func.count()).where(*mine)) or 0) >= account.max_refinements:
            return WaitsFor.PLACE
    if refinement.mode == Mode.FULL and find_spent(account.id, now()) is not None:
        return WaitsFor.MONTH
    return None


def hold_words(refinement: Refinement, hold: WaitsFor) -> str:
    """A sentence for people: which limit it is, and when it goes on."""
    account = db.session.get_one(Account, refinement.account_id)
    if hold is WaitsFor.PLACE:
        most = count_nouns(account.max_refinements or 0, "refinement")
        return f"It waits: of this account at most {most} may run at once. It begins by itself when another one ends."
    spent = find_spent(account.id, now())
    return f"It waits. {spent_words(*spent, now())}" if spent else "It begins within a minute."


def may_begin(refinement_id: str) -> bool:
    """Whether a worker may take it now, by the limits of its account, which is locked where it has one.

    In the transaction that claims it: of two workers that ask at once, one counts what the other has claimed.
    """
    for account_id, most_at_once, most_cost in read_rows(_LIMITS, {"refinement": refinement_id}):
        if most_at_once is None and most_cost is None:
            return True
        Account.lock(account_id)
        return find_hold(db.session.get_one(Refinement, refinement_id)) is None
    return True


def next_waiting(refinement_id: str) -> str | None:
    """After the end of one: the oldest that waits in the same account, where that has a limit of how many at once."""
    ended = db.session.get(Refinement, refinement_id)
    if ended is None or ended.is_open or db.session.get_one(Account, ended.account_id).max_refinements is None:
        return None
    waiting = (Refinement.account_id == ended.account_id, Refinement.status == Status.QUEUED)
    return db.session.scalar(select(Refinement.id).where(*waiting).order_by(Refinement.requested_at, Refinement.id))
