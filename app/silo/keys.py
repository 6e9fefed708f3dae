"""Master key pair, and each agent's data and dedup keys.

The web process holds a `MasterPublicKey` and can only seal; the worker and the command line hold a `MasterKey`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from app.errors import Misconfigured
from app.silo.sealed import SealBroken, Sealed, seal, unseal

SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
"""RFC 9180, base mode."""

DATA = "data"
DEDUP = "dedup"


class KeyFileError(Misconfigured):
    """The master key can't be used; nothing was written."""

    code = "master_key"


class Opener(Protocol):
    """Something that holds a private key: the master, or an agent's token."""

    @property
    def fingerprint(self) -> str: ...

    def open(self, sealed: bytes, info: str) -> bytes:
        """Open what was sealed to this key for `info`. Raises SealBroken."""


class MasterPublicKey:
    """The half that can only seal."""

    def __init__(self, raw: bytes) -> None:
        self._public = X25519PublicKey.from_public_bytes(raw)
        self.raw = raw
        self.fingerprint = hashlib.sha256(raw).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<MasterPublicKey {self.fingerprint}>"

    def seal(self, plaintext: bytes, info: str) -> bytes:
        """HPKE single shot; `info` names purpose, agent and version, and must be given again to open."""
        return SUITE.encrypt(plaintext, self._public, info=info.encode())


class MasterKey:
    """The private half. Made at first start; lives in a file that only its owner can read."""

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private
        self.public = MasterPublicKey(private.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        return f"<MasterKey {self.fingerprint}>"

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return (str, (repr(self),))

    @property
    def fingerprint(self) -> str:
        return self.public.fingerprint

    @classmethod
    def generate(cls) -> MasterKey:
        return cls(X25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> MasterKey:
        """Read the key file. Raises KeyFileError with what to do."""
        try:
            pem = path.read_bytes()
        except FileNotFoundError:
            raise KeyFileError(f"The master key {path} is missing. {_RESTORE}") from None
        except OSError as error:
            raise KeyFileError(f"The master key {path} can't be read ({error.strerror}). {_RESTORE}") from None
        try:
            private = serialization.load_pem_private_key(pem, password=None)
        except ValueError:
            raise KeyFileError(f"{path} is not a master key. {_RESTORE}") from None
        if not isinstance(private, X25519PrivateKey):
            raise KeyFileError(f"{path} is a key of another kind. {_RESTORE}")
        return cls(private)

    def save(self, path: Path) -> None:
        """Write the key file with mode 0600; never over an existing one."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        pem = self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())

    def open(self, sealed: bytes, info: str) -> bytes:
        return hpke_open(sealed, self._private, info)


_RESTORE = (
    "Put the backup of the key back, or point WHETSTONE_MASTER_KEY_FILE at it. "
    "Without it the memories in this database can't be read. Nothing was started and nothing was written."
)


def hpke_open(sealed: bytes, private: X25519PrivateKey, info: str) -> bytes:
    """Open an HPKE single shot. Raises SealBroken."""
    try:
        return SUITE.decrypt(sealed, private, info=info.encode())
    except (InvalidTag, ValueError):
        raise SealBroken("A key does not open: it was sealed to another key pair, or altered.") from None


@dataclass(frozen=True)
class WrappedKey:
    """One key of an agent, sealed to one reader: what the table `agent_keys` holds."""

    purpose: str
    version: int
    reader: str
    sealed: bytes


class AgentKeys:
    """An agent's open keys, for the length of one request or one refinement."""

    def __init__(self, agent_uuid: str, data: dict[int, bytes], dedup: bytes) -> None:
        self.agent_uuid = agent_uuid
        self._data = data
        self._dedup = dedup

    def __repr__(self) -> str:
        return f"<AgentKeys of {self.agent_uuid}, versions {sorted(self._data)}>"

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return (str, (repr(self),))

    @property
    def current_version(self) -> int:
        return max(self._data)

    def seal(self, text: str, *, purpose: str, subject: str | int) -> Sealed:
        """Seal for one row: `purpose` is what it is ("memory", "consent"), `subject` the row's own id."""
        version = self.current_version
        identity = _identity(purpose, self.agent_uuid, subject, version)
        return seal(text, key=self._data[version], version=version, identity=identity)

    def reveal(self, sealed: Sealed, *, purpose: str, subject: str | int) -> str:
        """The one place where sealed text becomes text. Raises SealBroken."""
        key = self._data.get(sealed.key_version)
        if key is None:
            raise SealBroken(f"The agent's data key of version {sealed.key_version} is not there.")
        return unseal(sealed, key=key, identity=_identity(purpose, self.agent_uuid, subject, sealed.key_version))

    def seal_memory(self, memory_id: int, text: str) -> Sealed:
        return self.seal(text, purpose="memory", subject=memory_id)

    def reveal_memory(self, memory_id: int, sealed: Sealed) -> str:
        return self.reveal(sealed, purpose="memory", subject=memory_id)

    def content_hash(self, text: str) -> bytes:
        """HMAC-SHA-256 over the trimmed, lower-cased, NFC text: equal for exact duplicates of one agent, 32 bytes."""
        normal = unicodedata.normalize("NFC", text.strip().lower())
        return hmac.new(self._dedup, normal.encode(), hashlib.sha256).digest()

    def wrap_for(self, reader: MasterPublicKey) -> list[WrappedKey]:
        """Every key of the agent, sealed to `reader`."""
        keys = [(DATA, version, key) for version, key in sorted(self._data.items())]
        return [
            WrappedKey(purpose, version, reader.fingerprint, reader.seal(key, self._info(purpose, version)))
            for purpose, version, key in [*keys, (DEDUP, 1, self._dedup)]
        ]

    def _info(self, purpose: str, version: int) -> str:
        return _key_info(self.agent_uuid, purpose, version)


def make_agent_keys(agent_uuid: str) -> AgentKeys:
    """Fresh keys for a new agent: data key version 1 and the dedup key that never rotates."""
    return AgentKeys(agent_uuid, {1: os.urandom(32)}, os.urandom(32))


def open_agent_keys(agent_uuid: str, wrapped: Iterable[WrappedKey], opener: Opener) -> AgentKeys:
    """Open the keys that are sealed to `opener`. Raises SealBroken when there are none or one does not open."""
    data: dict[int, bytes] = {}
    dedup = b""
    for row in wrapped:
        if row.reader != opener.fingerprint:
            continue
        key = opener.open(row.sealed, _key_info(agent_uuid, row.purpose, row.version))
        if row.purpose == DATA:
            data[row.version] = key
        else:
            dedup = key
    if not data or not dedup:
        raise SealBroken(f"No keys of agent {agent_uuid} are sealed to {opener.fingerprint}.")
    return AgentKeys(agent_uuid, data, dedup)


def _identity(purpose: str, agent_uuid: str, subject: str | int, version: int) -> str:
    return f"whetstone/{purpose}/1|{agent_uuid}|{subject}|{version}"


def _key_info(agent_uuid: str, purpose: str, version: int) -> str:
    return f"whetstone/agent-key/1|{agent_uuid}|{purpose}|{version}"
