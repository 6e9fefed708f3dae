"""`./whetstone memories`: import, list, export and erase an agent's memories. Nothing that it prints is content."""

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
from app.history.erasing import erase_memory
from app.keys.shredding import shred_files
from app.models import COMMAND_LINE, Memory, MemoryText, MemoryType
from app.models.memory_text import is_text_of
from app.shapes.memory import BlindMemory
from app.values.merge_depth import MergeDepth
from app.values.plural import count_nouns
from app.vocabulary.rollbacks import describe_memories

HEADINGS = ("ID", "TYPE", "TOKENS", "DATE (UTC)", "VERSION", "SOURCE", "FLAGS", "TAGS")
FORMATS = ("auto", "jsonl", "af", "mem0", "text", "bundle")


@click.group()
def memories() -> None:
    """Import, list, export and erase an agent's memories, without showing their content."""


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


@memories.command()
@click.argument("memory_id", metavar="ID", type=int)
@click.option("--agent", "name", required=True, metavar="NAME", help="Whose memory it is.")
@click.option("--reason", required=True, help="Why. The audit log keeps it and the agent is told: quote nothing.")
@installation_command()
def erase(context: CommandContext, memory_id: int, name: str, reason: str) -> None:
    """Erase the memory ID for good: its text, of all its states, is removed. Nothing undoes this.

    The audit log keeps who did it, when and why. What refinements made from it stays, and is named. Backups of the
    database hold it until they age out.
    """
    agent = context.find_agent(name)
    if not reason.strip():
        raise click.UsageError("Say why: the agent is told.")
    done = erase_memory(agent.id, memory_id, by=COMMAND_LINE, reason=reason)
    shredded = shred_files()
    if context.as_json:
        print_json(done.as_json() | {"shredded": shredded})
        return
    say(f"Erased memory {memory_id} of {agent.name}, with {count_nouns(done.states, 'state')}.")
    if done.made:
        say(f"Made from it, and still there: {describe_memories(done.made)}.")
    if done.copies:
        say(f"The same words stand in {describe_memories(done.copies)}.")
    say("Backups of the database from before still hold it until they age out.")
    print_hint(f"verify --agent {context.agent_argument(agent)}", "Its record stays; check that it is intact")


def _exact_duplicates(agent_id: int) -> int:
    """How many of the active core memories say the same as another one, to the letter."""
    copies = func.count() - func.count(MemoryText.content_hash.distinct())
    mine = (Memory.agent_id == agent_id, Memory.type == MemoryType.CORE, Memory.discarded_at.is_(None))
    query = select(copies).select_from(Memory).join(MemoryText, is_text_of(Memory.id, Memory.content_digest))
    return db.session.scalar(query.where(*mine)) or 0


def _memory_row(memory: BlindMemory) -> list[Cell]:
    depth = MergeDepth(memory.merged_sources, memory.merges).words
    flags = ["constitutional"] * memory.constitutional + ["discarded"] * memory.discarded + [depth] * bool(depth)
    further = f" +{len(memory.other_dates)}" if memory.other_dates else ""
    date, version = memory.origin_at[:16].replace("T", " ") + further, str(memory.version)
    told = [date, version, memory.source, ", ".join(flags), ", ".join(memory.tags)]
    return [str(memory.id), memory.type, memory.tokens, *told]
