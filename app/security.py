"""Sign-in: Flask-Security bound to our users. The web process uses all of it, the command line only its hashing."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from flask import Flask
from flask_security import MailUtil, Security, SQLAlchemyUserDatastore, hash_password

from app.config import Settings
from app.errors import Invalid, Misconfigured, Refused
from app.extensions import db
from app.models import Account, Action, Actor, Role, User, record
from app.models.user import ROLES, WebAuthn

MIN_PASSWORD = 12

datastore = SQLAlchemyUserDatastore(db, User, Role, WebAuthn)


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
    address = email.strip().lower()
    if "@" not in address or len(address) > 254 or not address.isprintable() or " " in address:
        raise Invalid(f"{email!r} is no e-mail address.")
    if len(password) < MIN_PASSWORD:
        raise Invalid(f"The password must have at least {MIN_PASSWORD} characters.")
    if datastore.find_user(email=address) is not None:
        raise Refused(f"There is a user {address} already.")
    held = [datastore.find_or_create_role(name=role) for role in roles if role in ROLES]
    user: User = datastore.create_user(
        email=address, password=hash_password(password), roles=held, account_id=account.id, active=True
    )
    db.session.flush()
    data = {"email": address, "roles": list(roles)}
    record(Action.USER_CREATE, actor=by, of=account, subject=f"user:{user.id}", data=data)
    return user
