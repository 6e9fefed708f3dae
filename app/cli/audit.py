"""`./whetstone audit`: what was done, and what to keep elsewhere so that nobody can alter it unnoticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from sqlalchemy import select

from app.cli.common import CommandContext, installation_command, open_installation
from app.cli.found import find_row
from app.cli.printing import print_json, print_table, say, say_on_stderr
from app.cli.receipts import check_file, receipt
from app.extensions import db, end_reading
from app.history.heads import export_heads
from app.models import Agent, AuditLog, Refinement
from app.shapes.audit import EntryShape
from app.statements.checkpointing import make_checkpoint, open_kept, unsent_words

PAGE = 500
LINE = "{at:<19}  {id:>8}  {actor:<28}  {action:<34}  {agent:<16}  {subject}"


@click.group(invoke_without_command=True)
@click.option("--agent", "name", metavar="NAME", help="Only what concerns this agent.")
@click.option("--refinement", metavar="ID", help="Only what belongs to this refinement.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N entries.")
@installation_command(opened=False)
def audit(context: CommandContext, name: str | None, refinement: str | None, last: int | None) -> None:
    """Print the audit log, oldest first: JSON Lines with --json, else a line an entry. It never holds content."""
    clicked = click.get_current_context()
    if clicked.invoked_subcommand:
        if any(clicked.params.values()):  # options of the log mean nothing to a command behind it
            raise click.UsageError(f"Put the options after `audit {clicked.invoked_subcommand}`.")
        return
    with open_installation(with_key=False):
        wanted = _entry_conditions(context, name, refinement)
        if not context.as_json:
            names = {"at": "TIME (UTC)", "id": "ENTRY", "actor": "WHO", "action": "WHAT"}
            say(click.style(LINE.format(**names, agent="AGENT", subject="ABOUT"), dim=True))
        count = 0
        for entry in _read_entries(wanted, last):
            print_json(entry.as_json()) if context.as_json else say(_entry_line(entry))
            count += 1
        if not context.as_json:
            say(f"{count:,} entries. `./whetstone verify` proves that none was altered.")


for command in (receipt, check_file):
    audit.add_command(command)


@audit.command()
@installation_command(with_key=False)
def heads(context: CommandContext) -> None:
    """Print the last hash of every chain, of all accounts unless one is named: JSON Lines with --json.

    Keep them elsewhere: whoever can change the database can't change them there. `./whetstone verify --heads` compares.
    """
    exported = export_heads(context.find_account().id if context.account else None)
    if context.as_json:
        for head in exported:
            print_json(head.as_json())
        return
    rows = [(head.chain, head.agent, head.account, head.sequence, head.hash[:16]) for head in exported]
    print_table(("CHAIN", "AGENT", "ACCOUNT", "ENTRIES", "HASH, ITS BEGINNING"), rows)
    say("Store them where nobody who can change this database can write, and append each time:")
    say("  ./whetstone audit heads --json >> /elsewhere/heads.jsonl")
    say("Then `./whetstone verify --heads FILE` also finds a log that was cut off, or written anew.")


@audit.command()
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write it to FILE.")
@installation_command(account=False)
def checkpoint(context: CommandContext, out: Path | None) -> None:
    """Sign the log of statements as it is now, and print that: a signed note of three lines.

    Keep it elsewhere, or give it to others. `./whetstone verify --checkpoint FILE` says whether the log still extends
    it. Workers make one every hour.
    """
    note = make_checkpoint()
    if out is not None:
        _write_note(out, note)
    if context.as_json:
        signed = open_kept(note)
        print_json({"origin": signed.origin, "size": signed.size, "root": signed.root.hex(), "note": note.decode()})
        return
    say(note.decode().rstrip("\n"))
    if (unsent := unsent_words()) is not None:
        say_on_stderr(unsent)


def _write_note(path: Path, note: bytes) -> None:
    try:
        path.write_bytes(note)
    except OSError as error:
        raise click.UsageError(f"{path} can't be written: {error.strerror}.") from None


def _entry_conditions(context: CommandContext, name: str | None, refinement: str | None) -> list[Any]:
    """The conditions on an entry. A refinement's id says which account; without any, it is one account's log."""
    conditions: list[Any] = []
    if refinement:
        conditions.append(AuditLog.refinement_id == find_row(Refinement, refinement).id)
    if name:
        conditions.append(AuditLog.agent_id == context.find_agent(name).id)
    if context.account or not conditions:
        conditions.append(AuditLog.account_id == context.find_account().id)
    return conditions


def _read_entries(wanted: list[Any], last: int | None) -> Iterator[EntryShape]:
    """Page by page behind the last id seen, each page a short read: a log of any length, and no lock while printing."""
    query = select(AuditLog, Agent.name).outerjoin(Agent, Agent.id == AuditLog.agent_id).where(*wanted)
    after = _id_before_the_last(wanted, last)
    while True:
        page = db.session.execute(query.where(AuditLog.id > after).order_by(AuditLog.id).limit(PAGE)).tuples().all()
        told = [EntryShape.of(entry, agent=name) for entry, name in page]
        end_reading()
        db.session.expunge_all()
        yield from told
        if len(page) < PAGE:
            return
        after = told[-1].id


def _id_before_the_last(wanted: list[Any], last: int | None) -> int:
    if last is None:
        return 0
    newest = select(AuditLog.id).where(*wanted).order_by(AuditLog.id.desc())
    return db.session.scalar(newest.offset(last).limit(1)) or 0


def _entry_line(entry: EntryShape) -> str:
    return LINE.format(**vars(entry) | {"at": entry.at[:19].replace("T", " "), "agent": entry.agent or "–"})
