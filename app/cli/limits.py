"""`./whetstone limits`: what the operator set, as every process started here reads it. No secrets."""

from __future__ import annotations

import click

from app.cli import json_option
from app.cli.printing import print_facts, print_json, say
from app.config import load_settings
from app.installation.limits import limits_as_json, read_limits


@click.command()
@json_option
def limits(as_json: bool) -> None:
    """Print the operator's limits and settings: value, where it comes from, and what it means. Never a secret."""
    groups = read_limits(load_settings(), with_host=True)
    if as_json:
        print_json(limits_as_json(groups))
        return
    for group in groups:
        say(group.title)
        print_facts((each.name, f"{each.words} ({each.source}). {each.meaning}") for each in group.limits)
        say()
