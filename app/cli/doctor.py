"""`./whetstone doctor`: looks at every part, in the order in which faults are mended, and says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from app import Part, create_app, logs
from app.cli import json_option
from app.cli.printing import print_json, say
from app.config import Settings, load_settings
from app.extensions import db
from app.installation.checks import ON_THE_HOST
from app.installation.findings import CheckScope, Finding, examine_parts, findings_as_json, is_well

MARKS = {"ok": ("ok", "green"), "warn": ("look", "yellow"), "fail": ("FAIL", "red"), "skipped": ("–", "white")}


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check database, version, keys, log, broker, worker, beat, disk and clock: a line each, with what to do.

    Exit status: 0 when nothing fails, 1 otherwise.
    """
    os.umask(0o077)
    settings = load_settings()
    if not as_json:
        say(f"Whetstone in {settings.data}")
    found: list[Finding] = []
    for finding in _examine_installation(settings):
        found.append(finding)
        if not as_json:
            _tell_finding(finding)
    if as_json:
        print_json(findings_as_json(found))
    else:
        say("Nothing is wrong." if is_well(found) else "Mend what FAILs, from the top down.")
    return 0 if is_well(found) else 1


def _tell_finding(finding: Finding) -> None:
    word, color = MARKS[finding.state]
    say(f"  {click.style(word.ljust(4), fg=color)}  {finding.name:<10}  {finding.detail}")
    if finding.fix:
        say(f"  {'':<4}  {'':<10}  → {finding.fix}")


def _examine_installation(settings: Settings) -> Iterator[Finding]:
    logs.init("ERROR")
    with create_app(settings, part=Part.COMMAND_LINE).app_context():
        yield from examine_parts(ON_THE_HOST, CheckScope(settings))
        db.session.remove()
        db.engine.dispose()
