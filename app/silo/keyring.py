"""The key ring: the master key's file, and beside it the keys that a rotation has made or left behind.

`master.key` is the one to use. `master.key.next` waits to become it. `master.key.<fingerprint>` was it once, and is
kept until the operator removes it: backups of the database from before its end need it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from app.errors import Refused
from app.silo.keyfile import RESTORE, KeyFileError, remove_drafts
from app.silo.keys import MasterKey

_KEPT = re.compile(r"[0-9a-f]{16}")


class KeyRing:
    """The files of one installation's master keys on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def next_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.next")

    def kept_path(self, fingerprint: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{fingerprint}")

    def kept(self) -> list[Path]:
        """The files of earlier keys, whether they can be read or not."""
        mine = f"{self.path.name}."
        beside = sorted(self.path.parent.glob(f"{mine}*"))
        return [path for path in beside if _KEPT.fullmatch(path.name.removeprefix(mine))]

    def find(self, fingerprint: str) -> MasterKey:
        """The private key of that fingerprint, wherever it lies. Raises KeyFileError."""
        for path in (self.next_path, self.kept_path(fingerprint)):
            with contextlib.suppress(KeyFileError):
                if (key := MasterKey.load(path)).fingerprint == fingerprint:
                    return key
        key = MasterKey.load(self.path)
        if key.fingerprint != fingerprint:
            raise KeyFileError(
                f"{self.path} is the key {key.fingerprint}, but this database was sealed to {fingerprint}. {RESTORE}"
            )
        return key

    def make_next(self) -> MasterKey:
        """The key that waits to be used; made now unless one waits already. Raises KeyFileError."""
        if not self.next_path.exists():
            MasterKey.generate().save(self.next_path)
        return MasterKey.load(self.next_path)

    def take(self, new: MasterKey) -> None:
        """Let `new` be the one to use; the one that was it stays beside. May be done again wherever it was cut off.

        At every moment all keys lie in whole files: first the old one under its second name, then the new one in its
        place, then only what is there twice is removed. Raises KeyFileError.
        """
        old = MasterKey.load(self.path) if self.path.exists() else None
        if old is not None and old.fingerprint != new.fingerprint:
            self._keep_old_key(old)
        if old is None or old.fingerprint != new.fingerprint:
            new.replace(self.path)
        self.next_path.unlink(missing_ok=True)

    def put_back(self, key: MasterKey, *, is_current: bool) -> Path:
        """Write a key that was lost on this machine; returns where. Raises FileExistsError or KeyFileError."""
        path = self.path if is_current else self.kept_path(key.fingerprint)
        key.save(path)
        return path

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """One at a time changes these files; let go when the process ends, however it ends. Raises Refused."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            _lock_folder(descriptor)
            remove_drafts(self.path)
            yield
        finally:
            os.close(descriptor)

    def _keep_old_key(self, key: MasterKey) -> None:
        path = self.kept_path(key.fingerprint)
        if not path.exists():
            key.save(path)
        if MasterKey.load(path).fingerprint != key.fingerprint:
            raise KeyFileError(f"{path} is not the key that its name says: move it away. The key in use was not moved.")


def _lock_folder(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Refused("Another rotation is at work on these key files.", "Nothing was changed.") from None
