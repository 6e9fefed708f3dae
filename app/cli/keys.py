"""`./whetstone keys`: check the keys, back the master key up, put it back, and rotate it or an agent's."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from app.cli import json_option
from app.cli.common import (
    account_argument,
    account_option,
    as_usage,
    day_and_time,
    find_agent,
    open_installation,
    print_facts,
    print_hint,
    print_json,
    quote_name,
    read_text,
    say,
    say_on_stderr,
    text_file,
)
from app.cli.key_checkup import KeyReport, examine_keys
from app.cli.recovery_words import show_words
from app.keys.escrow import back_up, put_back, reveal_words
from app.keys.rotation import prepare_master_rotation, rotate_agent_key, rotate_master_key
from app.keys.shredding import shred_files
from app.models import COMMAND_LINE, MasterKeyRow
from app.models.key import key_ring
from app.silo import MasterKey

IN_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)


def passphrase_file(command: click.decorators.FC) -> click.decorators.FC:
    """`--passphrase-file`, whose first line is the passphrase; asked for on a terminal without it."""
    return text_file("--passphrase-file", "The passphrase, on the first line; - for standard input.")(command)


@click.group()
def keys() -> None:
    """Check the keys, back the master key up, put it back, and rotate it or an agent's."""


@keys.command()
@json_option
def check(as_json: bool) -> int:
    """Look at the key files, and open every agent's keys and two memories of each. Shows and writes nothing.

    Also: copies for the agents' tokens, imports that wait, earlier keys that are kept, a rotation that was cut off.
    """
    with open_installation():
        report = examine_keys()
    if as_json:
        print_json(report.as_json())
    else:
        _tell_report(report)
    return 1 if report.problems else 0


@keys.command()
@click.argument("file", type=NEW_FILE, required=False)
@passphrase_file
@click.option("--words", is_flag=True, help="Show the 24 recovery words instead of writing a file.")
@json_option
def backup(file: Path | None, passphrase_file: Path | None, words: bool, as_json: bool) -> None:
    """Write the master key to FILE under a passphrase, or show its recovery words. Each account's audit log says so."""
    if words == bool(file) or (words and passphrase_file):
        raise click.UsageError("Give a FILE to write to, with a passphrase; or --words alone.")
    if file is None:
        _show_words(as_json)
    else:
        _write_backup(file, _read_passphrase(passphrase_file, new=True), as_json)


@keys.command()
@click.argument("file", type=IN_FILE, required=False)
@passphrase_file
@text_file("--words-file", "The recovery words instead of a file; - for standard input.")
@json_option
def restore(file: Path | None, passphrase_file: Path | None, words_file: Path | None, as_json: bool) -> None:
    """Write the master key's file anew from a backup FILE or its recovery words, on a machine that lost it.

    Only a key of this database is taken, and no file that is there is written over.
    """
    if bool(words_file) == bool(file) or (words_file and passphrase_file):
        raise click.UsageError("Give the FILE of a backup, with its passphrase; or --words-file alone.")
    with open_installation(with_key=False):
        if file is None:
            with as_usage():
                key = MasterKey.from_words(read_text(words_file) or "")
        else:
            key = _from_backup(file, passphrase_file)
        path, current = put_back(key), MasterKeyRow.current()
    in_use = current is not None and current.fingerprint == key.fingerprint
    if as_json:
        print_json({"fingerprint": key.fingerprint, "path": str(path), "in_use": in_use})
        return
    say(f"The master key {key.fingerprint} is back: {path}")
    if current is not None and not in_use:
        say(f"It is an earlier one. The key that is in use now is {current.fingerprint}: put that back, too.")
    print_hint("keys check", "See that it opens everything")


@keys.command()
@click.option("--agent", "name", metavar="NAME", help="Only this agent: a new data key for what it writes from now on.")
@click.option("--prepare", is_flag=True, help="Only make the next key's file, to be copied to other machines first.")
@account_option
@json_option
def rotate(name: str | None, prepare: bool, account: str | None, as_json: bool) -> int:
    """Replace the master key: seal every agent's keys to a new one. No memory is rewritten; workers go on.

    Cut off, it goes on where it was when it is run again. The old key is kept beside the new one.
    """
    if (name and prepare) or (account and not name):
        raise click.UsageError("--agent NAME, --prepare, or neither; --account belongs to --agent.")
    with open_installation():
        if name:
            return _rotate_agent(name, account, as_json)
        return _prepare_rotation(as_json) if prepare else _rotate_master(as_json)


def _tell_report(report: KeyReport) -> None:
    say(f"Master key {report.fingerprint}, {report.path}")
    opens = f" and opens all {report.keys:,} keys of {report.agents - report.forgotten:,} agents."
    say("It belongs to this database" + (opens if not report.problems else "."))
    print_facts(
        [
            ("tokens", f"{report.tokens:,}, each with its copies" if report.tokens and not report.problems else None),
            (
                "forgotten",
                f"{report.forgotten:,} agents: no key to their memories is left" if report.forgotten else None,
            ),
            ("backup", day_and_time(report.backed_up_at, "none is recorded: ./whetstone keys backup FILE")),
            *(("kept", f"{each.path}, retired {day_and_time(each.retired_at, 'not yet')}") for each in report.kept),
        ]
    )
    for problem in report.problems:
        say_on_stderr(f"Problem: {problem}")


def _show_words(as_json: bool) -> None:
    with open_installation() as app:
        words = reveal_words(by=COMMAND_LINE)
        fingerprint = app.extensions["master_key"].fingerprint
    if as_json:
        print_json({"fingerprint": fingerprint, "words": words})
        return
    say(f"The recovery words of the master key {fingerprint}. Whoever has them can read every memory.")
    show_words(words)


def _write_backup(file: Path, passphrase: str, as_json: bool) -> None:
    with open_installation(), as_usage():
        fingerprint = back_up(file.absolute(), passphrase, by=COMMAND_LINE)
    if as_json:
        print_json({"fingerprint": fingerprint, "path": str(file.absolute())})
        return
    say(f"Wrote the master key {fingerprint} to {file}, and read it back with the passphrase.")
    say("Keep it apart from the backups of the database, and the passphrase apart from both.")


def _read_passphrase(path: Path | None, *, new: bool) -> str:
    """Raises UsageError where nobody can be asked."""
    if path is not None:
        return (read_text(path) or "").partition("\n")[0].removesuffix("\r")
    if not sys.stdin.isatty():
        raise click.UsageError("Give the passphrase with --passphrase-file: there is no terminal to ask for it on.")
    answer: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
    return answer


def _from_backup(file: Path, passphrase_file: Path | None) -> MasterKey:
    """A backup under a passphrase, or a plain copy of the key's file."""
    needs_one = b"ENCRYPTED" in file.read_bytes()
    return MasterKey.load(file, _read_passphrase(passphrase_file, new=False) if needs_one or passphrase_file else None)


def _rotate_agent(name: str, account: str | None, as_json: bool) -> int:
    agent = find_agent(name, account)
    version = rotate_agent_key(agent.id, by=COMMAND_LINE)
    if as_json:
        print_json({"agent": agent.name, "version": version})
    else:
        say(f"{agent.name} writes with version {version} of its data key from now on; nothing was rewritten.")
        named = quote_name(agent.name) + account_argument(account)
        print_hint(f"audit --agent {named}", "It is in its log")
    return 0


def _prepare_rotation(as_json: bool) -> int:
    new, path = prepare_master_rotation(), key_ring().next_path
    if as_json:
        print_json({"fingerprint": new.fingerprint, "path": str(path)})
    else:
        say(f"The next master key {new.fingerprint} is ready: {path}")
        say("Copy it to the same place on every machine that runs a worker. Then: ./whetstone keys rotate")
    return 0


def _rotate_master(as_json: bool) -> int:
    done = rotate_master_key(by=COMMAND_LINE)
    shred_files()
    if as_json:
        print_json(done.as_json())
    else:
        went_on = "Went on with the rotation that was cut off. " if done.resumed else ""
        say(f"{went_on}The master key is {done.fingerprint} now, {key_ring().path}")
        say(f"{done.keys:,} keys of agents and {done.intakes:,} waiting imports were sealed anew, no memory rewritten.")
        if done.finished:
            say("The old key stays beside it: older backups of the database need it. Remove it once they are gone.")
            print_hint(
                "keys backup FILE", "Back the new key up now: the old backup and the old words open only the old key"
            )
    for what, problem in done.problems.items():
        say_on_stderr(f"Problem: {what}: {problem}")
    if not done.finished:
        say_on_stderr(
            "So the old key stays in use beside the new one. Mend that, then run `./whetstone keys rotate` again."
        )
    return 0 if done.finished else 1
