"""Passkeys' acts (WebAuthn): registering one, and signing in by one. py_webauthn does the cryptography.

The web process's alone. A challenge stands in the signed cookie of the browser that asked for it: random, for one
purpose and one user, for five minutes. That it was answered is kept with the user, so that it is good once.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from webauthn import (
    base64url_to_bytes,
    generate_authentication_options,
    generate_registration_options,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers import bytes_to_base64url, options_to_json_dict, parse_authentication_credential_json
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticationCredential,
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from app.errors import Refused
from app.extensions import db, now, writing
from app.models import Account, Passkey, User
from app.models.passkey import MAX_CREDENTIAL_ID
from app.second_factor import ISSUER, make_recovery_codes, require_password
from app.values.text import clean_name

CHALLENGE_SECONDS = 5 * 60
MAX_CREDENTIAL = 20_000
"""Characters of what a browser sends of a passkey."""

R = TypeVar("R")


class PasskeyRefused(Refused):
    """This passkey was not accepted. Try again, or sign in with your password."""

    code = "passkey_refused"
    http_status = 422
    outcome = "You are not signed in."


class UnknownPasskey(PasskeyRefused):
    """This passkey is not known here, or was removed. Sign in with your password."""

    code = "unknown_passkey"


class CountWentBack(PasskeyRefused):
    """This passkey was not accepted: it may have been copied. Sign in with your password, then remove it."""

    code = "passkey_count"


class PasskeyNotAdded(Refused):
    """The browser's answer can't be used. Try again."""

    code = "passkey_not_added"
    http_status = 422
    outcome = "No passkey was added."


class ChallengeOver(Refused):
    """This took longer than 5 minutes, or was sent before. Try again."""

    code = "challenge_over"
    outcome = "Nothing was changed."


class PasskeysUnavailable(Refused):
    """Passkeys can't be used at this address."""

    code = "passkeys_unavailable"


@dataclass(frozen=True)
class RelyingParty:
    """What a passkey is bound to: a host name (`id`), and the pages' origin, which a browser names in each answer."""

    id: str
    origin: str

    @classmethod
    def of(cls, base_url: str, asked: str) -> RelyingParty:
        """Of WHETSTONE_BASE_URL, else of the address that a browser asks for. Raises PasskeysUnavailable."""
        here, meant = _origin(asked), _origin(base_url or asked)
        host = urlsplit(meant).hostname or ""
        if _is_number(host):
            raise PasskeysUnavailable(_number_words(meant, host))
        if here != meant:
            raise PasskeysUnavailable(f"Passkeys are for {meant}: open Whetstone there.")
        if meant.startswith("http:") and not (host == "localhost" or host.endswith(".localhost")):
            raise PasskeysUnavailable(
                "Passkeys need HTTPS: open Whetstone by https://, and set WHETSTONE_BASE_URL to it."
            )
        return cls(host, meant)


@dataclass(frozen=True)
class Challenge:
    """`at` is when it was made, in microseconds. `user_id` is 0 where anybody may answer."""

    purpose: str
    value: bytes
    at: int
    user_id: int = 0
    name: str = ""

    @classmethod
    def new(cls, purpose: str, *, user_id: int = 0, name: str = "") -> Challenge:
        return cls(purpose, secrets.token_bytes(32), int(now().timestamp() * 1_000_000), user_id, name)

    def as_cookie(self) -> list[Any]:
        return [self.purpose, bytes_to_base64url(self.value), self.at, self.user_id, self.name]

    @classmethod
    def of_cookie(cls, kept: object, purpose: str, *, user_id: int = 0) -> Challenge:
        """The one that was kept in the cookie. Raises ChallengeOver, also for another purpose or user."""
        match kept:
            case [str() as meant, str() as value, int() as at, int() as owner, str() as name]:
                age = now().timestamp() - at / 1_000_000
                if (meant, owner) == (purpose, user_id) and age <= CHALLENGE_SECONDS:
                    return cls(meant, base64url_to_bytes(value), at, owner, name)
        raise ChallengeOver


def begin_registration(user: User, password: str, name: str, party: RelyingParty) -> tuple[Challenge, dict[str, Any]]:
    """A challenge, and what the browser is asked. Raises WrongPassword, and Invalid for the name."""
    cleaned = clean_name(name)
    require_password(user, password)
    challenge = Challenge.new("register", user_id=user.id, name=cleaned)
    options = generate_registration_options(
        rp_id=party.id,
        rp_name=ISSUER,
        user_id=user.passkey_handle,
        user_name=user.email,
        challenge=challenge.value,
        timeout=CHALLENGE_SECONDS * 1000,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED, user_verification=UserVerificationRequirement.REQUIRED
        ),
        exclude_credentials=[_descriptor(each) for each in user.passkeys],
    )
    return challenge, options_to_json_dict(options)


def register(user: User, challenge: Challenge, credential: str, party: RelyingParty) -> list[str]:
    """Store the passkey; returns recovery codes, which nobody sees again, where none were left.

    Raises PasskeyNotAdded, PasskeyTaken, ChallengeOver, and Refused for too many or a name twice.
    """
    verified = _parsed(
        PasskeyNotAdded,
        lambda: verify_registration_response(
            credential=credential[:MAX_CREDENTIAL],
            expected_challenge=challenge.value,
            expected_rp_id=party.id,
            expected_origin=party.origin,
            require_user_verification=True,
        ),
    )
    credential_id = bytes_to_base64url(verified.credential_id)
    if len(credential_id) > MAX_CREDENTIAL_ID:
        raise PasskeyNotAdded
    made = Passkey(credential_id=credential_id, public_key=verified.credential_public_key, host=party.id)
    made.name, made.sign_count = challenge.name, verified.sign_count
    account_id, user_id = user.account_id, user.id
    codes, digests = make_recovery_codes(user_id)
    with writing():
        account = Account.lock(account_id)
        user = User.of_account(account, user_id)
        if not user.use_challenge(challenge.at):
            raise ChallengeOver
        return codes if user.add_passkey(account, made, digests=digests) else []


def remove(user: User, password: str, passkey_id: int) -> str:
    """Returns its name. Raises NotFound for one that is not theirs, and WrongPassword."""
    Passkey.of_user(user, passkey_id)
    require_password(user, password)
    account_id, user_id = user.account_id, user.id
    with writing():
        account = Account.lock(account_id)
        user = User.of_account(account, user_id)
        passkey = Passkey.of_user(user, passkey_id)
        user.remove_passkey(account, passkey)
        return passkey.name


def begin_sign_in(party: RelyingParty, user: User | None = None) -> tuple[Challenge, dict[str, Any]]:
    """For whoever has a passkey that verifies its user; or for this user, whose password was right."""
    challenge = Challenge.new("second step", user_id=user.id) if user else Challenge.new("sign in")
    options = generate_authentication_options(
        rp_id=party.id,
        challenge=challenge.value,
        timeout=CHALLENGE_SECONDS * 1000,
        allow_credentials=[_descriptor(each) for each in user.passkeys if each.host == party.id] if user else None,
        user_verification=UserVerificationRequirement.PREFERRED if user else UserVerificationRequirement.REQUIRED,
    )
    return challenge, options_to_json_dict(options)


@dataclass(frozen=True)
class Assertion:
    """A browser's answer to the challenge of a sign-in, before anything of it is believed."""

    credential: AuthenticationCredential

    @classmethod
    def parse(cls, sent: str) -> Assertion:
        """Raises PasskeyRefused."""
        return cls(_parsed(PasskeyRefused, lambda: parse_authentication_credential_json(sent[:MAX_CREDENTIAL])))

    def find_user(self) -> User | None:
        """Who has the passkey that it names, active or not."""
        passkey = Passkey.find(bytes_to_base64url(self.credential.raw_id))
        return db.session.get(User, passkey.user_id) if passkey else None

    def accept(self, challenge: Challenge, user: User, party: RelyingParty) -> None:
        """Take it as this user's: once. Without a password before it, the device must have verified who holds it.

        Raises UnknownPasskey, PasskeyRefused, CountWentBack and ChallengeOver.
        """
        passkey = Passkey.find(bytes_to_base64url(self.credential.raw_id))
        if passkey is None or passkey.user_id != user.id or not user.active or passkey.host != party.id:
            raise UnknownPasskey
        alone, handle = challenge.purpose == "sign in", self.credential.response.user_handle
        if handle != user.passkey_handle and (alone or handle):
            raise PasskeyRefused
        count = self._verify(challenge, passkey, party, alone=alone)
        account_id, user_id, credential_id = user.account_id, user.id, passkey.credential_id
        with writing():
            user = User.of_account(Account.lock(account_id), user_id)
            found = Passkey.find(credential_id)
            if found is None or not user.active:
                raise UnknownPasskey
            if not user.use_challenge(challenge.at):
                raise ChallengeOver
            if not found.use(count):
                raise CountWentBack

    def _verify(self, challenge: Challenge, passkey: Passkey, party: RelyingParty, *, alone: bool) -> int:
        """The device's count. That it went forward is seen later, behind the account's lock."""
        verified = _parsed(
            PasskeyRefused,
            lambda: verify_authentication_response(
                credential=self.credential,
                expected_challenge=challenge.value,
                expected_rp_id=party.id,
                expected_origin=party.origin,
                credential_public_key=passkey.public_key,
                credential_current_sign_count=0,
                require_user_verification=alone,
            ),
        )
        return verified.new_sign_count


def _parsed(refusal: type[Refused], read: Callable[[], R]) -> R:
    """Whatever is wrong with what was sent is one refusal: py_webauthn lets some errors of its parsers through."""
    try:
        return read()
    except (WebAuthnException, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError):
        raise refusal from None


def _descriptor(passkey: Passkey) -> PublicKeyCredentialDescriptor:
    return PublicKeyCredentialDescriptor(id=base64url_to_bytes(passkey.credential_id))


def _origin(address: str) -> str:
    """As browsers name it: without the port that goes without saying."""
    parts = urlsplit(address.lower())
    return f"{parts.scheme}://{parts.netloc}".removesuffix({"https": ":443", "http": ":80"}.get(parts.scheme, ""))


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _number_words(origin: str, host: str) -> str:
    """A passkey is bound to a name: browsers refuse numbers."""
    if not ipaddress.ip_address(host).is_loopback:
        return (
            "Passkeys need a host name and HTTPS, not a number: set WHETSTONE_BASE_URL to the name, and open it there."
        )
    port = urlsplit(origin).port
    named = f"http://localhost{f':{port}' if port else ''}"
    return f"Passkeys need a host name, not a number: open {named}, or set WHETSTONE_BASE_URL."
