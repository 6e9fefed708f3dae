"""Master key pair, and each agent's data and dedup keys.

The web process holds a `MasterPublicKey` and can only seal; the worker and the command line hold a `MasterKey`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import unicodedata
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.errors import Invalid
from app.silo import keyfile
from app.silo.keyfile import RESTORE, KeyFileError
from app.silo.notes import SigningKey, installation_name
from app.silo.sealed import (
    OWN_KEY,
    SealBroken,
    Sealed,
    SealedMemory,
    check_named,
    has_own_key,
    seal,
    seal_key,
    unseal,
    unseal_bytes,
    unseal_key,
    version_of_key,
)
from app.silo.words import from_words, to_words

SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
"""RFC 9180, base mode."""

DATA = "data"
DEDUP = "dedup"

SHORTEST_PASSPHRASE = 16
"""Characters. PKCS #8 stretches a passphrase by 2,048 rounds of PBKDF2 only."""


class MasterPublicKey:
    """The half that can only seal."""

    def __init__(self, raw: bytes) -> None:
        self._public = X25519PublicKey.from_public_bytes(raw)
        self.raw = raw
        self.fingerprint = hashlib.sha256(raw).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<MasterPublicKey {self.fingerprint}>"

    @property
    def hex(self) -> str:
        """All of it: what rows and statements call a reader."""
        return self.raw.hex()

    def seal(self, plaintext: bytes, info: str) -> bytes:
        """HPKE single shot; `info` names purpose, agent and version, and must be given again to open."""
        return SUITE.encrypt(plaintext, self._public, info=info.encode())


class KeyPair:
    """What holds a private key: the master, an agent's token, or a look."""

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private
        self.public = MasterPublicKey(private.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.fingerprint}>"

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return (str, (repr(self),))

    @property
    def fingerprint(self) -> str:
        return self.public.fingerprint

    def open(self, sealed: bytes, info: str) -> bytes:
        """Open what was sealed to this key for `info`, an HPKE single shot. Raises SealBroken."""
        try:
            return SUITE.decrypt(sealed, self._private, info=info.encode())
        except (InvalidTag, ValueError):
            raise SealBroken("A key does not open: it was sealed to another key pair, or altered.") from None


class MasterKey(KeyPair):
    """The private half. Made at first start; lives in a file that only its owner can read."""

    @classmethod
    def generate(cls) -> MasterKey:
        return cls(X25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path, passphrase: str | None = None) -> MasterKey:
        """Read a key file, or a backup under its passphrase. Raises KeyFileError with what to do."""
        pem = keyfile.read_key_file(path)
        secret = passphrase.encode() if passphrase is not None and b"ENCRYPTED" in pem else None
        try:
            private = serialization.load_pem_private_key(pem, password=secret)
        except TypeError:
            raise KeyFileError(
                f"{path} is a backup under a passphrase: `./whetstone keys restore` makes a key file of it. "
                f"WHETSTONE_MASTER_KEY_FILE takes a key file only. Nothing was started and nothing was written."
            ) from None
        except ValueError:
            if secret is not None:
                raise KeyFileError(f"{path} does not open with that passphrase.", "Nothing was written.") from None
            raise KeyFileError(f"{path} is not a master key. {RESTORE}") from None
        if not isinstance(private, X25519PrivateKey):
            raise KeyFileError(f"{path} is a key of another kind. {RESTORE}")
        return cls(private)

    @classmethod
    def from_words(cls, text: str) -> MasterKey:
        """The key of its recovery words. Raises Invalid."""
        return cls(X25519PrivateKey.from_private_bytes(from_words(text)))

    @property
    def words(self) -> tuple[str, ...]:
        """The 24 recovery words: whoever has them has the key."""
        return to_words(self._private.private_bytes_raw())

    def installation_key(self, installation: str) -> SigningKey:
        """What signs this installation's statements: derived, so that whoever has the master key has it too."""
        derived = HKDF(SHA256(), 32, salt=None, info=b"whetstone/installation-key/1")
        return SigningKey(installation_name(installation), derived.derive(self._private.private_bytes_raw()))

    def save(self, path: Path) -> None:
        """Write the key file with mode 0600; never over an existing one. Raises FileExistsError or KeyFileError."""
        keyfile.write_new(path, self._encode_pem(serialization.NoEncryption()))

    def replace(self, path: Path) -> None:
        """Write the key file in the place of another one, which the caller has kept elsewhere."""
        keyfile.replace_file(path, self._encode_pem(serialization.NoEncryption()))

    def back_up(self, path: Path, passphrase: str) -> None:
        """Write a copy that opens with the passphrase only (PKCS #8); never over an existing file.

        Raises FileExistsError, KeyFileError, or Invalid: the format makes guessing cheap, so a short one is refused.
        """
        if len(passphrase) < SHORTEST_PASSPHRASE:
            raise Invalid(
                f"The passphrase must have at least {SHORTEST_PASSPHRASE} characters.", "Nothing was written."
            )
        keyfile.write_new(path, self._encode_pem(serialization.BestAvailableEncryption(passphrase.encode())))

    def _encode_pem(self, encryption: serialization.KeySerializationEncryption) -> bytes:
        return self._private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@dataclass(frozen=True)
class WrappedKey:
    """One key of an agent, sealed to one reader (its public key in hex): what the table `agent_keys` holds."""

    purpose: str
    version: int
    reader: str
    sealed: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the sealed bytes, in hex: what a statement says of them."""
        return hashlib.sha256(self.sealed).hexdigest()


class AgentKeys:
    """An agent's open keys, for the length of one request or one refinement.

    `dedup`: the key of the hashes, or what opens it. `renew` opens them all anew: who holds them while a new version is
    made reads what was sealed with it since.
    """

    def __init__(
        self,
        agent_uuid: str,
        data: dict[int, bytes],
        dedup: bytes | Callable[[], bytes],
        renew: Callable[[], AgentKeys] | None = None,
    ) -> None:
        self.agent_uuid = agent_uuid
        self._data = data
        self._held_dedup = dedup
        self._renew = renew
        self._ciphers: dict[int, AESGCM] = {}

    def __repr__(self) -> str:
        return f"<AgentKeys of {self.agent_uuid}, versions {sorted(self._data)}>"

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return (str, (repr(self),))

    @property
    def _dedup(self) -> bytes:
        """Who only reads needs none, and does not wait for it to be opened. Raises SealBroken."""
        if not isinstance(self._held_dedup, bytes):
            self._held_dedup = self._held_dedup()
        return self._held_dedup

    def with_hashes(self) -> AgentKeys:
        """Itself, for who will need hashes: with their key open. Raises SealBroken."""
        self._held_dedup = self._dedup
        return self

    @property
    def versions(self) -> list[int]:
        return sorted(self._data)

    @property
    def current_version(self) -> int:
        return max(self._data)

    def with_new_version(self) -> AgentKeys:
        """The same with one more data key, for new writes; all earlier ones stay to read with."""
        return AgentKeys(self.agent_uuid, {**self._data, self.current_version + 1: os.urandom(32)}, self._dedup)

    def seal(self, text: str, *, purpose: str, subject: str | int) -> Sealed:
        """Seal for one row: `purpose` is what it is ("memory", "consent"), `subject` the row's own id."""
        version = self.current_version
        identity = _row_identity(purpose, self.agent_uuid, subject, version)
        return seal(text, key=self._data[version], version=version, identity=identity)

    def reveal(self, sealed: Sealed, *, purpose: str, subject: str | int) -> str:
        """The one place where sealed text becomes text. Raises SealBroken."""
        version = sealed.key_version
        return unseal(
            sealed, key=self._data_key(version), identity=_row_identity(purpose, self.agent_uuid, subject, version)
        )

    def seal_memory(self, memory_id: int, text: str, content_key: bytes | None = None) -> SealedMemory:
        """Seal what a memory says, under the key of its own: `content_key` as it is stored, or else a new one.

        Raises SealBroken.
        """
        if content_key is None:
            key = os.urandom(32)
            content_key = self._seal_content_key(memory_id, key)
        else:
            key = self._open_content_key(memory_id, content_key)
        content_hash = self.content_hash(text)
        identity = _memory_identity(self.agent_uuid, memory_id, content_hash)
        sealed = seal(text, key=key, version=OWN_KEY, identity=identity)
        return SealedMemory(sealed, content_hash, content_key, hashlib.sha256(sealed.at_rest).digest())

    def reveal_memory(self, memory_id: int, sealed: SealedMemory) -> str:
        """What a memory says. Raises SealBroken, also where the text is not the one that its state names."""
        text = None if sealed.text is None else sealed.text.at_rest
        return self.reveal_columns(memory_id, text, sealed.content_hash, sealed.content_key, sealed.digest)

    def reveal_columns(
        self, memory_id: int, text: bytes | None, content_hash: bytes | None, content_key: bytes | None, digest: bytes
    ) -> str:
        """The same of the parts of a `SealedMemory` as they are stored: for ledgers of thousands, without objects."""
        text, content_hash, content_key = check_named(text, content_hash, content_key, digest)
        key = self._open_content_key(memory_id, content_key)
        if not has_own_key(text):
            raise SealBroken("These bytes are not the sealed text of a memory in a format that this version knows.")
        return unseal_bytes(text, key, _memory_identity(self.agent_uuid, memory_id, content_hash))

    def seal_about(self, memory_id: int, text: str, content_key: bytes, *, purpose: str, subject: str | int) -> Sealed:
        """Seal what quotes a memory under that memory's own key, as it is stored: erasing the memory erases this.

        `purpose` and `subject` name the row that holds it. Raises SealBroken.
        """
        identity = _quoting_identity(self.agent_uuid, memory_id, purpose, subject)
        return seal(text, key=self._open_content_key(memory_id, content_key), version=OWN_KEY, identity=identity)

    def reveal_about(
        self, memory_id: int, sealed: Sealed, content_key: bytes, *, purpose: str, subject: str | int
    ) -> str:
        """What `seal_about` sealed. Raises SealBroken."""
        if sealed.key_version != OWN_KEY:
            raise SealBroken
        identity = _quoting_identity(self.agent_uuid, memory_id, purpose, subject)
        return unseal(sealed, key=self._open_content_key(memory_id, content_key), identity=identity)

    def rewrap_content_key(self, memory_id: int, sealed: bytes) -> bytes:
        """The same key of a memory's own, sealed by the newest data key. Raises SealBroken."""
        return self._seal_content_key(memory_id, self._open_content_key(memory_id, sealed))

    def _seal_content_key(self, memory_id: int, key: bytes) -> bytes:
        version = self.current_version
        identity = _content_key_identity(self.agent_uuid, memory_id, version)
        return seal_key(key, cipher=self._cipher(version), version=version, identity=identity)

    def _open_content_key(self, memory_id: int, sealed: bytes) -> bytes:
        version = version_of_key(sealed)
        identity = _content_key_identity(self.agent_uuid, memory_id, version)
        return unseal_key(sealed, cipher=self._cipher(version), identity=identity)

    def _cipher(self, version: int) -> AESGCM:
        found = self._ciphers.get(version)
        if found is None:
            found = self._ciphers[version] = AESGCM(self._data_key(version))
        return found

    def content_hash(self, text: str) -> bytes:
        """HMAC-SHA-256, 32 bytes, equal for exact duplicates of one agent: over the text in NFC, trimmed, its line
        ends as line feeds. Inner white space and case count.
        """
        normal = unicodedata.normalize("NFC", text).strip().replace("\r\n", "\n").replace("\r", "\n")
        return hmac.new(self._dedup, normal.encode(), hashlib.sha256).digest()

    def request_hash(self, request: bytes) -> bytes:
        """HMAC-SHA-256 of one request as it was sent, 32 bytes: equal for equal requests of one agent."""
        return hmac.new(self._dedup, b"request|" + request, hashlib.sha256).digest()

    def wrap_for(self, reader: MasterPublicKey, but: Container[tuple[str, int]] = ()) -> list[WrappedKey]:
        """Every key of the agent, sealed to `reader`; less those of these purposes and versions."""
        keys = [(DATA, version, key) for version, key in sorted(self._data.items())]
        return [
            WrappedKey(purpose, version, reader.hex, reader.seal(key, _key_info(self.agent_uuid, purpose, version)))
            for purpose, version, key in [*keys, (DEDUP, 1, self._dedup)]
            if (purpose, version) not in but
        ]

    def salt(self, subject: str) -> bytes:
        """What the hashes of a statement about `subject` are salted with: known to whoever opens the agent's keys."""
        return hmac.new(self._dedup, b"salt|" + subject.encode(), hashlib.sha256).digest()

    def _data_key(self, version: int) -> bytes:
        if version not in self._data and self._renew is not None:
            self._data |= self._renew()._data
        if version not in self._data:
            raise SealBroken(f"The agent's data key of version {version} is not there.")
        return self._data[version]


def make_agent_keys(agent_uuid: str) -> AgentKeys:
    """Fresh keys for a new agent: data key version 1 and the dedup key that never rotates."""
    return AgentKeys(agent_uuid, {1: os.urandom(32)}, os.urandom(32))


def open_agent_keys(
    agent_uuid: str, wrapped: Iterable[WrappedKey], *openers: KeyPair, renew: Callable[[], AgentKeys] | None = None
) -> AgentKeys:
    """Open the keys that are sealed to one of `openers`. Raises SealBroken when there are none or one does not open;
    that of the hashes is opened when it is wanted first, and then says so.
    """
    held = {opener.public.hex: opener for opener in openers}
    data: dict[int, bytes] = {}
    dedup: Callable[[], bytes] | None = None
    for row in wrapped:
        if row.reader not in held:
            continue
        open_key = partial(held[row.reader].open, row.sealed, _key_info(agent_uuid, row.purpose, row.version))
        if row.purpose == DATA:
            data[row.version] = open_key()
        else:
            dedup = open_key
    if not data or not dedup:
        raise SealBroken(f"No keys of agent {agent_uuid} are sealed to {', '.join(held) or 'any key that is here'}.")
    return AgentKeys(agent_uuid, data, dedup, renew)


def _row_identity(purpose: str, agent_uuid: str, subject: str | int, version: int) -> str:
    return f"whetstone/{purpose}/1|{agent_uuid}|{subject}|{version}"


def _memory_identity(agent_uuid: str, memory_id: int, content_hash: bytes) -> str:
    """The dedup hash is part of it: a text whose hash was altered does not open."""
    return f"whetstone/memory/1|{agent_uuid}|{memory_id}|{OWN_KEY}|{content_hash.hex()}"


def _quoting_identity(agent_uuid: str, memory_id: int, purpose: str, subject: str | int) -> str:
    return f"{_row_identity(purpose, agent_uuid, subject, OWN_KEY)}|memory {memory_id}"


def _content_key_identity(agent_uuid: str, memory_id: int, version: int) -> str:
    return _row_identity("content-key", agent_uuid, memory_id, version)


def _key_info(agent_uuid: str, purpose: str, version: int) -> str:
    return f"whetstone/agent-key/1|{agent_uuid}|{purpose}|{version}"
