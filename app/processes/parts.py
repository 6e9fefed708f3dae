"""What the supervisor of `up` tells the other processes of its data dir: which part stopped, and when it starts again.

A small file, whole or not at all. It counts as long as the supervisor that wrote it lives.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from app.config import Settings
from app.processes.datadir import is_alive, replace_private
from app.values.plural import count_times


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


class PartsFile:
    """Where the supervisor writes, and the others read."""

    def __init__(self, settings: Settings) -> None:
        self._path: Path = settings.run_dir / "parts.json"

    def write(self, process: int, stopped: Sequence[StoppedPart]) -> None:
        """Raises OSError."""
        if not stopped:
            self.remove()
            return
        rows = [asdict(part) | {"next_start": part.next_start and part.next_start.isoformat()} for part in stopped]
        replace_private(self._path, json.dumps({"process": process, "stopped": rows}))

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def read(self) -> list[StoppedPart]:
        """What stopped, by the supervisor that runs now; nothing where none runs, or the file can't be read."""
        try:
            written = json.loads(self._path.read_text(encoding="utf-8"))
            if not is_alive(written["process"]):
                return []
            return [_parse_part(row) for row in written["stopped"]]
        except (OSError, ValueError, KeyError, TypeError):
            return []


def _parse_part(row: dict[str, object]) -> StoppedPart:
    start = row["next_start"]
    return StoppedPart(
        name=str(row["name"]),
        stops=int(str(row["stops"])),
        how=str(row["how"]),
        log=str(row["log"]),
        next_start=datetime.fromisoformat(str(start)).astimezone(UTC) if start else None,
    )
