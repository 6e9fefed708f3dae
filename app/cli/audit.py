"""`./whetstone audit` and `./whetstone verify`: what was done, and the proof that nothing in the record was altered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from sqlalchemy import select

from app.cli.common import CommandContext, as_usage, installation_command, open_installation, read_text, text_file
from app.cli.found import find_row
from app.cli.printing import print_hint, print_json, print_table, say, say_on_stderr
from app.cli.receipts import check_file, receipt
from app.config import load_settings
from app.extensions import db, end_reading
from app.history.heads import export_heads, parse_heads
from app.history.verify import verify as check
from app.models import Agent, AuditLog, Refinement
from app.models.statement_log import holds_master_key, trust_claimed_installation
from app.shapes.audit import EntryShape
from app.statements.checkpointing import make_checkpoint, open_kept, overdue_words, unsent_words

PAGE = 500
CLAIMED = (
    "Nothing on this machine names the installation to trust, so the database was believed: compare the fingerprint {} "
    "with `./whetstone keys check` on the worker's host."
)
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


@click.command()
@click.option("--agent", "name", metavar="NAME", help="Only this agent's chain and memories.")
@text_file("--checkpoint", "Also a checkpoint that somebody kept: does the log extend it? - for standard input.")
@text_file("--heads", "Also compare with what `audit heads --json` printed before; - for standard input.")
@installation_command(opened=False)
def verify(context: CommandContext, name: str | None, heads: Path | None, checkpoint: Path | None) -> int:
    """Check every entry's hash and chain, and replay the log against the tables. Writes nothing.

    What decides who may read is compared with the log of statements too, whose signatures are checked. Everything,
    unless an agent or an account is named.
    """
    if checkpoint is not None and (name or context.account):
        raise click.UsageError("A checkpoint is of the whole log: leave --agent and --account out.")
    signed = [] if checkpoint is None else [(read_text(checkpoint) or "").encode()]
    with as_usage():
        kept = [] if heads is None else parse_heads((read_text(heads) or "").split("\n"))
    settings = load_settings()
    is_pinned = settings.pinned_path.exists()
    with open_installation(with_key=not is_pinned and settings.master_key_path.exists()):
        is_claimed = not (is_pinned or holds_master_key())
        claimed = trust_claimed_installation() if is_claimed else None
        agent = context.find_agent(name) if name else None
        home = context.find_account() if context.account and not agent else None
        scope = agent.name if agent else f"the account {home.name}" if home else "the whole installation"
        named = f" --agent {context.agent_argument(agent)}" if agent else context.account_argument
        verdict = check(agent, home, heads=kept, checkpoints=signed)
        if claimed is not None:
            verdict = replace(verdict, warnings=(CLAIMED.format(claimed.verifier.fingerprint), *verdict.warnings))
        is_whole = agent is None and home is None and settings.master_key_path.exists()
        if verdict.ok and is_whole and (overdue := overdue_words()) is not None:
            verdict = replace(verdict, ok=False, first_problem=overdue)
        if context.as_json:
            print_json(verdict.as_json())
            return 0 if verdict.ok else 1
        if verdict.ok:
            say(f"All is well: {verdict.entries:,} entries of {scope} are as they were written, and explain every")
            say("memory, flag, setting and total as it stands now.")
            _say_forgotten(verdict.forgotten)
            for warning in verdict.warnings:
                say(f"Look at this: {warning}")
            if signed:
                say(f"It extends the checkpoint of {open_kept(signed[0]).size:,} leaves that was kept.")
            if heads:
                say(f"{len(kept):,} exported heads still stand.")
            else:
                print_hint("audit heads", "To be sure also against whoever owns the database, keep its heads elsewhere")
            return 0
        say(f"NOT as it was written, after {verdict.entries:,} entries of {scope}:")
        say(f"  {verdict.first_problem}")
        say(f"Stop changing things, keep a copy of the database, and compare: ./whetstone audit{named} --json")
        return 1


def _say_forgotten(count: int) -> None:
    if count == 1:
        say("1 agent was forgotten: its chain is intact, and its content is gone, because no key to it is left.")
    elif count:
        say(f"{count:,} agents were forgotten: their chains are intact, and their content is gone with their keys.")


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
