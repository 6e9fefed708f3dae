"""Key pairs beside the master key. From an agent's token are derived the key pair that opens its own keys, and the
key that signs what it decides. A look's key pair lives for one request: only this request reads what is sealed to it.
"""

from __future__ import annotations

import hashlib
import re
import secrets

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.silo.keys import KeyPair, MasterPublicKey
from app.silo.notes import SigningKey, token_name

_SHAPE = re.compile(r"whet_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


class TokenKey(KeyPair):
    """The key pair of one token. Derived, never stored: HKDF-SHA-256 over the secret, salted with the token's id."""

    def __init__(self, public_id: str, secret: str) -> None:
        super().__init__(X25519PrivateKey.from_private_bytes(_derive(public_id, secret, b"whetstone/token-key/1")))
        self.public_id = public_id
        self._seed = _derive(public_id, secret, b"whetstone/token-signing-key/1")

    def signing_key(self, installation: str) -> SigningKey:
        """What signs the decisions that this token may make, in the installation of that UUID."""
        return SigningKey(token_name(installation, self.public_id), self._seed)

    @property
    def signing_public(self) -> bytes:
        """The public half of what signs, 32 bytes: the same in every installation."""
        return Ed25519PrivateKey.from_private_bytes(self._seed).public_key().public_bytes_raw()


def _derive(public_id: str, secret: str, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=public_id.encode(), info=info).derive(secret.encode())


def new_token() -> str:
    """A new token: `whet_`, 16 hex digits that name it, 256 random bits."""
    return f"whet_{secrets.token_hex(8)}_{secrets.token_urlsafe(32)}"


def parse_token(token: str) -> tuple[str, TokenKey] | None:
    """The token's public id and its key pair, or None for anything that does not look like a token."""
    match = _SHAPE.fullmatch(token)
    return (match[1], TokenKey(match[1], match[2])) if match else None


def hash_token(token: str) -> bytes:
    """What the database keeps: SHA-256; the token has 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(token.encode()).digest()


class ViewKey(KeyPair):
    """Lives as long as a request; its private half is stored nowhere."""

    def __init__(self) -> None:
        super().__init__(X25519PrivateKey.generate())

    def open_view(self, sealed: bytes, *, view_id: str) -> str:
        """What was sealed for this view. Raises SealBroken."""
        return self.open(sealed, _view_info(view_id)).decode()


def seal_view(text: str, *, view_id: str, reader: bytes) -> bytes:
    """Seal a text to the key pair of one view, `reader` being its public half."""
    return MasterPublicKey(reader).seal(text.encode(), _view_info(view_id))


def _view_info(view_id: str) -> str:
    return f"whetstone/view/1|{view_id}"
