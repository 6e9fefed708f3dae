"""`whetstone memories`: import and list an agent's memories. Nothing that it prints is content."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import click

from app.cli import json_option
from app.cli.common import (
    account_argument,
    account_option,
    emit,
    find_agent,
    hint,
    opened,
    quoted,
    say,
    table,
)
from app.models.base import iso

BAR_FROM_BYTES = 500_000
"""Smaller files are read before a bar could be seen."""


@click.group()
def memories() -> None:
    """Import and list an agent's memories, without their content."""


@memories.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--agent", "name", required=True, metavar="NAME", help="Whose memories they are.")
@account_option
@json_option
def import_(file: BinaryIO, name: str, account: str | None, as_json: bool) -> None:
    """Import memories from JSON Lines (FILE, or - for standard input): all of them, or none.

    Each line is an object: "content" (1 to 10,000 characters) and, if you like, "type" ("core" or "journal"),
    "created_at" (ISO 8601; UTC without an offset), "constitutional" (true or false) and "tags" (a list of words).
    """
    with opened():
        from app.extensions import writing
        from app.models import COMMAND_LINE, Agent
        from app.models.importing import parse_lines, write_memories
        from app.models.provision import ensure_keys

        found = find_agent(name, account)
        with _reading(file, as_json) as lines:
            drafts = parse_lines(lines)
        with writing():
            agent = Agent.lock(found.id)
            done = write_memories(agent, drafts, keys=ensure_keys(agent), by=COMMAND_LINE)
        copies = _exact_duplicates(agent.id)
        if as_json:
            emit({"imported": done.imported, "core": done.core, "journal": done.journal, "exact_duplicates": copies})
            return
        say(f"Imported {done.imported:,} memories: {done.core:,} core, {done.journal:,} journal.")
        say(f"{agent.name} now holds {agent.core_token_usage:,} of {agent.core_token_budget:,} tokens.")
        named = quoted(agent.name) + account_argument(account)
        if copies:
            hint(f"refine {named} --mode dedup_only --wait", f"Remove only the exact duplicates ({copies:,})")
        hint(f"refine {named} --wait", "Let the agent refine its ledger")


@memories.command("list")
@click.argument("name")
@click.option("--discarded", is_flag=True, help="Include the soft-deleted ones.")
@click.option("--type", "kind", type=click.Choice(["core", "journal"]), help="Only these.")
@account_option
@json_option
def list_(name: str, discarded: bool, kind: str | None, account: str | None, as_json: bool) -> None:
    """List the memories of the agent NAME, oldest first: ids, dates, tokens and flags; the content stays sealed."""
    with opened():
        agent = find_agent(name, account)
        found = _memories(agent.id, discarded, kind)
        if as_json:
            emit(found)
        elif found:
            headings = ("ID", "TYPE", "TOKENS", "FROM (UTC)", "VERSION", "FLAGS", "TAGS")
            table(headings, [_row(each) for each in found])
            say(f"{len(found):,} memories; {agent.core_token_usage:,} tokens in the ledger. Their content is sealed.")
        else:
            say(f"{agent.name} has no such memories.")
            hint(f"memories import FILE --agent {quoted(agent.name)}{account_argument(account)}", "Import some")


@contextmanager
def _reading(file: BinaryIO, as_json: bool) -> Iterator[Iterator[bytes]]:
    """The file's lines, with a bar on the terminal while a large one is read."""
    from app.models.importing import read_lines

    size = _bytes_left(file) if file.seekable() else 0
    if as_json or size < BAR_FROM_BYTES or not sys.stderr.isatty():
        yield read_lines(file)
        return
    with click.progressbar(length=size, label="Reading", file=sys.stderr) as bar:
        yield _counted(read_lines(file), bar)


def _bytes_left(file: BinaryIO) -> int:
    begin = file.tell()
    size = file.seek(0, os.SEEK_END) - begin
    file.seek(begin)
    return size


def _counted(lines: Iterator[bytes], bar: Any) -> Iterator[bytes]:
    for line in lines:
        bar.update(len(line))
        yield line


def _exact_duplicates(agent_id: int) -> int:
    """How many of the active core memories say the same as another one, to the letter."""
    from sqlalchemy import func, select

    from app.extensions import db
    from app.models import Memory, MemoryType

    copies = func.count() - func.count(Memory.content_hash.distinct())
    mine = (Memory.agent_id == agent_id, Memory.type == MemoryType.CORE, Memory.discarded_at.is_(None))
    return db.session.scalar(select(copies).where(*mine)) or 0


def _memories(agent_id: int, discarded: bool, kind: str | None) -> list[dict[str, Any]]:
    from sqlalchemy import select

    from app.extensions import db
    from app.models import Memory

    columns = (
        Memory.id,
        Memory.type,
        Memory.token_estimate,
        Memory.constitutional,
        Memory.tags,
        Memory.origin_at,
        Memory.discarded_at,
        Memory.version,
    )
    query = select(*columns).where(Memory.agent_id == agent_id).order_by(Memory.origin_at, Memory.id)
    if not discarded:
        query = query.where(Memory.discarded_at.is_(None))
    if kind:
        query = query.where(Memory.type == kind)
    return [
        {
            "id": row.id,
            "type": str(row.type),
            "tokens": row.token_estimate,
            "constitutional": row.constitutional,
            "tags": row.tags,
            "origin_at": iso(row.origin_at),
            "discarded": row.discarded_at is not None,
            "discarded_at": iso(row.discarded_at),
            "version": row.version,
        }
        for row in db.session.execute(query)
    ]


def _row(memory: dict[str, Any]) -> list[str | int]:
    flags = ["constitutional"] * memory["constitutional"] + ["discarded"] * memory["discarded"]
    return [
        str(memory["id"]),
        memory["type"],
        memory["tokens"],
        memory["origin_at"][:16].replace("T", " "),
        str(memory["version"]),
        ", ".join(flags),
        ", ".join(memory["tags"]),
    ]
