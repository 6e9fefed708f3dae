"""`./whetstone test` and `./whetstone check`: what a change must pass before it is shown to anybody."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import click

from app.cli import json_option
from app.cli.printing import print_json, say
from app.config import ROOT

CHECKS = {
    "ruff": ["-m", "ruff", "check", "."],
    "format": ["-m", "ruff", "format", "--check", "."],
    "types": ["-m", "mypy"],
    "imports": ["-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
}
"""Arguments of Python: console scripts break when a checkout is moved."""

COMPILE_TESTS = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
"""While the checks use one core: else each of the tests' processes compiles every test file of a new checkout."""

OWN_SETTINGS = ("WHETSTONE_", "DATABASE_URL", "REDIS_URL")
FOR_TESTS = "WHETSTONE_TEST_"

WORKERS = "4"
"""How many processes run tests side by side, on two cores: many tests wait for processes of the product."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--database-url", help="A PostgreSQL server for the tests, which make databases of their own.")
@click.option("--redis-url", help="A Redis database for the tests, which they empty.")
@json_option
@click.argument("pytest_arguments", nargs=-1, type=click.UNPROCESSED)
def test(database_url: str | None, redis_url: str | None, as_json: bool, pytest_arguments: tuple[str, ...]) -> int:
    """Run the checks, then the tests. With arguments for pytest, run only those tests.

    Without --database-url and --redis-url, tests use SQLite and an embedded broker of their own.
    """
    given = {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    for_tests = {FOR_TESTS + name: value for name, value in given.items() if value}
    if pytest_arguments:
        return _run_steps({"tests": ["-m", "pytest", *pytest_arguments]}, as_json, for_tests)
    env = _clean_environment() | for_tests
    with subprocess.Popen(COMPILE_TESTS, cwd=ROOT, env=env, stdout=subprocess.DEVNULL):  # noqa: S603 - of our own lock
        return _run_steps(CHECKS | {"tests": ["-m", "pytest", "-n", WORKERS]}, as_json, for_tests)


@click.command()
@json_option
def check(as_json: bool) -> int:
    """Run the linter, the formatter's check, the types and the import contracts."""
    return _run_steps(CHECKS, as_json, {})


def _run_steps(steps: dict[str, list[str]], as_json: bool, for_tests: dict[str, str]) -> int:
    """One after another, all of them whatever fails; then one line that says what failed."""
    seconds: dict[str, float] = {}
    failed = []
    for name, arguments in steps.items():
        click.echo(f"== {name}", err=as_json)
        began = time.monotonic()
        status = subprocess.run(  # noqa: S603 - tools of our own lock
            [sys.executable, *arguments],
            cwd=ROOT,
            env=_clean_environment() | for_tests,
            stdout=sys.stderr if as_json else None,
            check=False,
        ).returncode
        seconds[name] = round(time.monotonic() - began, 1)
        if status:
            failed.append(name)
    took = ", ".join(f"{name} {each} s" for name, each in seconds.items())
    if as_json:
        print_json({"ok": not failed, "failed": failed, "seconds": seconds})
    else:
        say(f"Failed: {', '.join(failed)} ({took})." if failed else f"All passed ({took}).")
    return 1 if failed else 0


def _clean_environment() -> dict[str, str]:
    """Without the settings of an installation: tests must not find anybody's data."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(FOR_TESTS) or not name.startswith(OWN_SETTINGS)
    }
