"""What the web process keeps on its own disk: the key that signs its requests, and the installation that it trusts.

An attacker who writes the database writes neither of the two files.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.errors import Misconfigured
from app.silo import keyfile
from app.silo.keys import MasterPublicKey
from app.silo.notes import NoteVerifier, SigningKey, installation_name, web_name
from app.strictjson import no_duplicates

_FORMAT = 1
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_KEY = re.compile(r"[0-9a-f]{64}")

MAKE_ANEW = (
    "Put its backup back, or remove it: the web process makes a new one when it starts. `./whetstone up` enrolls that; "
    "on several hosts `./whetstone keys enroll KEY` does. Nothing was started and nothing was written."
)

PIN_ANEW = (
    "Put its backup back. Remove it only where you trust what the database holds now: the web process pins that when "
    "it starts. Nothing was started and nothing was written."
)


class WebKeyError(Misconfigured):
    """The web process's own key can't be used; nothing was written."""

    code = "web_key"


class PinnedFileError(Misconfigured):
    """The file that names the installation to trust can't be used; nothing was written."""

    code = "pinned_installation"


class WebKey:
    """The file of the web process's signing key: made at its first start, mode 0600."""

    @classmethod
    def load_or_make(cls, path: Path) -> SigningKey:
        """The key of that file, made now where there is none. Raises WebKeyError or KeyFileError with what to do."""
        if not path.exists():
            cls._make(path)
        try:
            pem = path.read_bytes()
        except OSError as error:
            raise WebKeyError(f"The web key {path} can't be read ({error.strerror}). {MAKE_ANEW}") from None
        return cls._read(pem, path)

    @staticmethod
    def _make(path: Path) -> None:
        pem = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        try:
            keyfile.write_new(path, pem)
        except FileExistsError:
            return  # another web process was quicker: its key is this one's too

    @staticmethod
    def _read(pem: bytes, path: Path) -> SigningKey:
        try:
            private = serialization.load_pem_private_key(pem, password=None)
        except (TypeError, ValueError):
            raise WebKeyError(f"{path} is not a web key: it is empty, cut off or altered. {MAKE_ANEW}") from None
        if not isinstance(private, Ed25519PrivateKey):
            raise WebKeyError(f"{path} is a key of another kind. {MAKE_ANEW}")
        return SigningKey(web_name(private.public_key().public_bytes_raw()), private.private_bytes_raw())


@dataclass(frozen=True)
class PinnedInstallation:
    """The installation that the web process trusts: its UUID, and its master and signing public keys, 32 bytes each."""

    installation: str
    master_public: bytes
    signing_public: bytes

    @classmethod
    def load(cls, path: Path) -> PinnedInstallation:
        """Raises PinnedFileError with what to do, also where there is no such file."""
        try:
            body = path.read_bytes()
        except FileNotFoundError:
            raise PinnedFileError(f"{path}, which names the installation to trust, is missing. {PIN_ANEW}") from None
        except OSError as error:
            raise PinnedFileError(f"{path} can't be read ({error.strerror}). {PIN_ANEW}") from None
        try:
            return cls._read(body)
        except (ValueError, RecursionError):
            raise PinnedFileError(
                f"{path} does not name an installation: it is empty, cut off or altered. {PIN_ANEW}"
            ) from None

    def save(self, path: Path) -> None:
        """Write the file with mode 0600; never over an existing one. Raises FileExistsError or KeyFileError."""
        keyfile.write_new(path, self._encode())

    def replace(self, path: Path) -> None:
        """Write the file in the place of the one that is there. Raises KeyFileError."""
        keyfile.replace_file(path, self._encode())

    @property
    def master(self) -> MasterPublicKey:
        return MasterPublicKey(self.master_public)

    @property
    def verifier(self) -> NoteVerifier:
        """What verifies this installation's statements."""
        return NoteVerifier(installation_name(self.installation), self.signing_public)

    def _encode(self) -> bytes:
        fields = {
            "format": _FORMAT,
            "installation": self.installation,
            "master_key": self.master_public.hex(),
            "signing_key": self.signing_public.hex(),
        }
        return f"{json.dumps(fields, indent=1)}\n".encode()

    @classmethod
    def _read(cls, body: bytes) -> PinnedInstallation:
        fields = json.loads(body, object_pairs_hook=no_duplicates)
        shapes = {"installation": _UUID, "master_key": _KEY, "signing_key": _KEY}
        if not isinstance(fields, dict) or set(fields) != {"format", *shapes} or fields["format"] != _FORMAT:
            raise ValueError("not the fields of an installation")
        if not all(isinstance(fields[name], str) and shape.fullmatch(fields[name]) for name, shape in shapes.items()):
            raise ValueError("not the values of an installation")
        return cls(fields["installation"], bytes.fromhex(fields["master_key"]), bytes.fromhex(fields["signing_key"]))
