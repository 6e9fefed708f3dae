"""`./whetstone restore accept`: after a restore from a backup, let its log of statements be the one that counts."""

from __future__ import annotations

import click

from app.cli.common import CommandContext, installation_command
from app.cli.printing import print_hint, print_json, say
from app.history.restored import RestoredLog, accept_restored_log, examine_restored_log
from app.keys.shredding import shred_files
from app.models.statement import StatementKind
from app.values.plural import count_nouns

NOUNS = {
    StatementKind.TOKEN_ENDED: "revocation of a token",
    StatementKind.EXCEPTION_ENDED: "end of an exception",
    StatementKind.ERASURE: "erasure of a memory",
}


@click.group()
def restore() -> None:
    """Go on after a restore from a backup."""


@restore.command()
@click.option("--yes", "is_sure", is_flag=True, help="Do it; without this it only says what it would do.")
@installation_command(account=False)
def accept(context: CommandContext, is_sure: bool) -> int:
    """Accept that the database was put back to an earlier state, on purpose: until then nothing is opened.

    What the backup must not undo is done again first: revocations of tokens, ends of exceptions, erasures. What else
    was decided since the backup is lost: tokens made since open nothing, and answers since count as not given.

    Exit status: 0 done, or told what would be done; 3 there is nothing to accept.
    """
    found = accept_restored_log() if is_sure else examine_restored_log()
    if is_sure:
        shred_files()
    if context.as_json:
        again = {str(kind): found.count(kind) for kind in NOUNS}
        print_json({"accepted": is_sure, "leaves": found.leaves, "seen": found.seen, "again": again})
        return 0
    _tell(found, is_sure)
    return 0


def _tell(found: RestoredLog, is_done: bool) -> None:
    say(f"The restored log of statements has {found.leaves:,} leaves; this machine had seen {found.seen:,}.")
    for kind, noun in NOUNS.items():
        if found.count(kind):
            again = "done again" if is_done else "to be done again"
            say(f"  {count_nouns(found.count(kind), noun.split(' ')[0])}{noun[len(noun.split(' ')[0]) :]}: {again}")
    if is_done:
        say("Accepted: the database's log is the one that counts. The copy of before lies beside the new one.")
        print_hint("verify", "Check what the backup holds")
    else:
        say("Nothing was changed yet.")
        print_hint("restore accept --yes", "If you have restored a backup on purpose, accept it")
