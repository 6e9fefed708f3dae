"""The web processes whose signatures this machine's worker accepts: their public keys, in a file on its own disk."""

from __future__ import annotations

import re
from pathlib import Path

from flask import current_app

from app.config import Settings
from app.errors import Invalid
from app.silo import KeyFileError, keyfile
from app.silo.notes import NoteVerifier, web_name

_KEY = re.compile(r"[0-9a-f]{64}", re.ASCII)


def enrolled_web_keys() -> list[NoteVerifier]:
    """In the order in which they were enrolled; none where nobody did. Raises Invalid or KeyFileError."""
    path = _path()
    try:
        listed = path.read_text("ascii", "replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise KeyFileError(f"{path}, the list of web processes, can't be read ({error.strerror}).") from None
    return [_verifier_of(line) for line in listed.split()]


def enroll_web_key(key: str) -> bool:
    """Accept what this web process signs, from now on; `key` is its public key in hex. Returns whether it is new.

    Raises Invalid or KeyFileError.
    """
    verifier, known = _verifier_of(key.strip().lower()), enrolled_web_keys()
    if verifier in known:
        return False
    lines = [each.public.hex() for each in (*known, verifier)]
    path = _path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    keyfile.replace_file(path, ("\n".join(lines) + "\n").encode())
    return True


def dismiss_web_key(key: str) -> bool:
    """Accept its signatures no longer. Returns whether it was enrolled. Raises Invalid or KeyFileError."""
    verifier, known = _verifier_of(key.strip().lower()), enrolled_web_keys()
    if verifier not in known:
        return False
    lines = [each.public.hex() for each in known if each != verifier]
    keyfile.replace_file(_path(), "".join(f"{line}\n" for line in lines).encode())
    return True


def _path() -> Path:
    settings: Settings = current_app.extensions["settings"]
    return settings.statements_dir / "web-keys"


def _verifier_of(key: str) -> NoteVerifier:
    if not _KEY.fullmatch(key):
        raise Invalid(
            "A web process's key is 64 hexadecimal digits; `./whetstone keys web` prints it on its host.",
            "Nothing was changed.",
        )
    public = bytes.fromhex(key)
    return NoteVerifier(web_name(public), public)
