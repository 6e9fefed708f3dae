"""`./whetstone memories`: import, list and export an agent's memories. Nothing that it prints is content."""

from __future__ import annotations

from typing import BinaryIO

import click
from sqlalchemy import func, select

from app.cli.common import CommandContext, installation_command
from app.cli.printing import Cell, print_hint, print_json, print_table, say
from app.exchange.blind import blind_rows
from app.exchange.formats import MOST_BYTES
from app.exchange.parsed import ImportFormat
from app.exchange.taking_in import bring_in, check_file
from app.extensions import db
from app.models import COMMAND_LINE, Memory, MemoryText, MemoryType
from app.models.memory_text import is_text_of
from app.shapes.memory import BlindMemory
from app.values.plural import count_nouns

HEADINGS = ("ID", "TYPE", "TOKENS", "DATE (UTC)", "VERSION", "SOURCE", "FLAGS", "TAGS")
FORMATS = ("auto", "jsonl", "af", "mem0", "text", "bundle")


@click.group()
def memories() -> None:
    """Import, list and export an agent's memories, without showing their content."""


@memories.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--agent", "name", required=True, metavar="NAME", help="Whose memories they are.")
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), default="auto", show_default=True, help="What FILE is; see above."
)
@installation_command()
def import_(context: CommandContext, file: BinaryIO, name: str, kind: str) -> None:
    """Import memories from FILE, or - for standard input: all of them, or none.

    \b
    jsonl   JSON Lines, each an object: "content" (1 to 10,000 characters) and, if
            you like, "type" ("core" or "journal"), "created_at" (ISO 8601; UTC
            without an offset), "constitutional" (true or false) and "tags" (words)
    af      a Letta agent file: its memory blocks and archival passages
    mem0    what mem0's get_all returns, as JSON
    text    one memory a line
    bundle  what an agent exported of itself over the API
    auto    whichever it is, by its content and then its name; refused when unsure
    """
    agent_id, file_name = context.find_agent(name).id, str(getattr(file, "name", ""))
    wanted = None if kind == "auto" else ImportFormat(kind)
    parsed = check_file(file.read(MOST_BYTES + 1), by=COMMAND_LINE, name=file_name, format=wanted)
    done = bring_in(agent_id, parsed, by=COMMAND_LINE, name=file_name)
    copies = _exact_duplicates(agent_id)
    if context.as_json:
        counts = {"imported": done.imported, "core": done.core, "journal": done.journal, "exact_duplicates": copies}
        print_json(counts | {"format": str(parsed.format), "left_out": dict(parsed.left_out)})
        return
    agent = context.find_agent(name)
    say(f"Detected format: {parsed.format.words}.")
    say(f"Imported {count_nouns(done.imported, 'memory')}: {done.core:,} core, {done.journal:,} journal.")
    for note in parsed.notes:
        say(note)
    say(f"{agent.name} now holds {agent.core_token_usage:,} of {agent.core_token_budget:,} tokens.")
    named = context.agent_argument(agent)
    if copies:
        print_hint(f"refine {named} --mode dedup_only --wait", f"Remove only the exact duplicates ({copies:,})")
    print_hint(f"refine {named} --wait", "Let the agent refine its ledger")


@memories.command("list")
@click.argument("name")
@click.option("--discarded", is_flag=True, help="Include the soft-deleted ones.")
@click.option("--type", "kind", type=click.Choice(["core", "journal"]), help="Only these.")
@installation_command()
def list_(context: CommandContext, name: str, discarded: bool, kind: str | None) -> None:
    """List the memories of the agent NAME, oldest first: ids, dates, tokens and flags; the content stays sealed."""
    agent = context.find_agent(name)
    found = list(blind_rows(agent.id, discarded=discarded, kind=MemoryType(kind) if kind else None))
    if context.as_json:
        print_json([each.as_json() for each in found])
    elif found:
        print_table(HEADINGS, [_memory_row(each) for each in found])
        say(f"{len(found):,} memories; {agent.core_token_usage:,} tokens in the ledger. Their content is sealed.")
    else:
        say(f"{agent.name} has no such memories.")
        print_hint(f"memories import FILE --agent {context.agent_argument(agent)}", "Import some")


@memories.command()
@click.argument("name")
@click.option("--discarded", is_flag=True, help="Include the soft-deleted ones.")
@installation_command(with_key=False)
def export(context: CommandContext, name: str, discarded: bool) -> None:
    """Print the metadata of the agent NAME's memories as JSON Lines, oldest first: never their content.

    Only the agent itself exports what it remembers, over the API, with its own token.
    """
    for row in blind_rows(context.find_agent(name).id, discarded=discarded):
        print_json(row.as_json())


def _exact_duplicates(agent_id: int) -> int:
    """How many of the active core memories say the same as another one, to the letter."""
    copies = func.count() - func.count(MemoryText.content_hash.distinct())
    mine = (Memory.agent_id == agent_id, Memory.type == MemoryType.CORE, Memory.discarded_at.is_(None))
    query = select(copies).select_from(Memory).join(MemoryText, is_text_of(Memory.id, Memory.content_digest))
    return db.session.scalar(query.where(*mine)) or 0


def _memory_row(memory: BlindMemory) -> list[Cell]:
    flags = ["constitutional"] * memory.constitutional + ["discarded"] * memory.discarded
    further = f" +{len(memory.other_dates)}" if memory.other_dates else ""
    date, version = memory.origin_at[:16].replace("T", " ") + further, str(memory.version)
    told = [date, version, memory.source, ", ".join(flags), ", ".join(memory.tags)]
    return [str(memory.id), memory.type, memory.tokens, *told]
