"""`./whetstone db upgrade`: the database of this version, for installations whose parts run apart."""

from __future__ import annotations

import os
import sys

import click

from app.cli import json_option
from app.cli.printing import print_hint, print_json, say, tell_of_new_key
from app.config import load_settings
from app.setup import prepare_installation


@click.group()
def db() -> None:
    """Bring the database to this version."""


@db.command()
@json_option
def upgrade(as_json: bool) -> None:
    """Run the migrations that are missing; at first also make the master key and the first account. Safe to repeat."""
    os.umask(0o077)
    settings = load_settings()
    done = prepare_installation(settings, with_admin=False, with_words=sys.stdout.isatty() and not as_json)
    if done.made_master_key:
        tell_of_new_key(done)
    if as_json:
        print_json({"version": done.version, "version_before": done.version_before})
    elif done.version_before == done.version:
        say(f"The database is of this version already ({done.version}).")
    elif done.version_before:
        say(f"Upgraded the database from version {done.version_before} to {done.version}.")
    else:
        say(f"Created the database, version {done.version}.")
        print_hint("users create EMAIL --role owner", "Make the first user")
        print_hint("up", "Or start everything, which makes one")
