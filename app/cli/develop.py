"""`./whetstone test` and `./whetstone check`: what a change must pass before it is shown to anybody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import click

from app.cli import json_option
from app.config import ROOT

CHECKS = {
    "ruff": ["-m", "ruff", "check", "."],
    "format": ["-m", "ruff", "format", "--check", "."],
    "types": ["-m", "mypy"],
    "imports": ["-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
}
"""Arguments of Python: console scripts break when a checkout is moved."""

OWN_SETTINGS = ("WHETSTONE_", "DATABASE_URL", "REDIS_URL")
FOR_TESTS = "WHETSTONE_TEST_"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--database-url", help="A PostgreSQL server for the tests, which make databases of their own.")
@click.option("--redis-url", help="A Redis database for the tests, which they empty.")
@json_option
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
def test(database_url: str | None, redis_url: str | None, as_json: bool, pytest_arguments: tuple[str, ...]) -> int:
    """Run the checks, then the tests. With arguments for pytest, run only those tests.

    Without --database-url and --redis-url, tests use SQLite and an embedded broker of their own.
    """
    run = Run(as_json)
    if not pytest_arguments:
        for name, command in CHECKS.items():
            run.step(name, command)
    given = {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    run.step(
        "tests",
        ["-m", "pytest", *(pytest_arguments or ["-n", WORKERS])],
        {FOR_TESTS + name: value for name, value in given.items() if value},
    )
    return run.close()


WORKERS = "4"
"""How many processes run tests side by side, on two cores: many tests wait for processes of the product."""


@click.command()
@json_option
def check(as_json: bool) -> int:
    """Run the linter, the formatter's check, the types and the import contracts."""
    run = Run(as_json)
    for name, command in CHECKS.items():
        run.step(name, command)
    return run.close()


class Run:
    """Steps one after another, all of them whatever fails; then one line that says what failed."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._seconds: dict[str, float] = {}
        self._failed: list[str] = []

    def step(self, name: str, arguments: list[str], environment: dict[str, str] | None = None) -> None:
        click.echo(f"== {name}", err=self._as_json)
        began = time.monotonic()
        status = subprocess.run(  # noqa: S603 - tools of our own lock
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**_clean_environment(), **(environment or {})},
            stdout=sys.stderr if self._as_json else None,
            check=False,
        ).returncode
        self._seconds[name] = round(time.monotonic() - began, 1)
        if status:
            self._failed.append(name)

    def close(self) -> int:
        took = ", ".join(f"{name} {seconds} s" for name, seconds in self._seconds.items())
        if self._as_json:
            click.echo(json.dumps({"ok": not self._failed, "failed": self._failed, "seconds": self._seconds}))
        elif self._failed:
            click.echo(f"Failed: {', '.join(self._failed)} ({took}).")
        else:
            click.echo(f"All passed ({took}).")
        return 1 if self._failed else 0


def _clean_environment() -> dict[str, str]:
    """Without the settings of an installation: tests must not find anybody's data."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(FOR_TESTS) or not name.startswith(OWN_SETTINGS)
    }
