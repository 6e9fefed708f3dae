"""Key files: written whole or not at all, never over another one, readable by their owner only; read in plain words."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from app.errors import Misconfigured


class KeyFileError(Misconfigured):
    """The master key can't be used; nothing was written."""

    code = "master_key"


RESTORE = (
    "Put the backup of the key back (`./whetstone keys restore`), or point WHETSTONE_MASTER_KEY_FILE at it. "
    "Without it the memories in this database can't be read. Nothing was started and nothing was written."
)


_DRAFT = re.compile(r"(\.next|\.[0-9a-f]{16})?\.[0-9a-f]{8}\.draft")


def read_key_file(path: Path) -> bytes:
    """The bytes of a file that may well hold a key. Raises KeyFileError with what is wrong and what to do."""
    try:
        pem = path.read_bytes()
    except FileNotFoundError:
        raise KeyFileError(f"The master key {path} is missing. {RESTORE}") from None
    except OSError as error:
        raise KeyFileError(f"The master key {path} can't be read ({error.strerror}). {RESTORE}") from None
    if not pem.strip(b"\x00 \t\r\n"):
        raise KeyFileError(f"The master key {path} is empty: a crash or a full disk left nothing of it. {RESTORE}")
    if pem.lstrip().startswith(b"-----BEGIN") and b"-----END" not in pem:
        raise KeyFileError(f"The master key {path} is cut off: a crash or a full disk left only a part. {RESTORE}")
    return pem


def write_new(path: Path, body: bytes) -> None:
    """Write a file that is not there yet, durably. Raises FileExistsError, or KeyFileError where it can't be written.

    It appears under its name when it is whole: a crash leaves no half of a key behind that name.
    """
    with _explain_write_errors(path), _write_draft(path, body) as draft:
        try:
            os.link(draft, path)
        except FileExistsError:
            raise
        except OSError:
            _write_exclusively(path, body)
        _sync_folder(path.parent)


def replace_file(path: Path, body: bytes) -> None:
    """Write a file in the place of the one that is there: at every moment one of both is there, whole."""
    with _explain_write_errors(path), _write_draft(path, body) as draft:
        draft.replace(path)
        _sync_folder(path.parent)


def remove_drafts(path: Path) -> None:
    """What a crash left half-written of that file and of those beside it; the caller holds their lock."""
    for draft in path.parent.glob(f".{path.name}*"):
        if _DRAFT.fullmatch(draft.name.removeprefix(f".{path.name}")):
            draft.unlink()


@contextlib.contextmanager
def _explain_write_errors(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except FileExistsError as error:
        if Path(error.filename2 or error.filename) == path:
            raise
        raise _unwritable_error(path, error) from None
    except OSError as error:
        raise _unwritable_error(path, error) from None


def _unwritable_error(path: Path, error: OSError) -> KeyFileError:
    return KeyFileError(f"{path} can't be written ({error.strerror}). Nothing was changed.")


@contextlib.contextmanager
def _write_draft(path: Path, body: bytes) -> Iterator[Path]:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.draft")
    try:
        _write_exclusively(draft, body)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _write_exclusively(path: Path, body: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Let the folder's own entry survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
