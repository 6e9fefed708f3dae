"""Import: memories from JSON Lines into a ledger, all or none, recorded as one entry that one undo takes back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO

from app.errors import Invalid
from app.extensions import db, now, writing
from app.models.actor import Actor
from app.models.agent import Agent
from app.models.audit import Action, record
from app.models.base import reserve_ids
from app.models.event import announce
from app.models.memory import Memory, MemoryType
from app.models.text import clean_content, clean_tags
from app.silo import AgentKeys

KEYS = ("content", "type", "created_at", "constitutional", "tags")
"""What a line may hold; only `content` must be there."""

MAX_LINES = 20_000
"""Lines of one import: it is one transaction, and everybody else's changes wait for it."""

MAX_LINE = 200_000
"""Bytes of one line: 10,000 characters in their longest JSON form, and room for the rest."""

SHOWN_PROBLEMS = 10
EARLIEST_YEAR = 1000
FUTURE_SLACK = timedelta(days=1)
"""A writer's local time may be ahead of UTC. Later dates would keep a journal entry from ever fading."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,29}", re.ASCII)

Line = str | bytes


@dataclass(frozen=True)
class Draft:
    """One line, checked: a memory to be. `origin_at` is when it speaks from; None is the moment of the import."""

    content: str = field(repr=False)
    type: MemoryType = MemoryType.CORE
    origin_at: datetime | None = None
    constitutional: bool = False
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Imported:
    """What an import wrote: counts, and the mass that it added to the ledger, in tokens."""

    imported: int
    core: int
    journal: int
    constitutional: int
    core_tokens: int


@dataclass(frozen=True)
class Problem:
    """What is wrong with one line. The sentence never holds any of its content."""

    line: int
    sentence: str

    def __str__(self) -> str:
        return f"line {self.line:,}: {self.sentence}"


class ImportRefused(Invalid):
    """Some lines can't be used; nothing was imported."""

    code = "import_refused"

    def __init__(self, problems: Sequence[Problem], *, total: int, lines: int) -> None:
        self.problems = tuple(problems)
        self.total = total
        count = "1 line" if total == 1 else f"{total:,} lines"
        more = [f"and {total - len(problems):,} more"] if total > len(problems) else []
        said = "\n".join(f"  {each}" for each in [*problems, *more])
        super().__init__(f"Nothing was imported: {count} of {lines:,} can't be used.\n{said}")


def import_memories(agent_id: int, lines: Iterable[Line], *, keys: AgentKeys, by: Actor) -> Imported:
    """Read every line, then write all of them in one transaction. Raises ImportRefused, with nothing written."""
    drafts = parse_lines(lines)
    with writing():
        return write_memories(Agent.lock(agent_id), drafts, keys=keys, by=by)


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, none longer than what `parse_lines` refuses, so that no file can fill the memory."""
    return iter(lambda: file.readline(MAX_LINE + 1), b"")


def parse_lines(lines: Iterable[Line]) -> list[Draft]:
    """Check every line; blank ones are skipped. Raises ImportRefused with the first problems and their number."""
    drafts: list[Draft] = []
    problems: list[Problem] = []
    total = number = 0
    for number, line in enumerate(lines, start=1):
        try:
            _check_size(number, line)
            drafts += _drafts(line)
        except Invalid as error:
            total += 1
            problems += [Problem(number, error.sentence)] if total <= SHOWN_PROBLEMS else []
            if isinstance(error, _TooMuch):
                break
    if problems:
        raise ImportRefused(problems, total=total, lines=number)
    if not drafts:
        raise Invalid("There are no memories in it: not one line holds anything. Nothing was imported.")
    return drafts


def write_memories(agent: Agent, drafts: Sequence[Draft], *, keys: AgentKeys, by: Actor) -> Imported:
    """Write and record them in the caller's transaction, which holds the agent's lock."""
    ids = reserve_ids(db.session(), "memories", len(drafts))
    memories = [_write(agent, draft, number, keys) for number, draft in zip(ids, drafts, strict=True)]
    done = _count(memories)
    record(Action.IMPORT, actor=by, of=agent, subject=agent.subject, data=asdict(done), memories=memories)
    announce("agent.imported", account_id=agent.account_id, agent_id=agent.id, data=asdict(done))
    return done


def _write(agent: Agent, draft: Draft, number: int, keys: AgentKeys) -> Memory:
    return Memory.write(
        agent,
        draft.content,
        keys=keys,
        type_=draft.type,
        tags=draft.tags,
        origin_at=draft.origin_at,
        constitutional=draft.constitutional,
        memory_id=number,
    )


def _count(memories: Sequence[Memory]) -> Imported:
    core = [memory for memory in memories if memory.is_core]
    return Imported(
        imported=len(memories),
        core=len(core),
        journal=len(memories) - len(core),
        constitutional=sum(memory.constitutional for memory in core),
        core_tokens=sum(memory.token_estimate for memory in core),
    )


class _TooMuch(Invalid):
    """Nothing behind this is read."""


def _check_size(number: int, line: Line) -> None:
    if number > MAX_LINES:
        raise _TooMuch(f"One import takes at most {MAX_LINES:,} lines; split the file. The rest was not read.")
    if len(line) > MAX_LINE:
        raise _TooMuch(f"It is longer than {MAX_LINE:,} bytes, so it is no line of JSON Lines. The rest was not read.")


def _drafts(line: Line) -> list[Draft]:
    """The memory of one line, or none for a blank line. Raises Invalid."""
    text = _decode(line).strip("\ufeff \t\r\n")
    return [_draft(_fields(text))] if text else []


def _decode(line: Line) -> str:
    if isinstance(line, str):
        return line
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise Invalid(f"It is not UTF-8 text (byte {error.start + 1}).") from None


def _fields(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise Invalid(f"It is not well-formed JSON (from column {error.colno:,} on).") from None
    except (ValueError, RecursionError):
        raise Invalid("It is not well-formed JSON, is nested too deeply, or names a key twice.") from None
    if not isinstance(found, dict):
        raise Invalid('It must be a JSON object, such as {"content": "…"}.')
    unknown = [_quote(key) for key in found if key not in KEYS]
    if unknown:
        raise Invalid(f"Unknown key {', '.join(unknown[:5])}; a line may have {', '.join(KEYS)}.")
    if "content" not in found:
        raise Invalid("The content is missing.")
    return found


def _draft(found: dict[str, Any]) -> Draft:
    kind = _type(found.get("type"))
    return Draft(
        content=clean_content(found["content"]),
        type=kind,
        origin_at=_moment(found.get("created_at")),
        constitutional=_constitutional(found.get("constitutional"), kind),
        tags=_tags(found.get("tags")),
    )


def _type(value: object) -> MemoryType:
    if value is None:
        return MemoryType.CORE
    if value not in ("core", "journal"):
        raise Invalid('The type must be "core" or "journal".')
    return MemoryType(value)


def _moment(value: object) -> datetime | None:
    """An ISO 8601 date or time; without an offset it is UTC. Raises Invalid."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value.strip() if isinstance(value, str) else "")
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid('The created_at must be an ISO 8601 time as text, such as "2026-03-23T17:23:48Z".') from None
    if moment.year < EARLIEST_YEAR:
        raise Invalid(f"The created_at is before the year {EARLIEST_YEAR}.")
    if moment > now() + FUTURE_SLACK:
        raise Invalid("The created_at lies in the future; leave it out to take the time of the import.")
    return moment


def _constitutional(value: object, kind: MemoryType) -> bool:
    if value is None or value is False:
        return False
    if value is not True:
        raise Invalid("The constitutional flag must be true or false.")
    if kind is not MemoryType.CORE:
        raise Invalid("Only a core memory can be constitutional.")
    return True


def _tags(value: object) -> tuple[str, ...]:
    if value is not None and not isinstance(value, list):
        raise Invalid("The tags must be a list of words.")
    return tuple(clean_tags(value))


def _quote(key: str) -> str:
    """A key's name helps; what is no plain name may be content in the wrong place."""
    return repr(key) if _PLAIN_KEY.fullmatch(key) else "(not a plain word)"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)
