"""Who asks: the signed-in user, the role that an act needs, and rows of the user's own account only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar, cast
from uuid import UUID

from flask import Blueprint, request, url_for
from flask.typing import ResponseReturnValue
from flask_security import current_user
from sqlalchemy import select

from app.errors import NotFound, WhetstoneError
from app.events.topics import LiveRow
from app.extensions import db
from app.models import AccessGrant, Agent, AttentionItem, AuditLog, Refinement, Rollback, User
from app.models.user import ADMIN, AUDITOR
from app.views.answers import is_htmx, redirect_to, wants_json

P = ParamSpec("P")
R = TypeVar("R")
Row = TypeVar("Row", bound=LiveRow)

MOST_DIGITS = 18
"""Of an id: what is longer is no number that a database has."""

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
    """The user who asks; there is one behind `require_viewer`."""
    return cast(User, current_user._get_current_object())


def require_viewer() -> ResponseReturnValue | None:
    """Before every page: send strangers to sign in, and refuse users who may read nothing here."""
    if not current_user.is_authenticated:
        return _ask_to_sign_in()
    if not viewer().may(AUDITOR):
        raise NotAllowed("Your user has no role that may read this account's pages. Ask an owner of the account.")
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


def may_act() -> bool:
    """Whether to show buttons at all."""
    return bool(current_user.is_authenticated) and viewer().may(ADMIN)


def my_agent(agent_id: int) -> Agent:
    """An agent of the viewer's account, or NotFound."""
    return own_row(Agent, viewer().account_id, agent_id)


def my_refinement(refinement_id: UUID) -> Refinement:
    """A refinement of the viewer's account, or NotFound."""
    return own_row(Refinement, viewer().account_id, refinement_id)


def my_rollback(rollback_id: UUID) -> Rollback:
    """A rollback of the viewer's account, or NotFound."""
    return own_row(Rollback, viewer().account_id, rollback_id)


def my_entry(entry_id: int) -> AuditLog:
    """An entry of the account's audit log, or NotFound."""
    mine = (AuditLog.id == entry_id, AuditLog.account_id == viewer().account_id)
    entry = db.session.scalar(select(AuditLog).where(*mine))
    if entry is None:
        raise NotFound("There is no such entry in this account's audit log.")
    return entry


def my_attention_item(item_id: int) -> AttentionItem:
    """Something that waits for the admins of the viewer's account, or NotFound."""
    mine = (AttentionItem.id == item_id, AttentionItem.account_id == viewer().account_id)
    item = db.session.scalar(AttentionItem.newest(*mine))
    if item is None:
        raise NotFound("There is no such item in this account.")
    return item


def my_exception(exception_id: UUID) -> AccessGrant:
    """A mechanic's exception of the viewer's account, or NotFound."""
    return own_row(AccessGrant, viewer().account_id, exception_id)


def row_id(typed: str) -> int:
    """An id from a form. Raises NotFound for what no row has: no plain number, or too long a one."""
    if not (typed.isascii() and typed.isdigit() and len(typed) <= MOST_DIGITS):
        raise NotFound("There is nothing of that number in this account.")
    return int(typed)


def own_row(model: type[Row], account_id: int, row_id: int | str | UUID) -> Row:
    """A row of the account. Another account's and one that does not exist are alike: NotFound."""
    number = str(row_id) if isinstance(row_id, UUID) else row_id
    row = db.session.scalar(select(model).where(model.id == number, model.account_id == account_id))
    if row is None:
        raise NotFound(f"There is no such {_NOUNS[model]} in this account.")
    return row


_NOUNS: Mapping[type, str] = {Agent: "agent", Refinement: "refinement", Rollback: "rollback", AccessGrant: "exception"}


def _ask_to_sign_in() -> ResponseReturnValue:
    if wants_json():
        raise SignedOut("Nobody is signed in. Sign in first; nothing was written.")
    if is_htmx() or request.method != "GET":
        return redirect_to(url_for("security.login"))
    here = request.full_path.rstrip("?")
    return redirect_to(url_for("security.login", next=here) if here != "/" else url_for("security.login"))
