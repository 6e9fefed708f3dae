"""What the commands share: how they open an installation, find what is named, and print for people or for programs."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
from flask import Flask
from sqlalchemy import select

from app import Part, logs
from app.config import Settings, load_settings
from app.errors import Invalid, Misconfigured, NotFound, Refused
from app.extensions import db
from app.models import Account, Agent
from app.setup import make_if_new, ready_app
from app.values.text import clean_name

F = TypeVar("F", bound=Callable[..., Any])

Cell = str | int | None

REFUSED = Refused.exit_status
"""The exit status where a rule said no without an error: an agent's NO, a guard, a conflict."""


def account_option(command: F) -> F:
    """`--account`, as the parameter `account`: a name, or None for the first account."""
    return click.option("--account", metavar="NAME", help="The account; the first one unless given.")(command)


@contextmanager
def open_installation(*, make: bool = False, with_key: bool = True) -> Iterator[Flask]:
    """An app on this installation, in its context, with the master key. Raises Misconfigured; writes nothing.

    `make`: where no database is yet, make it. `with_key`: False for what brings a lost key back, and for what an
    auditor does without one.
    """
    os.umask(0o077)
    settings = load_settings()
    if make:
        _make_if_new(settings)
    else:
        _require_database(settings)
    logs.init("ERROR")
    app = ready_app(Part.COMMAND_LINE, settings, with_key=with_key)
    with app.app_context():
        try:
            yield app
        finally:
            _close_app(app)


def find_account(name: str | None) -> Account:
    """The account of that name, or the first one. Raises NotFound, and names those that there are."""
    accounts = list(db.session.scalars(select(Account).order_by(Account.id)))
    for account in accounts:
        if name is None or account.name == name:
            return account
    if not accounts:
        raise NotFound("There is no account yet: `./whetstone db upgrade` makes the first one.")
    raise NotFound(f"There is no account named {name!r}. There are: {', '.join(each.name for each in accounts)}.")


def find_agent(name: str, account: str | None) -> Agent:
    """The account's agent of that name. Raises NotFound, and says where else there is one."""
    home = find_account(account)
    try:
        cleaned = clean_name(name)
    except Invalid:
        raise NotFound(f"There is no agent named {name!r}.") from None
    query = select(Account.name).join(Agent, Agent.account_id == Account.id).where(Agent.name == cleaned)
    elsewhere = list(db.session.scalars(query.order_by(Account.id)))
    if home.name in elsewhere:
        return Agent.named(home.id, cleaned)
    if elsewhere and account is None:
        raise NotFound(
            f"There is no agent named {cleaned!r} in the account {home.name!r}, but there is one in {elsewhere[0]!r}: "
            f"add --account {quote_name(elsewhere[0])}."
        )
    listing = "./whetstone agents list" + account_argument(account)
    raise NotFound(f"There is no agent named {cleaned!r} in the account {home.name!r}. `{listing}` names them all.")


@contextmanager
def as_usage() -> Iterator[None]:
    """An option's value that a rule refuses is wrong usage."""
    try:
        yield
    except Invalid as error:
        raise click.UsageError(error.sentence) from None


def read_text(path: Path | None) -> str | None:
    """The text of a file that an option named; None without one. Raises UsageError."""
    if path is None:
        return None
    try:
        return sys.stdin.buffer.read().decode() if str(path) == "-" else path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise click.UsageError(f"{path} is not UTF-8 text.") from None
    except OSError as error:
        raise click.UsageError(f"{path} can't be read: {error.strerror}.") from None


def text_file(name: str, help_text: str) -> Callable[[F], F]:
    """An option that takes a file of text, `-` for standard input."""
    kind = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
    return click.option(name, type=kind, help=help_text)


def print_json(value: object) -> None:
    """One line of JSON on stdout."""
    click.echo(json.dumps(value))


def say(line: str = "") -> None:
    """A line for people, on stdout."""
    click.echo(line)


def say_on_stderr(line: str) -> None:
    """A line for people beside the result, on stderr."""
    click.echo(line, err=True)


def print_hint(command: str, why: str) -> None:
    """The next useful command."""
    click.secho(f"{why}: ./whetstone {command}", dim=True)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Aligned columns; numbers to the right."""
    found = [list(row) for row in rows]
    numeric = [any(isinstance(row[place], int) for row in found) for place in range(len(headings))]
    cells = [[_format_cell(cell) for cell in row] for row in found]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    for index, row in enumerate([list(headings), *cells]):
        line = "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        click.echo(click.style(line, dim=True) if index == 0 else line)


def print_facts(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Names and values, one a line, aligned; those without a value are left out."""
    shown = [(name, _format_cell(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"  {name.ljust(width)}  {value}")


def day_and_time(moment: datetime | None, otherwise: str = "never") -> str:
    """For people: UTC, to the minute."""
    return otherwise if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def account_argument(account: str | None) -> str:
    """What a suggested command needs so that it means the same account."""
    return f" --account {quote_name(account)}" if account else ""


def quote_name(name: str) -> str:
    """A name as it can be typed in a shell."""
    return shlex.quote(name)


def _format_cell(value: Cell) -> str:
    return f"{value:,}" if isinstance(value, int) else value or "–"


def _require_database(settings: Settings) -> None:
    if _sqlite_file_is_missing(settings):
        raise Misconfigured(
            f"There is no installation in {settings.data} yet. `./whetstone up` or `./whetstone db upgrade` makes one; "
            "WHETSTONE_DATA_DIR and DATABASE_URL say where to look."
        )


def _make_if_new(settings: Settings) -> None:
    if make_if_new(settings):
        say_on_stderr(
            f"Created a new installation in {settings.data}. "
            "Keep a copy of its master key: ./whetstone keys backup FILE"
        )


def _sqlite_file_is_missing(settings: Settings) -> bool:
    """Looked for without connecting, which would make an empty one."""
    kind, _, path = settings.sqlalchemy_url.partition(":///")
    return kind == "sqlite" and not Path(path).exists()


def _close_app(app: Flask) -> None:
    db.session.remove()
    if "heartbeat" in app.extensions:
        app.extensions["heartbeat"].stop()
    db.engine.dispose()
