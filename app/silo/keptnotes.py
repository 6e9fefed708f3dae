"""Signed notes that are kept whole outside the database: what a restored backup must not undo."""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path

from app.errors import WhetstoneError


class KeptNotesBroken(WhetstoneError):
    """The notes that are kept outside the database can't be read."""

    code = "kept_notes"


class KeptNotes:
    """A file of one line for each: the leaf's place in the log, and the note. Only added to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, notes: Sequence[tuple[int, bytes]]) -> None:
        """Write them durably; what a crash left of a line is ended first. Nothing for none."""
        if not notes:
            return
        lines = [json.dumps({"leaf": place, "note": base64.b64encode(note).decode()}) for place, note in notes]
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            cut = size and os.pread(descriptor, 1, size - 1) != b"\n"
            rest = ("\n" * bool(cut) + "".join(f"{line}\n" for line in lines)).encode()
            while rest:  # a disk that is all but full takes the beginning without a word
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> list[tuple[int, bytes]]:
        """All of them, each once, in the order of the log. Raises KeptNotesBroken for a file that can't be read."""
        try:
            lines = self.path.read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise KeptNotesBroken(f"{self.path} can't be read ({type(error).__name__}).") from None
        return sorted({found for line in lines if (found := _read_line(line)) is not None})


def _read_line(line: str) -> tuple[int, bytes] | None:
    """None for a line that a crash cut off."""
    try:
        said = json.loads(line)
        return int(said["leaf"]), base64.b64decode(said["note"], validate=True)
    except (ValueError, KeyError, TypeError):
        return None
