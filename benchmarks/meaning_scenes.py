"""The sentences of `meaning_scenes.toml`: changes written by hand, and the texts that `benchmarks.meaning` runs on
where no folder of data is given."""

from __future__ import annotations

import tomllib
from pathlib import Path

from benchmarks.meaning_changes import Pair

_FILE = Path(__file__).with_name("meaning_scenes.toml")
_ARROW = " => "

Scenes = dict[str, list[Pair]]


def read_scenes(part: str, side: str) -> Scenes:
    """By kind of change. `part`: of the file, first to fifth, held_out or unseen; `side`: losses or harmless."""
    parts = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return {kind: [_pair(line) for line in lines.strip().splitlines()] for kind, lines in parts[part][side].items()}


def parts() -> list[str]:
    return [*tomllib.loads(_FILE.read_text(encoding="utf-8"))]


def memories() -> list[str]:
    """What stands before each change, each text once."""
    found = [
        old for part in parts() for side in ("losses", "harmless") for pairs in read_scenes(part, side).values()
        for old, _ in pairs
    ]  # fmt: skip
    return [*dict.fromkeys(found)]


def _pair(line: str) -> Pair:
    old, new = line.replace("\\n", "\n").split(_ARROW)
    return old, new
