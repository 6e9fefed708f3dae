"""A file of signed notes outside the database, one after the other with an empty line behind each, only added to.

It holds notes whose text has no empty line, such as checkpoints and statements: so it reads as it is, with any editor.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path

from app.errors import Unavailable

_END = b"\n\n"


class NoteFileError(Unavailable):
    """A file of signed notes can't be read or written."""

    code = "note_file"


class NoteFile:
    """The file at `path`, mode 0600. Several processes may use it side by side."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<NoteFile {self.path}>"

    def read(self) -> list[bytes]:
        """All whole notes, oldest first; what a crash left of one at the end is none. Raises NoteFileError."""
        try:
            return _split(self.path.read_bytes())[0]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error("read", error) from error

    def last(self) -> bytes | None:
        """The newest one. Raises NoteFileError."""
        notes = self.read()
        return notes[-1] if notes else None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else adds to it meanwhile who asks for that, too. Raises NoteFileError."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(
                self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise self._error("written", error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def append(self, notes: Iterable[bytes]) -> None:
        """Add notes behind the last whole one, and have them on the disk; the caller holds the file.

        Raises NoteFileError: then none is added. ValueError for what is no such note.
        """
        body = b"".join(note + b"\n" for note in notes)
        if _split(body)[1] != len(body):
            raise ValueError("a note of this file has one empty line, between its text and its signatures")
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                end = _split(self.path.read_bytes())[1]
                self._write(descriptor, body, end)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._error("written", error) from error

    def archive(self, suffix: str) -> Path | None:
        """Move the file aside; returns where it is now, None where there was none. Raises FileExistsError."""
        aside = self.path.with_name(f"{self.path.name}.{suffix}")
        if aside.exists():
            raise FileExistsError(aside)
        try:
            self.path.rename(aside)
        except FileNotFoundError:
            return None
        return aside

    def _write(self, descriptor: int, body: bytes, end: int) -> None:
        try:
            os.ftruncate(descriptor, end)
            rest = memoryview(body)
            while rest:
                rest = rest[os.pwrite(descriptor, rest, end + len(body) - len(rest)) :]
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, end)
            raise

    def _error(self, what: str, error: OSError) -> NoteFileError:
        return NoteFileError(f"{self.path} can't be {what} ({error.strerror}).")


def free_suffix(folder: Path, day: date) -> str:
    """A day, with a number behind it where files of that suffix are there already."""
    suffix, count = f"{day:%Y-%m-%d}", 1
    while any(folder.glob(f"*.{suffix}")):
        count += 1
        suffix = f"{day:%Y-%m-%d}-{count}"
    return suffix


def _split(body: bytes) -> tuple[list[bytes], int]:
    """The whole notes, and where the last of them ends."""
    notes, start = list[bytes](), 0
    while True:
        middle = body.find(_END, start)
        end = body.find(_END, middle + 2) if middle >= 0 else -1
        if end < 0:
            return notes, start
        notes.append(body[start : end + 1])
        start = end + 2
