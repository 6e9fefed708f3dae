"""The second factor's acts: setting up an authenticator app, checking a code, making recovery codes, turning it off.

The web process's alone: its keys come of the secret that signs cookies. What weakens an account needs the password.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, field
from functools import cached_property

from flask import current_app
from flask_security import verify_password
from itsdangerous import BadSignature, URLSafeTimedSerializer
from qrcode import QRCode
from qrcode.constants import ERROR_CORRECT_L

from app.errors import Refused
from app.extensions import now, writing
from app.models import Account, User
from app.models.second_factor import SecondFactorIsOn
from app.security import WrongPassword
from app.silo import SealBroken, SecondFactorKey, matching_step, new_totp_secret, totp_uri
from app.silo.secondfactor import DIGITS

ISSUER = "Whetstone"
SETUP_SECONDS = 15 * 60
"""How long a secret that is shown can be confirmed by a code of it."""

RECOVERY_CODES = 10
_CODE_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Without those that look alike."""

_CODE_LENGTH, _GROUP = 16, 4
"""31 letters, 16 times: 79 bits, more than anybody guesses of a digest."""


class WrongCode(Refused):
    """This code is not right, or was used before."""

    code = "wrong_code"
    http_status = 422
    outcome = "Nothing was changed."


class SetupOver(Refused):
    """Setting up took longer than 15 minutes, or was begun by somebody else. Begin again."""

    code = "setup_over"
    outcome = "Nothing was changed."


class UnreadableSecret(Refused):
    """The key that signs cookies is another one than when your authenticator app was set up: its codes can't be
    checked. Please ask an owner of the account to take your second factor off."""

    code = "unreadable_secret"
    outcome = "You are not signed in."


@dataclass(frozen=True)
class TotpSetup:
    """A secret that is shown and not stored: `pending` is it, sealed and signed, for the form that confirms it."""

    secret: bytes = field(repr=False)
    email: str
    pending: str = field(repr=False)

    @property
    def text(self) -> str:
        """In groups of four, as apps take it by hand."""
        letters = base64.b32encode(self.secret).decode()
        return " ".join(letters[place : place + 4] for place in range(0, len(letters), 4))

    @property
    def uri(self) -> str:
        return totp_uri(self.secret, email=self.email, issuer=ISSUER)

    @cached_property
    def squares(self) -> list[list[bool]]:
        """The QR code, row by row, with its quiet border."""
        code = QRCode(error_correction=ERROR_CORRECT_L, border=4)
        code.add_data(self.uri)
        rows: list[list[bool]] = code.get_matrix()
        return rows

    @property
    def path(self) -> str:
        """The same as the `d` of an SVG path: one unit a square."""
        rows = enumerate(self.squares)
        return "".join(f"M{x} {y}h1v1h-1z" for y, row in rows for x, dark in enumerate(row) if dark)


def require_password(user: User, password: str) -> None:
    """Slow on purpose: before a transaction. Raises WrongPassword."""
    normalized = current_app.extensions["security"].password_util.normalize(password)
    if not verify_password(normalized, str(user.password)):
        raise WrongPassword


def begin_totp(user: User, password: str) -> TotpSetup:
    """A new secret, shown and not stored. Raises WrongPassword and SecondFactorIsOn."""
    if user.has_totp:
        raise SecondFactorIsOn
    require_password(user, password)
    secret = new_totp_secret()
    return TotpSetup(secret, user.email, _signer().dumps([user.id, _key().seal(secret, user_id=user.id)]))


def resume_totp(user: User, pending: str) -> TotpSetup:
    """The same once more, from what the form holds. Raises SetupOver."""
    try:
        user_id, sealed = _signer().loads(pending, max_age=SETUP_SECONDS)
        secret = _key().open(sealed, user_id=user.id) if user_id == user.id else b""
    except (BadSignature, SealBroken, TypeError, ValueError):
        secret = b""
    if not secret:
        raise SetupOver
    return TotpSetup(secret, user.email, pending)


def confirm_totp(user: User, setup: TotpSetup, code: str) -> list[str]:
    """Store the secret, which this code shows that the app has; returns recovery codes, which nobody sees again, where
    none were left.

    Raises WrongCode and SecondFactorIsOn.
    """
    step = matching_step(setup.secret, clean_code(code), now())
    if step is None:
        raise WrongCode
    account_id, user_id = user.account_id, user.id
    sealed, (codes, digests) = _key().seal(setup.secret, user_id=user_id), make_recovery_codes(user_id)
    with writing():
        account = Account.lock(account_id)
        taken = User.of_account(account, user_id).set_totp(account, sealed, step=step, digests=digests)
    return codes if taken else []


def use_code(user: User, code: str) -> str:
    """Take a code of the app or a recovery code, once; says which it was. Raises WrongCode and UnreadableSecret."""
    typed, account_id, user_id = clean_code(code), user.account_id, user.id
    with writing():
        account = Account.lock(account_id)
        user = User.of_account(account, user_id)
        if _is_of_app(typed):
            if not _use_totp(user, typed):
                raise WrongCode
            return "authenticator app"
        if not user.use_recovery_code(account, _key().digest_code(typed, user_id=user_id)):
            raise WrongCode
    return "recovery code"


def turn_off_totp(user: User, password: str) -> bool:
    """Returns whether it was on. Raises WrongPassword."""
    require_password(user, password)
    account_id, user_id = user.account_id, user.id
    with writing():
        account = Account.lock(account_id)
        return User.of_account(account, user_id).turn_off_totp(account)


def renew_recovery_codes(user: User, password: str) -> list[str]:
    """New ones, which nobody sees again, in the place of all earlier ones. Raises WrongPassword, SecondFactorIsOff."""
    require_password(user, password)
    account_id, user_id = user.account_id, user.id
    codes, digests = make_recovery_codes(user_id)
    with writing():
        account = Account.lock(account_id)
        User.of_account(account, user_id).renew_recovery_codes(account, digests)
    return codes


def make_recovery_codes(user_id: int) -> tuple[list[str], list[str]]:
    """New ones, and their digests, which are stored in their place."""
    codes, key = (
        ["-".join(_random_group() for _ in range(_CODE_LENGTH // _GROUP)) for _ in range(RECOVERY_CODES)],
        _key(),
    )
    return codes, [key.digest_code(clean_code(code), user_id=user_id) for code in codes]


def clean_code(typed: str) -> str:
    """As people copy it: with spaces, hyphens or capitals."""
    return "".join(typed[:100].split()).replace("-", "").lower()


def _is_of_app(typed: str) -> bool:
    return len(typed) == DIGITS and typed.isascii() and typed.isdigit()


def _use_totp(user: User, typed: str) -> bool:
    if not user.tf_totp_secret:
        return False
    try:
        secret = _key().open(user.tf_totp_secret, user_id=user.id)
    except SealBroken:
        raise UnreadableSecret from None
    step = matching_step(secret, typed, now())
    return step is not None and user.use_step(step)


def _random_group() -> str:
    return "".join(secrets.choice(_CODE_LETTERS) for _ in range(_GROUP))


def _key() -> SecondFactorKey:
    return SecondFactorKey(str(current_app.secret_key))


def _signer() -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(str(current_app.secret_key), salt="totp-setup")
