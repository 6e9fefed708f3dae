"""What the page of one's own account shows: who one is, where one is signed in, and the account's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.extensions import db
from app.models import Account, User, UserSession
from app.models.base import iso
from app.models.user import OWNER
from app.second_factor import TotpSetup

SESSIONS = 100
"""Those that the page lists."""


class AccountPage:
    """`errors` are the sentences beside fields, `typed` what stood in them.

    `setup` is an authenticator app that is being set up; `codes` are new recovery codes, in the one answer with them.
    """

    def __init__(
        self,
        viewer: User,
        *,
        errors: Mapping[str, str] | None = None,
        typed: Mapping[str, str] | None = None,
        setup: TotpSetup | None = None,
        codes: Sequence[str] = (),
    ) -> None:
        self.setup, self.codes = setup, codes
        self.user, self.key, self.errors = viewer, viewer.session_key, errors or {}
        self.account = db.session.get_one(Account, viewer.account_id)
        self.may_rename = viewer.may(OWNER)
        self.sessions = UserSession.open_of(viewer.id)[:SESSIONS]
        self.typed = {"time_zone": viewer.time_zone or "", "name": self.account.name} | dict(typed or {})

    def as_json(self) -> dict[str, Any]:
        passkeys = [
            {
                "id": each.id,
                "name": each.name,
                "host": each.host,
                "created_at": iso(each.created_at),
                "used_at": iso(each.used_at),
            }
            for each in self.user.passkeys
        ]
        sessions = [
            {
                "id": each.id,
                "browser": each.browser,
                "address": each.address,
                "signed_in_at": iso(each.signed_in_at),
                "seen_at": iso(each.seen_at),
                "this_one": each.key == self.key,
            }
            for each in self.sessions
        ]
        return {
            "email": self.user.email,
            "account": self.account.name,
            "time_zone": self.user.time_zone,
            "two_factor": self.user.has_second_factor,
            "authenticator_app": self.user.has_totp,
            "passkeys": passkeys,
            "recovery_codes_left": self.user.recovery_codes_left,
            "sessions": sessions,
        }
