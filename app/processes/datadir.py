"""The data dir of one installation: private, held by one `up` at a time; a file in it says which parts have stopped."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter

from app.config import Settings
from app.errors import Misconfigured, WhetstoneError
from app.values.plural import count_times


class DataDirectoryInUse(WhetstoneError):
    """Another `./whetstone up` runs on this data dir."""

    code = "already_running"


def check_data_dir(settings: Settings) -> None:
    """Make the data dir, private to its owner, with its folders. Raises Misconfigured when it can't be written."""
    try:
        for folder in (settings.data, settings.run_dir, settings.data / "logs"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            probe = folder / f".probe-{secrets.token_hex(4)}"
            probe.touch(mode=0o600, exist_ok=False)
            probe.unlink()
    except OSError as error:
        raise Misconfigured(
            f"The data directory {settings.data} can't be written ({error.strerror}: {error.filename}). Nothing was "
            "started. Choose another one with --data-dir or WHETSTONE_DATA_DIR."
        ) from None


def append_to(path: Path) -> BinaryIO:
    """A log of ours to write on at its end, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")


def replace_private(path: Path, text: str) -> None:
    """Write a small secret, whole or not at all, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def running_address(settings: Settings) -> str | None:
    """Where the `up` that runs on this data dir answers, as it wrote down; None where none runs.

    The lock itself is not tried: whoever holds it for a moment could keep an `up` from starting.
    """
    try:
        holder = re.fullmatch(r"process ([0-9]+), (\S+)", _lock_file(settings).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    return holder[2] if holder and is_alive(int(holder[1])) else None


def _lock_file(settings: Settings) -> Path:
    return settings.run_dir / "up.lock"


def is_alive(process: int) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's
    return True


@contextmanager
def hold_data_dir(settings: Settings, address: str) -> Iterator[None]:
    """To the end of `with`, or to the death of the process. Writes down who holds it, and where they answer."""
    descriptor = os.open(_lock_file(settings), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "a process that is just starting"
        os.close(descriptor)
        raise DataDirectoryInUse(
            f"Whetstone already runs on {settings.data} ({holder}). Use that one, stop it first (Ctrl-C where it "
            "runs), or choose another data dir with --data-dir."
        ) from None
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()}, {address}".encode(), 0)
        yield
    finally:
        os.ftruncate(descriptor, 0)
        os.close(descriptor)


@dataclass(frozen=True)
class StoppedPart:
    """A part that ended by itself. `next_start` is None where it runs again."""

    name: str
    stops: int
    how: str
    log: str
    next_start: datetime | None = None

    def sentence(self, at: datetime) -> str:
        """Without the log's place: `/readyz` answers anybody."""
        return f"{self.what}; {self.what_now(at)}."

    @property
    def what(self) -> str:
        return f"The {self.name} has stopped {count_times(self.stops)} ({self.how})"

    def what_now(self, at: datetime) -> str:
        if self.next_start is None:
            return "it runs again"
        seconds = round((self.next_start - at).total_seconds())
        return f"next start in {seconds} s" if seconds > 0 else "it is starting"


@dataclass(frozen=True)
class _StoppedParts:
    """By the supervisor of that process number."""

    process: int
    stopped: list[StoppedPart]


_STOPPED_PARTS = TypeAdapter(_StoppedParts)


class PartsFile:
    """Where the supervisor of `up` tells the others which part stopped; it counts as long as that one lives."""

    def __init__(self, settings: Settings) -> None:
        self._path: Path = settings.run_dir / "parts.json"

    def write(self, process: int, stopped: Sequence[StoppedPart]) -> None:
        """Raises OSError."""
        if stopped:
            replace_private(self._path, _STOPPED_PARTS.dump_json(_StoppedParts(process, list(stopped))).decode())
        else:
            self.remove()

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def read(self) -> list[StoppedPart]:
        """What stopped, by the supervisor that runs now; nothing where none runs, or the file can't be read."""
        try:
            written = _STOPPED_PARTS.validate_json(self._path.read_bytes())
        except (OSError, ValueError):
            return []
        return written.stopped if is_alive(written.process) else []
