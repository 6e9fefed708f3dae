"""What the commands share: how they open an installation, and find what is named."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click
from flask import Flask
from sqlalchemy import ColumnElement, select

from app import Part, logs
from app.cli import json_option
from app.cli.printing import say_on_stderr
from app.config import Settings, load_settings
from app.errors import Invalid, Misconfigured, NotFound, Refused
from app.extensions import db
from app.models import Account, Agent
from app.setup import make_if_new, ready_app
from app.values.text import clean_name

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

REFUSED = Refused.exit_status
"""The exit status where a rule said no without an error: an agent's NO, a guard, a conflict."""

NOT_QUEUED = "The task queue did not accept it: it waits in the database until a worker runs (`./whetstone up`)."


@dataclass(frozen=True)
class CommandContext:
    """What a command is given of `--account` and `--json`. `account`: a name, or None for the first account."""

    account: str | None
    as_json: bool

    @property
    def account_argument(self) -> str:
        """What a suggested command needs so that it means the same account."""
        return f" --account {shlex.quote(self.account)}" if self.account else ""

    def agent_argument(self, agent: Agent) -> str:
        """The agent as a suggested command names it."""
        return shlex.quote(agent.name) + self.account_argument

    def find_account(self) -> Account:
        """The account of that name, or the first one. Raises NotFound, and names those that there are."""
        accounts = list(db.session.scalars(select(Account).order_by(Account.id)))
        for account in accounts:
            if self.account in (None, account.name):
                return account
        if not accounts:
            raise NotFound("There is no account yet: `./whetstone db upgrade` makes the first one.")
        named = ", ".join(each.name for each in accounts)
        raise NotFound(f"There is no account named {self.account!r}. There are: {named}.")

    def given_account_id(self) -> int | None:
        """Of the account that was named; None without one: what an id or an address names is found in any account."""
        return self.find_account().id if self.account else None

    def find_agent(self, name: str) -> Agent:
        """The account's agent of that name. Raises NotFound, and says where else there is one."""
        home = self.find_account()
        try:
            cleaned = clean_name(name)
        except Invalid:
            raise NotFound(f"There is no agent named {name!r}.") from None
        query = select(Account.name).join(Agent, Agent.account_id == Account.id).where(Agent.name == cleaned)
        elsewhere = list(db.session.scalars(query.order_by(Account.id)))
        if home.name in elsewhere:
            return Agent.named(home.id, cleaned)
        missing = f"There is no agent named {cleaned!r} in the account {home.name!r}"
        if elsewhere and self.account is None:
            raise NotFound(
                f"{missing}, but there is one in {elsewhere[0]!r}: add --account {shlex.quote(elsewhere[0])}."
            )
        raise NotFound(f"{missing}. `./whetstone agents list{self.account_argument}` names them all.")

    def concerns(self, rows: Any, name: str | None) -> ColumnElement[bool]:
        """The condition on rows of the agent of that name; without a name, of the account."""
        column, wanted = (rows.agent_id, self.find_agent(name)) if name else (rows.account_id, self.find_account())
        condition: ColumnElement[bool] = column == wanted.id
        return condition


def installation_command(
    *, opened: bool = True, account: bool = True, unique: bool = False, make: bool = False, with_key: bool = True
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Adds `--account` and `--json`, which the command gets as a CommandContext, and opens the installation for it.

    `opened`: False for a command that looks at its options first and then opens it by itself. `unique`: its
    arguments (an id, an address) say by themselves whose they are, and `--account` only refuses what is another's.
    `account`: False for a command about the whole installation.
    """
    option = unique_option if unique else account_option

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @wraps(command)
        def run(as_json: bool, account: str | None = None, **given: Any) -> R:
            with open_installation(make=make, with_key=with_key) if opened else nullcontext():
                return command(CommandContext(account, as_json), **given)

        return option(json_option(run)) if account else json_option(run)

    return decorate


def account_option(command: F) -> F:
    """`--account`, as the parameter `account`: a name, or None for the first account."""
    return click.option("--account", metavar="NAME", help="The account; the first one unless given.")(command)


def unique_option(command: F) -> F:
    """`--account` of a command that needs none: what it is given is looked for in that account alone."""
    return click.option("--account", metavar="NAME", help="Look in this account only.")(command)


@contextmanager
def open_installation(*, make: bool = False, with_key: bool = True) -> Iterator[Flask]:
    """An app on this installation, in its context, with the master key. Raises Misconfigured; writes nothing.

    `make`: where no database is yet, make it. `with_key`: False for what brings a lost key back, and for what an
    auditor does without one.
    """
    os.umask(0o077)
    settings = load_settings()
    if make and make_if_new(settings):
        say_on_stderr(
            f"Created a new installation in {settings.data}. "
            "Keep a copy of its master key: ./whetstone keys backup FILE"
        )
    elif not make:
        _require_database(settings)
    logs.init("ERROR")
    app = ready_app(Part.COMMAND_LINE, settings, with_key=with_key)
    with app.app_context():
        try:
            yield app
        finally:
            db.session.remove()
            if "heartbeat" in app.extensions:
                app.extensions["heartbeat"].stop()
            db.engine.dispose()


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


def _require_database(settings: Settings) -> None:
    """SQLite's file is looked for without connecting, which would make an empty one."""
    kind, _, path = settings.sqlalchemy_url.partition(":///")
    if kind == "sqlite" and not Path(path).exists():
        raise Misconfigured(
            f"There is no installation in {settings.data} yet. `./whetstone up` or `./whetstone db upgrade` makes one; "
            "WHETSTONE_DATA_DIR and DATABASE_URL say where to look."
        )
