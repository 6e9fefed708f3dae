"""A small program under test: a supervisor over children given as JSON, for the tests to send signals to.

    python -m tests.cli.supervised PLAN

PLAN: {"folder", "children": [{"name", "code", "grace"?, "part"?}], "ready": file or null, "seconds", "pause"}

What stopped is written to FOLDER/stopped.parts, one JSON list a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from app.errors import WhetstoneError
from app.processes.child import Child
from app.processes.datadir import StoppedPart
from app.processes.supervisor import StopRequested, Supervisor


def run(plan: dict[str, Any]) -> None:
    folder = Path(plan["folder"])

    def write_down(stopped: Sequence[StoppedPart]) -> None:
        with (folder / "stopped.parts").open("a") as file:
            file.write(json.dumps([[part.name, part.stops, part.next_start is not None] for part in stopped]) + "\n")

    say = partial(click.echo, err=True)
    with suppress(StopRequested), Supervisor(say, write_down, first_pause=plan["pause"]) as supervisor:
        for child in plan["children"]:
            supervisor.start(
                Child(
                    name=child["name"],
                    command=(sys.executable, "-c", child["code"]),
                    log=folder / f"{child['name']}.log",
                    folder=folder,
                    first_words=b"go\n",
                    grace=child.get("grace", 10),
                    part=child.get("part", ""),
                )
            ).tell()
        supervisor.wait_until(
            lambda: all((folder / name).exists() for name in plan["ready"]),
            seconds=plan["seconds"],
            otherwise=lambda: "Nobody answered.",
        )
        click.echo("ready")
        supervisor.watch()


if __name__ == "__main__":
    try:
        run(json.loads(Path(sys.argv[1]).read_text()))
    except WhetstoneError as error:
        sys.exit(f"Error: {error.sentence}")
