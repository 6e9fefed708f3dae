"""The results of earlier runs: a file a run, and how each figure moved from one to the next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, plain
from benchmarks.machine import commit, machine_facts
from benchmarks.running import Options, Outcome

RESULTS = Path(__file__).resolve().parent / "results"


def new_results(options: Options, folder: Path) -> Path:
    """A file that no other run has; those of quick runs are not kept in the repository."""
    quick = "-quick" if options.quick else ""
    return _free(folder, f"{datetime.now(UTC):%Y-%m-%d}", f"{options.database}{quick}")


def write_results(outcomes: Sequence[Outcome], options: Options, path: Path) -> None:
    """Again after each row, so that a run that is broken off keeps what it has measured."""
    at = datetime.now(UTC)
    said = {
        "at": at.isoformat(timespec="seconds"),
        "database": options.database,
        "quick": options.quick,
        **commit(),
        "machine": machine_facts(options.database_url),
        "rows": [outcome.as_json() for outcome in outcomes],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")


def _free(folder: Path, day: str, rest: str) -> Path:
    """The first run of a day, its second, …"""
    names = (f"{day}{number}-{rest}.json" for number in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(path for path in map(folder.joinpath, names) if not path.exists())


def read_results(folder: Path = RESULTS, *, quick: bool = False) -> list[dict[str, Any]]:
    """All runs, the oldest first."""
    runs = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return sorted((each for each in runs if each["quick"] is quick), key=lambda each: str(each["at"]))


def history_lines(runs: Sequence[dict[str, Any]], names: Sequence[str] = ()) -> Iterator[str]:
    """By database and row, each figure's values in order of time."""
    for database in sorted({run["database"] for run in runs}):
        mine = [run for run in runs if run["database"] == database]
        days = (f"{run['at'][:10]} ({run['commit']})" for run in mine)
        yield f"{database}: {', '.join(days)}"
        moved: dict[tuple[str, str], list[str]] = {}
        for number, run in enumerate(mine):
            for row, figure in _figures(run, names):
                values = moved.setdefault((row, figure.what), ["–"] * len(mine))
                values[number] = _shown(figure)
        yield from (f"  {row:<20} {what}: {' → '.join(values)}" for (row, what), values in moved.items())


def _figures(run: dict[str, Any], names: Sequence[str]) -> Iterator[tuple[str, Figure]]:
    for row in run["rows"]:
        if not names or row["name"] in names:
            yield from ((row["name"], Figure.from_json(each)) for each in row["figures"])


def _shown(figure: Figure) -> str:
    """The ratio where there is one: it depends less on the machine."""
    if figure.ratio is not None:
        return f"{plain(figure.ratio)} ×"
    return "–" if figure.value is None else f"{plain(figure.value)} {figure.unit}".strip()
