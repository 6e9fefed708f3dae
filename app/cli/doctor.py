"""`./whetstone doctor`: looks at every part of this installation, and says what to do about what is wrong."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from app.cli import json_option
from app.cli.checkup import Finding, examine_installation
from app.cli.printing import print_json, say
from app.config import load_settings

MARKS = {"ok": ("ok", "green"), "warn": ("look", "yellow"), "fail": ("FAIL", "red"), "skipped": ("–", "white")}


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Check database, version, key, broker, worker, beat, disk and clock: a line each, with what to do. Writes nothing.

    Exit status: 0 when nothing fails, 1 otherwise.
    """
    os.umask(0o077)
    settings = load_settings()
    if not as_json:
        say(f"Whetstone in {settings.data}")
    found: list[Finding] = []
    for finding in examine_installation(settings):
        found.append(finding)
        if not as_json:
            _tell_finding(finding)
    ok = all(finding.state != "fail" for finding in found)
    if as_json:
        print_json({"ok": ok, "checks": [asdict(finding) for finding in found]})
    else:
        say("Nothing is wrong." if ok else "Mend what FAILs, from the top down.")
    return 0 if ok else 1


def _tell_finding(finding: Finding) -> None:
    word, color = MARKS[finding.state]
    say(f"  {click.style(word.ljust(4), fg=color)}  {finding.name:<9}  {finding.detail}")
    if finding.fix:
        say(f"  {'':<4}  {'':<9}  → {finding.fix}")
