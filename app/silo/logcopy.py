"""The copy of the log's state outside the database: each leaf's hash and agent, in a file that is only added to.

Whoever puts the database back to yesterday, cuts the log's tail or changes a leaf does not reach this file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISDIR
from typing import NamedTuple
from uuid import UUID

from app.errors import Unavailable, WhetstoneError
from app.silo.merkle import HASH, MerkleTree

_MAGIC = b"whetstone leaves"
_VERSION = (1).to_bytes(4, "big")
_NOBODY = bytes(16)
RECORD = HASH + len(_NOBODY)
"""Bytes of one record: the leaf's hash and the UUID of its agent or chain, zeros for none. The header is as long."""


class LogForked(WhetstoneError):
    """The log in the database is not the one whose copy lies outside of it: one of both was altered or put back."""

    code = "log_forked"
    http_status = 500
    exit_status = 3


class LogCopyBroken(WhetstoneError):
    """The copy of the log's state can't be read."""

    code = "log_copy"
    http_status = 500
    exit_status = 3


class LogCopyUnwritable(Unavailable):
    """The copy of the log's state can't be written."""

    code = "log_copy_unwritable"


class LeafRecord(NamedTuple):
    """One leaf: its hash, and the UUID of the agent or the audit chain that it is about, if any."""

    hash: bytes
    agent: str | None


class LogCopy:
    """The copy at `path` of the log of `installation`. Several processes and threads may use it side by side.

    It knows what it has loaded or extended itself by; `load` again learns what other processes have added.
    """

    def __init__(self, path: Path, installation: str) -> None:
        self.path = path
        self.installation = installation
        self._lock = threading.RLock()
        self._taking = threading.RLock()
        """Never while something is written: who only asks what is known takes no other."""
        self._is_another = False
        self._forget()

    def __repr__(self) -> str:
        return f"<LogCopy {self.path} of {self.size}>"

    @property
    def size(self) -> int:
        """How many leaves."""
        return len(self._records) // RECORD

    def is_whole(self) -> bool:
        """Whether the file is still the one that was read, and ends where this object's knowledge does."""
        return self.size_in_file() == self.size

    def size_in_file(self) -> int | None:
        """How many leaves the file has; none where there is no file, None where it is not the one that was read."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None if self.size else 0
        return status.st_size // RECORD - 1 if self._file == (status.st_dev, status.st_ino) else None

    def is_another(self) -> bool:
        """Whether another file took the place of the one that was read before; asked once for each."""
        found, self._is_another = self._is_another, False
        return found

    def hash_at(self, index: int) -> bytes:
        """The leaf's hash, 32 bytes. Raises IndexError."""
        if not 0 <= index < self.size:
            raise IndexError(f"no leaf {index} among {self.size}")
        return bytes(self._records[index * RECORD : index * RECORD + HASH])

    def indexes_of(self, agent: str) -> Sequence[int]:
        """The leaves about that agent or chain, ascending."""
        with self._taking:
            return tuple(self._indexes.get(UUID(agent).bytes, ()))

    def root(self, size: int | None = None) -> bytes:
        """The Merkle root of the first `size` leaves, or of all. Raises ValueError."""
        with self._lock:
            return self.tree.root_at(self.size if size is None else size)

    @property
    def tree(self) -> MerkleTree:
        """The tree over all leaves, for proofs."""
        with self._lock:
            if self._tree.size < self.size:
                self._tree.extend(self.hash_at(index) for index in range(self._tree.size, self.size))
            return self._tree

    def load(self) -> None:
        """Read what is there, or what came since the last time; no file is an empty copy.

        Raises LogCopyBroken, or LogForked where the file no longer begins with what was read before.
        """
        with self._lock:
            try:
                with self._opened(os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
                    self._catch_up(descriptor)
            except FileNotFoundError:
                self._forget()
            except OSError as error:
                raise self._unreadable_error(error) from None

    def extend(self, first_index: int, records: Sequence[LeafRecord]) -> None:
        """Write the leaves from `first_index` on, durably; those that are there already are compared and left.

        Raises LogForked where they are not the same or one between is missing, and LogCopyUnwritable: then nothing was
        added.
        """
        body = b"".join(_encode(record) for record in records)
        with self._lock:
            try:
                with self._opened(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as descriptor:
                    self._catch_up(descriptor)
                    self._append(descriptor, self._new_of(first_index, body))
            except OSError as error:
                raise LogCopyUnwritable(
                    f"The copy of the log {self.path} can't be written ({error.strerror})."
                ) from error

    def archive(self, suffix: str) -> Path:
        """Move the file aside, and begin with none; returns where it is now.

        Raises FileExistsError where something lies there, FileNotFoundError where there is no copy.
        """
        aside = self.path.with_name(f"{self.path.name}.{suffix}")
        with self._lock, self._opened(os.O_RDONLY, fcntl.LOCK_EX):
            if aside.exists():
                raise FileExistsError(aside)
            self.path.rename(aside)
            self._forget()
            _sync_folder(self.path.parent)
        return aside

    def _forget(self) -> None:
        self._records = bytearray()
        self._indexes: dict[bytes, list[int]] = {}
        self._tree = MerkleTree()
        self._file: tuple[int, int] | None = None

    @contextlib.contextmanager
    def _opened(self, flags: int, lock: int) -> Iterator[int]:
        """The file behind the name, locked; not one that somebody has moved aside while we waited."""
        if flags & os.O_CREAT:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            descriptor = os.open(self.path, flags | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, lock)
                if self._is_current(descriptor):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _catch_up(self, descriptor: int) -> None:
        """Read what the file has and this object has not; less than a whole record at its end is not yet a leaf."""
        status = os.fstat(descriptor)
        if S_ISDIR(status.st_mode):  # some file systems say of an empty one that it has 40 bytes, or none
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if self._file not in {None, (status.st_dev, status.st_ino)}:
            with self._taking:  # nobody finds it empty meanwhile
                self._forget()
                self._is_another = True
                self._catch_up(descriptor)
            return
        self._file = status.st_dev, status.st_ino
        if status.st_size < RECORD and not self.size:
            return
        self._check_header(os.pread(descriptor, RECORD, 0))
        whole = status.st_size // RECORD - 1
        last = bytes(self._records[-RECORD:])
        if os.pread(descriptor, len(last), self.size * RECORD) != last:
            raise LogForked(f"The copy of the log {self.path} no longer begins with what was read of it before.")
        self._take(_read(descriptor, (self.size + 1) * RECORD, (whole + 1) * RECORD))

    def _check_header(self, header: bytes) -> None:
        if not header.startswith(_MAGIC):
            raise LogCopyBroken(f"{self.path} is not a copy of a log. Put its backup back.")
        if header != self._header:
            raise LogCopyBroken(
                f"{self.path} is the copy of another installation's log, or of a newer version. Put its backup back."
            )

    @property
    def _header(self) -> bytes:
        header = _MAGIC + _VERSION + UUID(self.installation).bytes
        return header.ljust(RECORD, b"\x00")

    def _take(self, body: bytes) -> None:
        with self._taking:
            agents, first = self._indexes, self.size
            self._records += body
            for place in range(len(body) // RECORD):
                agent = body[place * RECORD + HASH : (place + 1) * RECORD]
                if agent in agents:
                    agents[agent].append(first + place)
                else:
                    agents[agent] = [first + place]

    def _new_of(self, first_index: int, body: bytes) -> bytes:
        """What of these records is not there yet. Raises LogForked."""
        if not 0 <= first_index <= self.size:
            raise LogForked(f"The log goes on at leaf {first_index}, but its copy {self.path} ends after {self.size}.")
        held = self._records[first_index * RECORD :][: len(body)]
        if body[: len(held)] == held:
            return body[len(held) :]
        places = range(0, len(held), RECORD)
        other = next(place for place in places if body[place : place + RECORD] != held[place : place + RECORD])
        raise LogForked(f"Leaf {first_index + other // RECORD} of the log is not the one in its copy {self.path}.")

    def _append(self, descriptor: int, body: bytes) -> None:
        """Write after the last whole record, over what a crash left of one."""
        end = (self.size + 1) * RECORD
        is_new = os.fstat(descriptor).st_size < RECORD
        if not body and not is_new:
            return
        try:
            if is_new:
                _write(descriptor, self._header, 0)
            os.ftruncate(descriptor, end)
            _write(descriptor, body, end)
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0 if is_new else end)
            raise
        if is_new:
            _sync_folder(self.path.parent)
        self._take(body)

    def _unreadable_error(self, error: OSError) -> LogCopyBroken:
        return LogCopyBroken(f"The copy of the log {self.path} can't be read ({error.strerror}).")


def _encode(record: LeafRecord) -> bytes:
    if len(record.hash) != HASH:
        raise ValueError(f"a leaf hash has {HASH} bytes")
    return record.hash + (UUID(record.agent).bytes if record.agent else _NOBODY)


def _read(descriptor: int, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        part = os.pread(descriptor, end - start, start)
        if not part:
            raise OSError(5, "the file became shorter")
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _write(descriptor: int, body: bytes, at: int) -> None:
    rest = memoryview(body)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        rest, at = rest[written:], at + written


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
