"""A writer of the log's copy, one of several: `python -m tests.silo.appending PATH INSTALLATION SIZE`, leaf by leaf."""

from __future__ import annotations

import sys
from pathlib import Path

from app.silo import LeafRecord, LogCopy, hash_leaf

AGENTS = ("3b1f0a52-6c1e-4c5e-9b0a-2f6d8f1f7a11", "3b1f0a52-6c1e-4c5e-9b0a-2f6d8f1f7a12", None)


def record(index: int) -> LeafRecord:
    """The leaf that stands at `index` in the log of these tests."""
    return LeafRecord(hash_leaf(str(index).encode()), AGENTS[index % 3])


def main(path: str, installation: str, size: str) -> None:
    copy = LogCopy(Path(path), installation)
    for index in range(int(size)):
        copy.extend(index, [record(index)])


if __name__ == "__main__":
    main(*sys.argv[1:])
