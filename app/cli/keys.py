"""`./whetstone keys`: check the keys, back the master key up, put it back, and rotate it or an agent's."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from app.cli.common import CommandContext, as_usage, installation_command, open_installation, read_text, text_file
from app.cli.key_checkup import KeyReport, examine_keys
from app.cli.printing import day_and_time, print_facts, print_hint, print_json, say, say_on_stderr, show_words
from app.cli.web_keys import dismiss, enroll, web
from app.keys.escrow import back_up, put_back, reveal_words
from app.keys.rotation import prepare_master_rotation, rotate_agent_key, rotate_master_key
from app.keys.shredding import shred_files
from app.models import COMMAND_LINE, MasterKeyRow
from app.models.master_key import key_ring, master_key
from app.silo import MasterKey

IN_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
passphrase_file = text_file("--passphrase-file", "The passphrase, on the first line; - for standard input.")
"""Asked for on a terminal without it."""


@click.group()
def keys() -> None:
    """Check the keys, back the master key up, put it back, and rotate it or an agent's; enroll web processes."""


for command in (web, enroll, dismiss):
    keys.add_command(command)


@keys.command()
@installation_command(account=False)
def check(context: CommandContext) -> int:
    """Look at the key files, and open every agent's keys and two memories of each. Shows and writes nothing.

    Also: copies for the agents' tokens, imports that wait, earlier keys that are kept, a rotation that was cut off.
    """
    report = examine_keys()
    print_json(report.as_json()) if context.as_json else _tell_report(report)
    return 1 if report.problems else 0


@keys.command()
@click.argument("file", type=NEW_FILE, required=False)
@passphrase_file
@click.option("--words", is_flag=True, help="Show the 24 recovery words instead of writing a file.")
@installation_command(opened=False, account=False)
def backup(context: CommandContext, file: Path | None, passphrase_file: Path | None, words: bool) -> None:
    """Write the master key to FILE under a passphrase, or show its recovery words. Each account's audit log says so."""
    if words == bool(file) or (words and passphrase_file):
        raise click.UsageError("Give a FILE to write to, with a passphrase; or --words alone.")
    if file is None:
        _show_words(context)
    else:
        _write_backup(context, file, _read_passphrase(passphrase_file, new=True))


@keys.command()
@click.argument("file", type=IN_FILE, required=False)
@passphrase_file
@text_file("--words-file", "The recovery words instead of a file; - for standard input.")
@installation_command(opened=False, account=False)
def restore(context: CommandContext, file: Path | None, passphrase_file: Path | None, words_file: Path | None) -> None:
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
    if context.as_json:
        print_json({"fingerprint": key.fingerprint, "path": str(path), "in_use": in_use})
        return
    say(f"The master key {key.fingerprint} is back: {path}")
    if current is not None and not in_use:
        say(f"It is an earlier one. The key that is in use now is {current.fingerprint}: put that back, too.")
    print_hint("keys check", "See that it opens everything")


@keys.command()
@click.option("--agent", "name", metavar="NAME", help="Only this agent: a new data key for what it writes from now on.")
@click.option("--prepare", is_flag=True, help="Only make the next key's file, to be copied to other machines first.")
@installation_command(opened=False)
def rotate(context: CommandContext, name: str | None, prepare: bool) -> int:
    """Replace the master key: seal every agent's keys to a new one. No memory is rewritten; workers go on.

    Cut off, it goes on where it was when it is run again. The old key is kept beside the new one.
    """
    if (name and prepare) or (context.account and not name):
        raise click.UsageError("--agent NAME, --prepare, or neither; --account belongs to --agent.")
    with open_installation():
        if not name and not prepare:
            return _rotate_master(context)
        _rotate_agent(context, name) if name else _prepare_rotation(context)
        return 0


def _tell_report(report: KeyReport) -> None:
    say(f"Master key {report.fingerprint}, {report.path}")
    opens = f" and opens all {report.keys:,} keys of {report.agents - report.forgotten:,} agents."
    say("It belongs to this database" + (opens if not report.problems else "."))
    no_key = "no key to their memories is left"
    print_facts(
        [
            ("statements", f"signed by the installation key {report.signing_fingerprint}"),
            ("tokens", f"{report.tokens:,}, each with its copies" if report.tokens and not report.problems else None),
            ("forgotten", f"{report.forgotten:,} agents: {no_key}" if report.forgotten else None),
            ("backup", day_and_time(report.backed_up_at, "none is recorded: ./whetstone keys backup FILE")),
            *(("kept", f"{each.path}, retired {day_and_time(each.retired_at, 'not yet')}") for each in report.kept),
        ]
    )
    for problem in report.problems:
        say_on_stderr(f"Problem: {problem}")


def _show_words(context: CommandContext) -> None:
    with open_installation():
        words, fingerprint = reveal_words(by=COMMAND_LINE), master_key().fingerprint
    if context.as_json:
        print_json({"fingerprint": fingerprint, "words": words})
        return
    say(f"The recovery words of the master key {fingerprint}. Whoever has them can read every memory.")
    show_words(words)


def _write_backup(context: CommandContext, file: Path, passphrase: str) -> None:
    with open_installation(), as_usage():
        fingerprint = back_up(file.absolute(), passphrase, by=COMMAND_LINE)
    if context.as_json:
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


def _rotate_agent(context: CommandContext, name: str) -> None:
    agent = context.find_agent(name)
    version = rotate_agent_key(agent.id, by=COMMAND_LINE)
    if context.as_json:
        print_json({"agent": agent.name, "version": version})
        return
    say(f"{agent.name} writes with version {version} of its data key from now on; no memory was rewritten.")
    print_hint(f"audit --agent {context.agent_argument(agent)}", "It is in its log")


def _prepare_rotation(context: CommandContext) -> None:
    new, path = prepare_master_rotation(), key_ring().next_path
    if context.as_json:
        print_json({"fingerprint": new.fingerprint, "path": str(path)})
        return
    say(f"The next master key {new.fingerprint} is ready: {path}")
    say("Copy it to the same place on every machine that runs a worker. Then: ./whetstone keys rotate")


def _rotate_master(context: CommandContext) -> int:
    done = rotate_master_key(by=COMMAND_LINE)
    shred_files()
    if context.as_json:
        print_json(vars(done))
    else:
        went_on = "Went on with the rotation that was cut off. " if done.resumed else ""
        say(f"{went_on}The master key is {done.fingerprint} now, {key_ring().path}")
        say(f"{done.keys:,} keys of agents and {done.intakes:,} waiting imports were sealed anew, no memory rewritten.")
        if done.finished:
            say("The old key stays beside it: older backups of the database need it. Remove it once they are gone.")
            why = "Back the new key up now: the old backup and the old words open only the old key"
            print_hint("keys backup FILE", why)
    for what, problem in done.problems.items():
        say_on_stderr(f"Problem: {what}: {problem}")
    if not done.finished:
        say_on_stderr(
            "So the old key stays in use beside the new one. Mend that, then run `./whetstone keys rotate` again."
        )
    return 0 if done.finished else 1
