"""What the operator's pages of accounts show: a list by name, one account with its limits, and what was typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.installation.accounts import AccountUse, list_accounts, use_of
from app.models.account_limits import LIMIT_NAMES
from app.models.user import User
from app.models.visits import MAX_REASON
from app.views.shown.users import MadeLink

FIELDS = ("name", "owner", *LIMIT_NAMES)


class AccountList:
    """`typed` and `errors` are of the form for a new one; `made` is its owner's invitation, in the one answer."""

    def __init__(
        self,
        viewer: User,
        *,
        after: str = "",
        typed: Mapping[str, str] | None = None,
        errors: Mapping[str, str] | None = None,
        made: MadeLink | None = None,
    ) -> None:
        self.rows, self.next_after = list_accounts(after)
        self.after, self.typed, self.errors, self.made = after, typed or {}, errors or {}, made
        self.home_id = viewer.account_id

    def as_json(self) -> dict[str, Any]:
        return {"accounts": [row.as_json() for row in self.rows], "next_after": self.next_after or None}


class OneAccount:
    """Raises NotFound. `typed` are limits, or a reason to enter, that could not be stored, with their `errors`."""

    def __init__(
        self,
        viewer: User,
        account_id: int,
        *,
        typed: Mapping[str, str] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> None:
        self.use: AccountUse = use_of(account_id)
        stored = self.use.limits.as_json()
        shown = {name: "" if stored[name] is None else str(stored[name]) for name in LIMIT_NAMES}
        self.typed, self.errors = shown | dict(typed or {}), errors or {}
        self.is_home = account_id == viewer.account_id
        self.asks_code = viewer.has_second_factor
        self.max_reason = MAX_REASON

    def as_json(self) -> dict[str, Any]:
        return self.use.as_json()
