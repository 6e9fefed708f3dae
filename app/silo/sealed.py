"""Sealed text: a type of its own that shows how much it holds, never what."""

from __future__ import annotations

import os
import struct
from hashlib import sha256
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.errors import WhetstoneError
from app.values.token_mass import estimate_tokens

OWN_KEY = 0
"""The key version that a memory's text names: its own key has no others."""

_FORMAT = 1
_HEADER = struct.Struct(">BII")
_NONCE = 12
_TAG = 16
_KEY_HEADER = struct.Struct(">BI")
_KEY_BODY = _KEY_HEADER.size + _NONCE
_SEALED_KEY = _KEY_BODY + 32 + _TAG

_TEXT_HEADER, _TEXT_NONCE = slice(_HEADER.size), slice(_HEADER.size, _HEADER.size + _NONCE)
_TEXT_BODY = slice(_HEADER.size + _NONCE, None)
_SHORTEST_TEXT = _HEADER.size + _NONCE + _TAG
_OWN_HEADER = _KEY_HEADER.pack(_FORMAT, OWN_KEY)


class SealBroken(WhetstoneError):
    """Sealed text does not open: it was altered, swapped with another row's, or the key is not its own."""

    code = "seal_broken"
    http_status = 500


class Sealed:
    """Ciphertext of one text. Printed, formatted, logged, rendered or serialised: `sealed (42 tokens)`.

    At rest: format (1 byte), key version (4), token estimate (4, both big-endian), nonce (12), ciphertext and tag.
    """

    __slots__ = ("_at_rest",)

    def __init__(self, at_rest: bytes) -> None:
        self._at_rest = bytes(at_rest)

    @property
    def at_rest(self) -> bytes:
        """The bytes to store or to copy; unreadable without the agent's data key."""
        return self._at_rest

    @property
    def is_readable(self) -> bool:
        """Whether these bytes have the form of sealed text at all."""
        return len(self._at_rest) >= _SHORTEST_TEXT and self._at_rest[0] == _FORMAT

    @property
    def key_version(self) -> int:
        """Raises SealBroken."""
        if not self.is_readable:
            raise SealBroken("These bytes are not sealed text of a format that this version knows.")
        return int(_HEADER.unpack_from(self._at_rest)[1])

    @property
    def tokens(self) -> int:
        return int(_HEADER.unpack_from(self._at_rest)[2]) if self.is_readable else 0

    def __str__(self) -> str:
        return f"sealed ({self.tokens} tokens)"

    __repr__ = __str__
    __html__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sealed) and other._at_rest == self._at_rest

    def __hash__(self) -> int:
        return hash(self._at_rest)

    def __reduce__(self) -> tuple[Any, ...]:
        return (str, (str(self),))


class SealedMemory:
    """All that it takes to open what a memory says: the sealed text, its keyed hash, the memory's own key as the data
    key has sealed it, and the digest (SHA-256) by which the memory's state names the text.

    What was not found is None; it does not open. It shows itself like `Sealed`.
    """

    __slots__ = ("content_hash", "content_key", "digest", "text")

    def __init__(
        self, text: Sealed | None, content_hash: bytes | None, content_key: bytes | None, digest: bytes
    ) -> None:
        self.text, self.content_hash, self.content_key, self.digest = text, content_hash, content_key, digest

    @property
    def tokens(self) -> int:
        return self.text.tokens if self.text is not None else 0

    def check_whole(self) -> tuple[Sealed, bytes, bytes]:
        """Text, hash and key. Raises SealBroken where one is missing, or the text is not the one that is named."""
        blob = None if self.text is None else self.text.at_rest
        text, content_hash, content_key = check_named(blob, self.content_hash, self.content_key, self.digest)
        return Sealed(text), content_hash, content_key

    def __str__(self) -> str:
        return f"sealed ({self.tokens} tokens)"

    __repr__ = __str__
    __html__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return (str, (str(self),))


def check_named(
    text: bytes | None, content_hash: bytes | None, content_key: bytes | None, digest: bytes
) -> tuple[bytes, bytes, bytes]:
    """A memory's text at rest, its hash and its key. Raises SealBroken where one is missing, or `digest` names another
    text.
    """
    if text is None or content_hash is None or content_key is None:
        raise SealBroken("A sealed text is not there, or its key is not.")
    if sha256(text).digest() != digest:
        raise SealBroken
    return text, content_hash, content_key


def seal(text: str, *, key: bytes, version: int, identity: str) -> Sealed:
    """Seal `text` for the row named by `identity`; a token estimate stands beside it, authenticated."""
    header = _HEADER.pack(_FORMAT, version, estimate_tokens(text))
    nonce = os.urandom(_NONCE)
    body = AESGCM(key).encrypt(nonce, text.encode(), _associated_data(identity, header))
    return Sealed(header + nonce + body)


def unseal(sealed: Sealed, *, key: bytes, identity: str) -> str:
    """Open sealed text. Raises SealBroken when anything, the row's identity included, is not as it was sealed."""
    return unseal_bytes(sealed.at_rest, key, identity)


def unseal_bytes(blob: bytes, key: bytes, identity: str) -> str:
    """The same of text at rest, whose form the caller has looked at. Raises SealBroken."""
    associated = _associated_data(identity, blob[_TEXT_HEADER])
    try:
        return AESGCM(key).decrypt(blob[_TEXT_NONCE], blob[_TEXT_BODY], associated).decode()
    except InvalidTag:
        raise SealBroken from None


def has_own_key(blob: bytes) -> bool:
    """Whether text at rest has a form that this version knows, and names no version of a key: it has one of its own."""
    return blob.startswith(_OWN_HEADER) and len(blob) >= _SHORTEST_TEXT


def seal_key(key: bytes, *, cipher: AESGCM, version: int, identity: str) -> bytes:
    """A key sealed by another one: format (1 byte), that one's version (4), nonce (12), ciphertext and tag."""
    header, nonce = _KEY_HEADER.pack(_FORMAT, version), os.urandom(_NONCE)
    return header + nonce + cipher.encrypt(nonce, key, identity.encode())


def version_of_key(sealed: bytes) -> int:
    """The version of the key that seals this one. Raises SealBroken."""
    if len(sealed) != _SEALED_KEY or sealed[0] != _FORMAT:
        raise SealBroken("These bytes are not a sealed key of a format that this version knows.")
    return int(_KEY_HEADER.unpack_from(sealed)[1])


def unseal_key(sealed: bytes, *, cipher: AESGCM, identity: str) -> bytes:
    """Open a sealed key. Raises SealBroken."""
    try:
        return cipher.decrypt(sealed[_KEY_HEADER.size : _KEY_BODY], sealed[_KEY_BODY:], identity.encode())
    except InvalidTag:
        raise SealBroken from None


def _associated_data(identity: str, header: bytes) -> bytes:
    return identity.encode() + b"|" + header
