"""The installation's accounts, for its operator: what each has and uses, its limits, and how a new one is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import func, select

from app.errors import Invalid, NotFound, Refused
from app.extensions import db, now, writing
from app.models import Account, Actor, Agent, ModelCall, OneTimeLink, Refinement, User
from app.models.account_limits import LIMIT_NAMES, AccountLimits, LimitsInvalid
from app.models.account_use import HELD, month_start
from app.models.base import iso
from app.models.keyset import Keyset
from app.models.user import OWNER
from app.values.text import clean_address

ROWS = 50
_BY_NAME = Keyset((Account.name,))


class AccountInvalid(Invalid):
    """An account that can't be opened. `errors` are sentences by the field that each is about."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__(" ".join(errors.values()))
        self.errors = dict(errors)


@dataclass(frozen=True)
class AccountUse:
    """What an account has and uses: `running` are in a worker's hands, `cost` is of this month, in US dollars."""

    account: Account
    agents: int
    users: int
    running: int
    cost: Decimal

    @property
    def limits(self) -> AccountLimits:
        return self.account.limits

    @property
    def reached(self) -> list[str]:
        """Which limits it has reached, in words."""
        most, at_once, dollars = vars(self.limits).values()
        return [
            *(["no more agents"] if most is not None and self.agents >= most else []),
            *(["further refinements wait"] if at_once is not None and self.running >= at_once else []),
            *(["model cost used up"] if dollars is not None and self.cost >= dollars else []),
        ]

    @property
    def state(self) -> str:
        return ", ".join(self.reached) or "within its limits"

    def as_json(self) -> dict[str, Any]:
        account = self.account
        said = {"id": account.id, "name": account.name, "demo": account.is_demo, "created_at": iso(account.created_at)}
        said |= {"agents": self.agents, "users": self.users, "running": self.running}
        said |= {"month_cost_usd": float(self.cost), "limits": self.limits.as_json()}
        return said | {"reached": self.reached}


def list_accounts(after: str = "") -> tuple[list[AccountUse], str]:
    """A page of them by name, and the name behind which the next page begins; empty for none."""
    place = [after] if after and after.isprintable() else None
    found, last = _BY_NAME.load(select(Account), ROWS, place)
    return _load_use(list(found)), last.name if last else ""


def all_accounts() -> list[AccountUse]:
    return _load_use(list(db.session.scalars(select(Account).order_by(Account.name))))


def use_of(account_id: int) -> AccountUse:
    """Of one. Raises NotFound."""
    account = db.session.get(Account, account_id)
    if account is None:
        raise NotFound("There is no such account.")
    return _load_use([account])[0]


def open_account(typed: Mapping[str, str], *, by: Actor) -> tuple[Account, OneTimeLink, str]:
    """A new account by its `name`, the address of its first `owner` and its limits, each as typed; its owner's
    invitation, and the invitation's secret. Raises AccountInvalid; nothing is written then.
    """
    errors: dict[str, str] = {}
    limits, name = AccountLimits(), typed.get("name", "")
    try:
        limits = AccountLimits.parse({each: typed.get(each, "") for each in LIMIT_NAMES})
    except LimitsInvalid as error:
        errors |= error.errors
    try:
        _require_free_address(typed.get("owner", ""))
    except (Invalid, Refused) as error:
        errors["owner"] = error.sentence
    if not name.strip():
        errors["name"] = "The account needs a name."
    if errors:
        raise AccountInvalid(errors)
    try:
        with writing():
            account = Account.create(name, limits=limits, by=by)
            link, secret = OneTimeLink.invite(account, typed["owner"], OWNER, by=by)
    except (Invalid, Refused) as error:
        raise AccountInvalid({"name": error.sentence}) from None
    return account, link, secret


def set_limits(account_id: int, typed: Mapping[str, str], *, by: Actor) -> tuple[Account, AccountLimits, bool]:
    """Returns the account, the limits that it had, and whether they changed. Raises NotFound and LimitsInvalid."""
    limits = AccountLimits.parse(typed)
    with writing():
        account = Account.lock(account_id)
        before = account.limits
        changed = account.set_limits(limits, by=by)
    return account, before, changed


def _require_free_address(typed: str) -> None:
    """A user has one account: who has one already could not use the invitation."""
    address = clean_address(typed)
    if db.session.scalar(select(User.id).where(User.email == address)) is not None:
        raise Refused(f"There is a user {address} already, and a user has one account. Give another address.")


def _load_use(accounts: Sequence[Account]) -> list[AccountUse]:
    ids = [account.id for account in accounts]
    agents = _count(Agent.account_id, ids, Agent.forgotten_at.is_(None))
    users = _count(User.account_id, ids, User.active.is_(True))
    running = _count(Refinement.account_id, ids, Refinement.status.in_(HELD))
    costs = _costs(ids, month_start(now()))
    return [
        AccountUse(
            account,
            agents.get(account.id, 0),
            users.get(account.id, 0),
            running.get(account.id, 0),
            costs.get(account.id, Decimal(0)),
        )
        for account in accounts
    ]


def _count(account_id: Any, ids: Sequence[int], *conditions: Any) -> dict[int, int]:
    query = select(account_id, func.count()).where(account_id.in_(ids), *conditions).group_by(account_id)
    return {number: int(count) for number, count in db.session.execute(query).tuples()}


def _costs(ids: Sequence[int], since: datetime) -> dict[int, Decimal]:
    mine = (ModelCall.account_id.in_(ids), ModelCall.started_at >= since)
    query = select(ModelCall.account_id, func.sum(ModelCall.cost_usd)).where(*mine).group_by(ModelCall.account_id)
    return {number: cost or Decimal(0) for number, cost in db.session.execute(query).tuples()}
