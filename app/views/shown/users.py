"""What the pages of the account's people show: a list by e-mail address, one person, and links in the making."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from flask import request, url_for
from sqlalchemy import select
from sqlalchemy.orm import selectinload

from app.errors import WhetstoneError
from app.extensions import db
from app.keys.leavers import WrittenSettings, changes_made_by, tokens_shown_to
from app.models import Agent, AgentToken, LinkKind, OneTimeLink, User
from app.models.base import iso, require_row
from app.models.keyset import Keyset
from app.models.user import ADMIN, OWNER, SITE_ADMIN

ROWS = 50
CHANGES = 20
"""Changes of settings that a page lists; the audit log has them all."""

ROLE_CHOICES = (
    ("auditor", "Auditor: reads every page, changes nothing"),
    ("admin", "Admin: also runs agents, tokens and exceptions"),
    ("owner", "Owner: also manages users and limits"),
)

_BY_EMAIL = Keyset((User.email,))


@dataclass(frozen=True)
class InvitationForm:
    """`error` is the sentence beside the field that it is about."""

    email: str = ""
    role: str = ADMIN
    errors: Mapping[str, str] = field(default_factory=dict)

    def blame(self, error: WhetstoneError) -> InvitationForm:
        is_role = error.sentence.startswith("There is no role")
        return replace(self, errors={"role" if is_role else "email": error.sentence})


@dataclass(frozen=True)
class MadeLink:
    """A link in the one answer that shows it. Its address stays out of a printed form."""

    kind: LinkKind
    email: str
    expires_at: datetime
    address: str = field(repr=False)

    @classmethod
    def of(cls, link: OneTimeLink, secret: str) -> MadeLink:
        path = url_for("welcome.show", secret=secret)
        return cls(link.kind, link.email, link.expires_at, f"{request.url_root.rstrip('/')}{path}")


@dataclass(frozen=True)
class UserRow:
    user: User

    @property
    def roles(self) -> str:
        return ", ".join(role.replace("_", " ") for role in self.user.role_names) or "none"

    def as_json(self) -> dict[str, Any]:
        user = self.user
        return {
            "id": user.id,
            "email": user.email,
            "roles": user.role_names,
            "active": user.active,
            "last_sign_in_at": iso(user.last_sign_in_at),
            "two_factor": user.has_second_factor,
        }


class UserList:
    """`next_after` is the address to go on from, if there are more. `waiting` are the invitations that can be used."""

    role_choices = ROLE_CHOICES

    def __init__(
        self, viewer: User, *, after: str = "", form: InvitationForm | None = None, made: MadeLink | None = None
    ) -> None:
        self.viewer, self.after, self.form, self.made = viewer, after, form or InvitationForm(), made
        self.may_manage = viewer.may(OWNER)
        mine = (
            select(User)
            .where(User.account_id == viewer.account_id)
            .options(selectinload(User.roles), selectinload(User.passkeys))
        )
        found, last = _BY_EMAIL.load(mine, ROWS, [after] if after and after.isprintable() else None)
        self.rows = [UserRow(user) for user in found]
        self.next_after = last.email if last else ""
        open_links = OneTimeLink.open_of(viewer.account_id)
        self.waiting = [link for link in open_links if link.kind == LinkKind.INVITATION]

    def as_json(self) -> dict[str, Any]:
        users = [row.as_json() for row in self.rows]
        return {"users": users, "invitations": _links_as_json(self.waiting), "next_after": self.next_after or None}


class UserPage:
    """One person: what they may do, and what they may take along when they leave. Raises NotFound for another's."""

    role_choices = ROLE_CHOICES

    def __init__(
        self, viewer: User, user_id: int, *, made: MadeLink | None = None, errors: Mapping[str, str] | None = None
    ) -> None:
        mine = select(User).where(User.id == user_id, User.account_id == viewer.account_id)
        self.viewer, self.made, self.errors = viewer, made, errors or {}
        self.user = require_row(db.session.scalar(mine), "There is no such user in this account.")
        self.row, self.is_me = UserRow(self.user), self.user.id == viewer.id
        self.is_operator = self.user.may(SITE_ADMIN)
        self.may_manage = viewer.may(OWNER) and (not self.is_operator or viewer.may(SITE_ADMIN))
        self.tokens: Sequence[tuple[Agent, AgentToken]] = tokens_shown_to(self.user)
        self.changes: Sequence[WrittenSettings] = changes_made_by(self.user)[:CHANGES]
        open_links = OneTimeLink.open_of(viewer.account_id)
        self.links = [link for link in open_links if link.kind == LinkKind.PASSWORD and link.user_id == self.user.id]

    def as_json(self) -> dict[str, Any]:
        tokens = [{"agent": agent.name, "id": token.public_id, "name": token.name} for agent, token in self.tokens]
        changes = [{"agent": each.agent, "fields": each.fields, "at": iso(each.at)} for each in self.changes]
        links = _links_as_json(self.links)
        return self.row.as_json() | {"tokens": tokens, "settings": changes, "password_links": links}


def _links_as_json(links: Sequence[OneTimeLink]) -> list[dict[str, Any]]:
    return [
        {"id": link.id, "email": link.email, "role": link.role, "expires_at": iso(link.expires_at)} for link in links
    ]
