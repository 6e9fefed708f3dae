"""Signed notes (C2SP signed-note, Ed25519): a text, an empty line, and one line for each signature.

The format's source: https://c2sp.org/signed-note. All bytes are checked before anything of a note is used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from app.errors import WhetstoneError

ED25519 = b"\x01"
"""The format's byte for this kind of signature."""

LONGEST_NOTE = 65_536
"""Bytes, signatures included."""

MOST_SIGNATURES = 16

_CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f]")
_LINE = re.compile(r"— ([^ ]+) ([A-Za-z0-9+/]+={0,2})")
_VKEY = re.compile(r"([^+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+={0,2})")


class NoteBroken(WhetstoneError):
    """A signed note is not as it was signed, or nobody who may has signed it."""

    code = "note_broken"
    http_status = 500


@dataclass(frozen=True)
class NoteVerifier:
    """The public half of a key that signs notes: its name, and the 32 bytes of its Ed25519 public key.

    Raises NoteBroken for a name or a key that can't be one.
    """

    name: str
    public: bytes

    def __post_init__(self) -> None:
        _check_name(self.name)
        if len(self.public) != 32:
            raise NoteBroken(f"The public key of {self.name} has {len(self.public)} bytes; it must have 32.")

    @classmethod
    def parse(cls, vkey: str) -> NoteVerifier:
        """The key of its own line of text, `vkey`. Raises NoteBroken."""
        match = _VKEY.fullmatch(vkey)
        encoded = decode_base64(match[3]) if match else b""
        if match is None or encoded[:1] != ED25519:
            raise NoteBroken("A line is not the public key of a note: name+8 hex digits+base64, for Ed25519.")
        verifier = cls(match[1], encoded[1:])
        if verifier.key_id.hex() != match[2]:
            raise NoteBroken(f"The public key of {verifier.name} does not have the id that stands beside it.")
        return verifier

    @cached_property
    def key_id(self) -> bytes:
        """4 bytes that name the key together with its name; no proof of anything."""
        return hashlib.sha256(self.name.encode() + b"\n" + ED25519 + self.public).digest()[:4]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the 32 bytes in hex, for people to compare: 64 digits."""
        return hashlib.sha256(self.public).hexdigest()

    @property
    def vkey(self) -> str:
        """Name, id and key in one line, as other tools for notes take it."""
        return f"{self.name}+{self.key_id.hex()}+{base64.b64encode(ED25519 + self.public).decode()}"

    def verifies(self, text: str, signature: bytes) -> bool:
        """Whether this key made that signature (64 bytes) of exactly this text."""
        try:
            self._key.verify(signature, _encode(text))
        except InvalidSignature:
            return False
        return True

    @cached_property
    def _key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.public)


class SigningKey:
    """A key that signs notes, of its name and 32 secret bytes. Its private half is never shown or serialised."""

    def __init__(self, name: str, seed: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.verifier = NoteVerifier(name, self._private.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"<SigningKey {self.name} {self.verifier.key_id.hex()}>"

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return (str, (repr(self),))

    @property
    def name(self) -> str:
        return self.verifier.name

    def sign(self, text: str) -> bytes:
        """64 bytes: the Ed25519 signature of the text's UTF-8."""
        return self._private.sign(_encode(text))


def installation_name(installation: str) -> str:
    """The name of the installation's own key, of the installation's UUID."""
    return f"whetstone/{installation}"


def token_name(installation: str, public_id: str) -> str:
    """The name of one token's signing key."""
    return f"whetstone/{installation}/token/{public_id}"


def web_name(public: bytes) -> str:
    """The name of the key of one web process's data folder, of its public half."""
    return f"whetstone/web/{hashlib.sha256(public).hexdigest()[:16]}"


@dataclass(frozen=True)
class OpenedNote:
    """What a note says, and which of the keys that were asked about have signed it, in the order of its lines."""

    text: str
    signed_by: tuple[NoteVerifier, ...]


def sign_note(text: str, *keys: SigningKey) -> bytes:
    """The note of a text that ends with a newline, signed by each key. Raises NoteBroken where it can't be a note."""
    if not keys:
        raise NoteBroken("A note must be signed by a key.")
    if not text.endswith("\n"):
        raise NoteBroken("The text of a note must end with a newline.")
    note = _encode(text) + b"\n"
    for key in keys:
        note += _signature_line(text, key)
    _take_apart(note)
    return note


def add_signature(note: bytes, key: SigningKey) -> bytes:
    """The note with one more signature, whose ever the others are: none is verified here.

    Raises NoteBroken, also where that key has signed it already.
    """
    text, lines = _take_apart(note)
    if any(line.is_by(key.verifier) for line in lines):
        raise NoteBroken(f"{key.name} has signed this note already.")
    signed = note + _signature_line(text, key)
    _take_apart(signed)
    return signed


def open_note(note: bytes, *verifiers: NoteVerifier) -> OpenedNote:
    """What the note says, where at least one of `verifiers` has signed it and no signature of theirs is wrong.

    Lines of other keys are ignored, as the format wants it. Raises NoteBroken.
    """
    text, lines = _take_apart(note)
    known = {(verifier.name, verifier.key_id): verifier for verifier in verifiers}
    if len(known) != len(set(verifiers)):
        raise NoteBroken("Two keys have one name and one id: a note can't tell them apart.")
    signed_by = []
    for line in lines:
        verifier = known.get((line.name, line.key_id))
        if verifier is None:
            continue
        if verifier in signed_by:
            raise NoteBroken(f"{verifier.name} has signed a note twice.")
        if not verifier.verifies(text, line.signature):
            raise NoteBroken(f"The signature of {verifier.name} is not of this note: one of both was altered.")
        signed_by.append(verifier)
    if not signed_by:
        asked = ", ".join(sorted(verifier.name for verifier in verifiers)) or "any key"
        raise NoteBroken(f"A note is not signed by {asked}.")
    return OpenedNote(text, tuple(signed_by))


def claimed_signers(note: bytes) -> tuple[str, ...]:
    """The names on a note's signature lines, none of them verified: to find the keys to open it with.

    Raises NoteBroken.
    """
    return tuple(line.name for line in _take_apart(note)[1])


def decode_base64(encoded: str) -> bytes:
    """Standard Base64 in its one canonical form. Raises NoteBroken."""
    try:
        decoded = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise NoteBroken("A part of a signed text is not Base64.") from None
    if base64.b64encode(decoded).decode() != encoded:
        raise NoteBroken("A part of a signed text is Base64 that could be written otherwise.")
    return decoded


@dataclass(frozen=True)
class _SignatureLine:
    name: str
    key_id: bytes
    signature: bytes

    def is_by(self, verifier: NoteVerifier) -> bool:
        return (self.name, self.key_id) == (verifier.name, verifier.key_id)


def _take_apart(note: bytes) -> tuple[str, Sequence[_SignatureLine]]:
    if len(note) > LONGEST_NOTE:
        raise NoteBroken(f"A note has {len(note):,} bytes; {LONGEST_NOTE:,} are the most.")
    if _CONTROL.search(note):
        raise NoteBroken("A note has control characters.")
    if not note.endswith(b"\n"):
        raise NoteBroken("A note does not end with a newline: its end is missing.")
    text, separator, signatures = _decode(note).rpartition("\n\n")
    lines = signatures.removesuffix("\n").split("\n")
    if not separator or not signatures:
        raise NoteBroken("A note has no signatures.")
    if len(lines) > MOST_SIGNATURES:
        raise NoteBroken(f"A note has {len(lines)} lines of signatures; {MOST_SIGNATURES} are the most.")
    if len(set(lines)) != len(lines):
        raise NoteBroken("A note has the same signature twice.")
    return text + "\n", [_read_line(line) for line in lines]


def _read_line(line: str) -> _SignatureLine:
    match = _LINE.fullmatch(line)
    if match is None:
        raise NoteBroken("A line among a note's signatures is none.")
    _check_name(match[1])
    decoded = decode_base64(match[2])
    if len(decoded) < 5:
        raise NoteBroken(f"The signature of {match[1]} is too short.")
    return _SignatureLine(match[1], decoded[:4], decoded[4:])


def _signature_line(text: str, key: SigningKey) -> bytes:
    signature = base64.b64encode(key.verifier.key_id + key.sign(text)).decode()
    return f"— {key.name} {signature}\n".encode()


def _check_name(name: str) -> None:
    if not name or any(letter == "+" or letter < " " or letter.isspace() for letter in name):
        raise NoteBroken("The name of a key must not be empty, nor have spaces, plus signs or control characters.")


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NoteBroken("A text has characters that UTF-8 does not have.") from None


def _decode(note: bytes) -> str:
    try:
        return note.decode()
    except UnicodeDecodeError:
        raise NoteBroken("A note is not UTF-8.") from None
