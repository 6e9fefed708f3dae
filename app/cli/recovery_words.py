"""The recovery words of the master key, as a person writes them down."""

from __future__ import annotations

from collections.abc import Sequence

import click

IN_A_ROW = 4


def show_words(words: Sequence[str]) -> None:
    """On stdout, numbered, to be read row by row; as they stand there, `keys restore` takes them back."""
    numbered = [f"{place:>2}. {word:<9}" for place, word in enumerate(words, start=1)]
    for first in range(0, len(numbered), IN_A_ROW):
        click.echo("  " + "  ".join(numbered[first : first + IN_A_ROW]).rstrip())


def tell_of_new_key(path: str, words: str) -> None:
    """At first start: what was made and how to keep it. The words only where somebody reads them."""
    click.echo(f"Created the master key {path}. Back it up: without this key, memories can't be decrypted.", err=True)
    if not words:
        click.echo("To keep a copy: ./whetstone keys backup FILE, or ./whetstone keys backup --words", err=True)
        return
    click.echo(
        "Its recovery words, shown now and in no log. Write them on paper, and keep that apart from backups of the"
    )
    click.echo(
        "database: with them `./whetstone keys restore` makes the key anew, and whoever has them can read every memory."
    )
    show_words(words.split())
    click.echo()
