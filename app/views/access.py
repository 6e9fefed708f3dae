"""Who asks: the signed-in user, the role that an act needs, and rows of the user's own account only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar, cast
from uuid import UUID

from flask import Blueprint, g, request, url_for
from flask.typing import ResponseReturnValue
from flask_security import current_user
from sqlalchemy import select

from app.errors import NotFound, WhetstoneError
from app.events.topics import LiveRow
from app.extensions import db, writing
from app.models import (
    AccessGrant,
    AccountVisit,
    Actor,
    Agent,
    AttentionItem,
    AuditLog,
    NoticeChannel,
    Refinement,
    Rollback,
    SettingsRequest,
    TokenRequest,
    User,
)
from app.models.base import require_row
from app.models.user import ADMIN, AUDITOR, VISITING_ROLES
from app.values.text import is_row_id
from app.views.answers import is_htmx, redirect_to, wants_json

P = ParamSpec("P")
R = TypeVar("R")
Act = Callable[..., ResponseReturnValue]
Row = TypeVar("Row", bound=LiveRow | AttentionItem | AuditLog | NoticeChannel | SettingsRequest | TokenRequest)

NEEDED_ROLE = "needed_role"
"""The attribute by which a view says which role it needs; a test reads it of every POST."""


class NotAllowed(WhetstoneError):
    """Your role in this account does not allow it. Nothing was written."""

    code = "not_allowed"
    http_status = 403


class SignedOut(WhetstoneError):
    """Nobody is signed in."""

    code = "signed_out"
    http_status = 401


def signed_in_pages(name: str, module: str) -> Blueprint:
    """A blueprint that only signed-in users of the account reach."""
    blueprint = Blueprint(name, module)
    blueprint.before_request(require_viewer)
    return blueprint


def viewer() -> User:
    """The user who asks, inside another account as an admin of that one; there is one behind `require_viewer`."""
    user = signed_in_user()
    return user if user.visit is None else cast(User, Visitor(user, user.visit))


def signed_in_user() -> User:
    """The same, as a user of their own account always: for what is about the person."""
    return cast(User, current_user._get_current_object())


@dataclass(frozen=True)
class Visitor:
    """An operator inside another account, read like a User of it; what is about the person is not at hand."""

    _user: User
    visit: AccountVisit

    @property
    def account_id(self) -> int:
        return self.visit.account_id

    @property
    def id(self) -> int:
        return self._user.id

    @property
    def email(self) -> str:
        return self._user.email

    @property
    def actor(self) -> Actor:
        return self._user.actor

    @property
    def time_zone(self) -> str | None:
        return self._user.time_zone

    def may(self, role: str) -> bool:
        return role in VISITING_ROLES


def require_viewer() -> ResponseReturnValue | None:
    """Before every page: send strangers to sign in, and refuse users who may read nothing here."""
    if not current_user.is_authenticated:
        return require_sign_in()
    user = viewer()
    if not user.may(AUDITOR):
        raise NotAllowed("Your user has no role that may read this account's pages. Ask an owner of the account.")
    g.is_for_an_admin = user.may(ADMIN)
    return None


def needs(role: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The act needs this role, or one that includes it. Otherwise 403 with a sentence."""

    def guard(act: Callable[P, R]) -> Callable[P, R]:
        @wraps(act)
        def guarded(*arguments: P.args, **named: P.kwargs) -> R:
            if not viewer().may(role):
                raise NotAllowed(f"This needs the role {role}, which you do not have here.", "Nothing was written.")
            return act(*arguments, **named)

        setattr(guarded, NEEDED_ROLE, role)
        return guarded

    return guard


def post_act(blueprint: Blueprint, rule: str, role: str = ADMIN) -> Callable[[Act], Act]:
    """Register a view for an act: a POST that needs a role."""
    return lambda act: blueprint.post(rule)(needs(role)(act))


def may_act() -> bool:
    """Whether to show buttons at all."""
    return bool(current_user.is_authenticated) and viewer().may(ADMIN)


def my_agent(agent_id: int) -> Agent:
    """An agent of the viewer's account, or NotFound."""
    return my_row(Agent, agent_id)


def my_row(model: type[Row], row_id: int | UUID) -> Row:
    """A row of the viewer's account, or NotFound."""
    return own_row(model, viewer().account_id, row_id)


@contextmanager
def changing_agent(agent_id: int) -> Iterator[tuple[Agent, Actor]]:
    """A write transaction that holds an agent, known to be of the viewer's account, and who changes it."""
    actor = viewer().actor
    with writing():
        yield Agent.lock(agent_id), actor


def row_id(typed: str) -> int:
    """An id from a form. Raises NotFound for what no row has."""
    if not is_row_id(typed):
        raise NotFound("There is nothing of that number in this account.")
    return int(typed)


def own_row(model: type[Row], account_id: int, row_id: int | str | UUID) -> Row:
    """A row of the account. Another account's and one that does not exist are alike: NotFound."""
    number = str(row_id) if isinstance(row_id, UUID) else row_id
    row = db.session.scalar(select(model).where(model.id == number, model.account_id == account_id))
    return require_row(row, f"There is no such {_NOUNS[model]}.")


_NOUNS: Mapping[type, str] = {
    Agent: "agent in this account",
    Refinement: "refinement in this account",
    Rollback: "rollback in this account",
    AccessGrant: "exception in this account",
    AttentionItem: "item in this account",
    TokenRequest: "request for a token in this account",
    SettingsRequest: "change of settings in this account",
    NoticeChannel: "channel in this account",
    AuditLog: "entry in this account's audit log",
}


def require_sign_in() -> ResponseReturnValue:
    """Send a stranger to sign in. Raises SignedOut where a program asks."""
    if wants_json():
        raise SignedOut("Nobody is signed in. Sign in first; nothing was written.")
    if is_htmx() or request.method != "GET":
        return redirect_to(url_for("security.login"))
    here = request.full_path.rstrip("?")
    return redirect_to(url_for("security.login", next=here) if here != "/" else url_for("security.login"))
