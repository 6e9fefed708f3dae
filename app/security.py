"""Sign-in: Flask-Security bound to our users. The web process uses all of it, the command line only its hashing."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from flask import Flask, current_app
from flask_security import MailUtil, Security, SQLAlchemyUserDatastore, hash_password, verify_password
from sqlalchemy.exc import IntegrityError

from app.config import Settings
from app.errors import Invalid, Misconfigured, Refused
from app.extensions import db, writing
from app.grants.endings import revoke_exceptions_of
from app.models import Account, Action, Actor, ActorKind, OneTimeLink, Role, User, record
from app.models.user import ROLES
from app.values.text import clean_address, clean_text

MIN_PASSWORD, MAX_PASSWORD = 12, 128

datastore = SQLAlchemyUserDatastore(db, User, Role)


class WeakPassword(Invalid):
    """The password can't be used."""


class WrongPassword(Refused):
    """That is not your password."""

    http_status = 422
    outcome = "Nothing was changed."


class Addresses(MailUtil):  # type: ignore[misc]
    """Looks up at sign-in what `create_user` stored: its library would refuse names such as `ann@office.local`."""

    def normalize(self, email: str) -> str:
        return email.strip().lower()


def init_app(app: Flask, *, views: bool) -> Security:
    """Bind Flask-Security. `views` registers its sign-in pages: for the web process only."""
    settings: Settings = app.extensions["settings"]
    app.config.update(
        SECRET_KEY=session_secret(settings) if views else "no sessions here",
        SECURITY_PASSWORD_HASH="argon2",  # noqa: S106 - an algorithm's name
        SECURITY_PASSWORD_SINGLE_HASH=["argon2"],
        SECURITY_PASSWORD_SALT="unused with a single hash",  # noqa: S106 - says so
        SECURITY_PASSWORD_LENGTH_MIN=MIN_PASSWORD,
        SECURITY_REGISTERABLE=False,
        SECURITY_SEND_PASSWORD_CHANGE_EMAIL=False,
        SECURITY_URL_PREFIX=None,
    )
    return Security(app, datastore, register_blueprint=views, mail_util_cls=Addresses)


def session_secret(settings: Settings) -> str:
    """The key that signs cookies: made once, kept in the data dir, readable by its owner only."""
    path = settings.data / "keys" / "session.key"
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with suppress(FileExistsError), os.fdopen(os.open(path, flags, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(48))
    secret = path.read_text().strip()
    if len(secret) < 32:
        raise Misconfigured(
            f"{path} is too short to sign cookies; remove it and start again (everybody signs in anew)."
        )
    return secret


def create_user(account: Account, email: str, password: str, *, roles: tuple[str, ...], by: Actor) -> User:
    """A new user of `account`, whose row the caller has locked. Raises Invalid; Refused for an address in use."""
    return _add_user(account, clean_address(email), hash_new_password(password), roles=roles, by=by)


def hash_new_password(password: str, again: str | None = None) -> str:
    """As it is stored: normalized as a sign-in does it. `again`: typed a second time. Raises WeakPassword.

    It takes long on purpose: call it before a transaction.
    """
    problems, normalized = current_app.extensions["security"].password_util.validate(
        clean_text(password, what="password"), False
    )
    if problems:
        limit = f"at least {MIN_PASSWORD}" if len(password) < MIN_PASSWORD else f"at most {MAX_PASSWORD}"
        raise WeakPassword(f"The password must have {limit} characters.")
    if again is not None and again != password:
        raise WeakPassword("The two passwords are not the same.")
    hashed: str = hash_password(normalized)
    return hashed


def accept_invitation(secret: str, password: str, again: str) -> User:
    """Make the invited user. Raises NotFound, LinkOver, WeakPassword, and Refused for an address in use."""
    link = OneTimeLink.find(secret)
    hashed = hash_new_password(password, again)
    with writing():
        account = Account.lock(link.account_id)
        link = OneTimeLink.lock_found(link)
        return _add_user(account, link.email, hashed, roles=(str(link.role),), by=_guest(link), link=link)


def use_password_link(secret: str, password: str, again: str) -> User:
    """Set a new password by a link: sessions end, and exceptions, which are for the person who asked for them.

    Raises NotFound, LinkOver, WeakPassword, and Refused for who was deactivated since.
    """
    link = OneTimeLink.find(secret)
    hashed = hash_new_password(password, again)
    revoke_exceptions_of(link.user_id or 0, by=_guest(link), why="a link set a new password of its user")
    with writing():
        account = Account.lock(link.account_id)
        link = OneTimeLink.lock_found(link)
        user = User.of_account(account, link.user_id or 0)
        if not user.active:
            raise Refused(f"{user.email} is deactivated. Ask an owner of the account.", "Nothing was changed.")
        link.mark_used(user)
        user.set_password(account, hashed, by=user.actor, how="by a one-time link")
    return user


def change_password(user: User, old: str, password: str, again: str, *, keeping: str = "") -> User:
    """One's own, by the old one; the session of the key `keeping` goes on. Raises WrongPassword and WeakPassword."""
    account_id, user_id, known = user.account_id, user.id, str(user.password)
    if not verify_password(current_app.extensions["security"].password_util.normalize(old), known):
        raise WrongPassword
    hashed = hash_new_password(password, again)
    with writing():
        account = Account.lock(account_id)
        user = User.of_account(account, user_id)
        if user.password != known:
            raise WrongPassword
        user.set_password(account, hashed, by=user.actor, how="by the old one", keeping=keeping)
    return user


def _guest(link: OneTimeLink) -> Actor:
    return Actor(ActorKind.USER, link.email, link.user_id)


def _add_user(
    account: Account, address: str, hashed: str, *, roles: tuple[str, ...], by: Actor, link: OneTimeLink | None = None
) -> User:
    if datastore.find_user(email=address) is not None:
        raise Refused(f"There is a user {address} already.", "Nothing was changed.")
    held = [Role.named(role) for role in roles if role in ROLES]
    try:
        user: User = datastore.create_user(
            email=address, password=hashed, roles=held, account_id=account.id, active=True
        )
        db.session.flush()
    except IntegrityError:
        raise Refused(f"There is a user {address} already.", "Nothing was changed.") from None
    if link is not None:
        link.mark_used(user)
    data = {"email": address, "roles": list(roles)} | ({"link": link.id} if link else {})
    record(Action.USER_CREATE, actor=by, of=account, subject=user.subject, data=data)
    return user
