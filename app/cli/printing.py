"""How commands print: JSON for programs; sentences, facts, tables, hints and recovery words for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click

from app.processes.quickcheck import PreparedInstallation

Cell = str | int | None

WORDS_IN_A_ROW = 4


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
    lines = [list(headings), *([_format_cell(cell) for cell in row] for row in found)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for index, line in enumerate(lines):
        shape = zip(line, widths, numeric, strict=True)
        text = "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in shape).rstrip()
        say(text if index else click.style(text, dim=True))


def print_facts(pairs: Iterable[tuple[str, Cell]]) -> None:
    """Names and values, one a line, aligned; those without a value are left out."""
    shown = [(name, _format_cell(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"  {name.ljust(width)}  {value}")


def day_and_time(moment: datetime | None, otherwise: str = "never") -> str:
    """For people: UTC, to the minute."""
    return otherwise if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def show_words(words: Sequence[str]) -> None:
    """On stdout, numbered, to be read row by row; as they stand there, `keys restore` takes them back."""
    numbered = [f"{place:>2}. {word:<9}" for place, word in enumerate(words, start=1)]
    for first in range(0, len(numbered), WORDS_IN_A_ROW):
        say("  " + "  ".join(numbered[first : first + WORDS_IN_A_ROW]).rstrip())


def tell_of_new_key(made: PreparedInstallation) -> None:
    """At first start: what was made and how to keep it. The words only where somebody reads them."""
    path, words = made.made_master_key, made.recovery_words
    say_on_stderr(f"Created the master key {path}. Back it up: without this key, memories can't be decrypted.")
    if not words:
        say_on_stderr("To keep a copy: ./whetstone keys backup FILE, or ./whetstone keys backup --words")
        say_on_stderr(f"Receipts are signed by the installation key with the fingerprint {made.signing_fingerprint}")
        return
    say("Its recovery words, shown now and in no log. Write them on paper, and keep that apart from backups of the")
    say(
        "database: with them `./whetstone keys restore` makes the key anew, and whoever has them can read every memory."
    )
    show_words(words.split())
    say()
    say("Write beside them the fingerprint of the key that signs this installation's receipts; it is no secret:")
    say(f"  {made.signing_fingerprint}")
    say()


def _format_cell(value: Cell) -> str:
    return f"{value:,}" if isinstance(value, int) else value or "–"
