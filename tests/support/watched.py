"""A part of Whetstone in a process that writes down which files it opens and which private keys it holds.

    python -m tests.support.watched REPORT web --port 8000

It is `python -m app web --port 8000`, with an audit hook from before the first import. On SIGUSR1 and at its end it
writes the report: `{"opened": [paths], "keys": [names of types]}`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

opened: set[str] = set()


def watch() -> None:
    """From now on every file that Python opens is known, by whatever way."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            opened.add(os.path.abspath(os.fsdecode(arguments[0])))  # noqa: PTH100 - pathlib would open more

    sys.addaudithook(hook)


def keys_held() -> list[str]:
    """Private keys that anything in this process refers to: objects that the collector knows, and what they hold."""
    import gc

    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    from app.silo import MasterKey

    gc.collect()
    is_key: dict[type, bool] = {}
    found = []
    for holder in gc.get_objects():
        for thing in (holder, *gc.get_referents(holder)):
            kind = type(thing)
            if kind not in is_key:
                is_key[kind] = issubclass(kind, MasterKey | X25519PrivateKey)
            if is_key[kind]:
                found.append(kind.__name__)
    return sorted(found)


def main(report: str, *arguments: str) -> None:
    import atexit
    import json
    import signal

    def write(*_: object) -> None:
        said = json.dumps({"opened": sorted(opened), "keys": keys_held()})
        with open(f"{report}.new", "w") as file:  # noqa: PTH123
            file.write(said)
        os.replace(f"{report}.new", report)  # noqa: PTH105

    signal.signal(signal.SIGUSR1, write)
    atexit.register(write)
    from app.cli import main as command_line

    command_line(arguments)


if __name__ == "__main__":
    watch()
    main(*sys.argv[1:])
