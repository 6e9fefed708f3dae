"""What a second factor is checked with: the secret of an authenticator app, sealed, and digests of recovery codes.

Both keys are derived from the secret that signs the web processes' cookies, each for its own purpose, and never stored.
Who reads the database learns no secret and no code; who writes it can't give one user another one's secret.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from datetime import datetime

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.twofactor.hotp import HOTP
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from app.silo.sealed import SealBroken

DIGITS, STEP_SECONDS = 6, 30
"""What every authenticator app takes without being told (RFC 6238)."""

_SECRET_BYTES, _NONCE_BYTES = 20, 12
_VERSION = "totp1:"


class SecondFactorKey:
    """What seals and opens the secrets of authenticator apps, and digests recovery codes."""

    def __init__(self, session_secret: str) -> None:
        self._sealing = AESGCM(_derive(session_secret, b"whetstone/second-factor/seal/1"))
        self._digesting = _derive(session_secret, b"whetstone/second-factor/recovery-code/1")

    def seal(self, secret: bytes, *, user_id: int) -> str:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._sealing.encrypt(nonce, secret, _owner(user_id))
        return _VERSION + base64.b64encode(nonce + sealed).decode()

    def open(self, sealed: str, *, user_id: int) -> bytes:
        """Raises SealBroken: of another user, altered, or sealed while cookies were signed by another key."""
        try:
            body = base64.b64decode(sealed.removeprefix(_VERSION), validate=True)
            return self._sealing.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], _owner(user_id))
        except (InvalidTag, ValueError):
            raise SealBroken("The secret of this user's authenticator app does not open.") from None

    def digest_code(self, code: str, *, user_id: int) -> str:
        """Of a recovery code, for this user alone."""
        return hmac.digest(
            self._digesting, _owner(user_id) + b"|" + code.encode(errors="surrogatepass"), "sha256"
        ).hex()


def new_totp_secret() -> bytes:
    return secrets.token_bytes(_SECRET_BYTES)


def totp_uri(secret: bytes, *, email: str, issuer: str) -> str:
    """What a QR code for authenticator apps holds."""
    return TOTP(secret, DIGITS, SHA1(), STEP_SECONDS).get_provisioning_uri(email, issuer)  # noqa: S303 - RFC 6238


def matching_step(secret: bytes, code: str, at: datetime) -> int | None:
    """The 30-second step of this code, if it is the present one or one beside it: clocks differ a little."""
    generator = HOTP(secret, DIGITS, SHA1())  # noqa: S303 - RFC 4226
    present = int(at.timestamp()) // STEP_SECONDS
    steps = [step for step in (present, present - 1, present + 1) if _is_code(generator, step, code)]
    return steps[0] if steps else None


def _is_code(generator: HOTP, step: int, code: str) -> bool:
    return hmac.compare_digest(generator.generate(step), code.encode(errors="surrogatepass"))


def _derive(session_secret: str, purpose: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=purpose).derive(session_secret.encode())


def _owner(user_id: int) -> bytes:
    return f"user:{user_id}".encode()
