"""Import: drafts into a ledger, all or none, recorded as one entry that one undo takes back; and our JSON Lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import BinaryIO

from app.errors import Invalid
from app.exchange.draft import MOST_DRAFTS, Checking, Draft, TooManyProblems, parse_draft, parse_json
from app.extensions import db, writing
from app.models.agent import Agent
from app.models.audit import Action, record
from app.models.base import reserve_ids
from app.models.human_act import tell_later
from app.models.memory import Memory
from app.models.state import Source
from app.silo import AgentKeys
from app.values.actor import Actor

MAX_LINES = MOST_DRAFTS
MAX_LINE = 200_000
"""Bytes of one line: 10,000 characters in their longest JSON form, and room for the rest."""

Line = str | bytes


@dataclass(frozen=True)
class Imported:
    """What an import wrote: counts, and the mass that it added to the ledger, in tokens."""

    imported: int
    core: int
    journal: int
    constitutional: int
    core_tokens: int


def import_memories(
    agent_id: int, lines: Iterable[Line], *, keys: AgentKeys, by: Actor, name: str = "jsonl"
) -> Imported:
    """Read every line, then write all of them in one transaction. Raises ImportRefused, with nothing written."""
    drafts = parse_lines(lines)
    with writing():
        return write_memories(Agent.lock(agent_id), drafts, keys=keys, by=by, name=name)


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, none longer than what `parse_lines` refuses, so that no file can fill the memory."""
    return iter(lambda: file.readline(MAX_LINE + 1), b"")


def parse_lines(lines: Iterable[Line]) -> list[Draft]:
    """Check every line; blank ones are skipped. Raises ImportRefused with the first problems and their number."""
    checking = Checking()
    for number, line in enumerate(lines, start=1):
        with checking.of("line", number) as drafts:
            _check_size(number, line)
            drafts += _parse_line(line)
        if checking.is_over:
            break
    return checking.result()


def write_memories(agent: Agent, drafts: Sequence[Draft], *, keys: AgentKeys, by: Actor, name: str) -> Imported:
    """Write and record them in the caller's transaction, which holds the agent's lock. None leave no entry.

    `name` is the import's, at most 80 characters on one line: their source tells it.
    """
    ids = reserve_ids(db.session(), "memories", len(drafts))
    memories = [
        _write_memory(agent, each, number, keys, f"{Source.IMPORT}:{name}")
        for number, each in zip(ids, drafts, strict=True)
    ]
    done = _count_imported(memories)
    if not memories:
        return done
    entry = record(Action.IMPORT, actor=by, of=agent, subject=agent.subject, data=asdict(done), memories=memories)
    tell_later(entry)
    agent.announce("imported", **asdict(done))
    return done


def decode_text(line: Line) -> str:
    """UTF-8 without a byte order mark at either end. Raises Invalid."""
    try:
        return (line if isinstance(line, str) else line.decode()).strip("\ufeff \t\r\n")
    except UnicodeDecodeError as error:
        raise Invalid(f"It is not UTF-8 text (byte {error.start + 1:,}).") from None


def _check_size(number: int, line: Line) -> None:
    if number > MAX_LINES:
        raise TooManyProblems(f"One import takes at most {MAX_LINES:,} lines; split the file. The rest was not read.")
    if len(line) > MAX_LINE:
        raise TooManyProblems(
            f"It is longer than {MAX_LINE:,} bytes, so it is no line of JSON Lines. The rest was not read."
        )


def _parse_line(line: Line) -> list[Draft]:
    """The memory of one line, or none for a blank line. Raises Invalid."""
    text = decode_text(line)
    return [parse_draft(parse_json(text))] if text else []


def _write_memory(agent: Agent, each: Draft, number: int, keys: AgentKeys, source: str) -> Memory:
    return Memory.write(
        agent,
        each.content,
        keys=keys,
        source=source,
        type_=each.type,
        tags=each.tags,
        origin_at=each.origin_at,
        other_dates=each.other_dates,
        constitutional=each.constitutional,
        memory_id=number,
    )


def _count_imported(memories: Sequence[Memory]) -> Imported:
    core = [memory for memory in memories if memory.is_core]
    return Imported(
        imported=len(memories),
        core=len(core),
        journal=len(memories) - len(core),
        constitutional=sum(memory.constitutional for memory in core),
        core_tokens=sum(memory.token_estimate for memory in core),
    )
