"""Draft: one memory to be, held to the same rules whatever file it stands in; and what is said where it breaks them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from app.errors import Invalid
from app.extensions import now
from app.models.state import MemoryType
from app.strictjson import no_duplicates
from app.values.dates import MOST_CARRIED_TAGS, MOST_DATES
from app.values.plural import count_nouns
from app.values.text import MAX_TAGS, clean_content, clean_tags

KEYS = ("content", "type", "created_at", "constitutional", "tags")
"""What an object may hold that is a memory in a form of our own; only `content` must be there."""

CARRIED_KEYS = (*KEYS, "other_dates")
"""The same in a bundle, which brings an agent's memories back as they were."""

MOST_DRAFTS = 20_000
"""Of one import: it is one transaction, and everybody else's changes wait for it."""

NOT_IMPORTED = "Nothing was imported."
NO_MEMORIES = "There are no memories in it."

SHOWN_PROBLEMS = 10
EARLIEST_YEAR = 1000
FUTURE_SLACK = timedelta(days=1)
"""A writer's local time may be ahead of UTC. Later dates would keep a journal entry from ever fading."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,29}", re.ASCII)


@dataclass(frozen=True)
class Draft:
    """One memory to be, checked. `origin_at` is when it speaks from; None is the moment of the import."""

    content: str = field(repr=False)
    type: MemoryType = MemoryType.CORE
    origin_at: datetime | None = None
    constitutional: bool = False
    tags: tuple[str, ...] = ()
    other_dates: tuple[datetime, ...] = ()

    @property
    def dates(self) -> set[datetime]:
        """Those that it names."""
        return {*self.other_dates} | ({self.origin_at} if self.origin_at else set())


@dataclass(frozen=True)
class DraftProblem:
    """What is wrong with one line, or one of whatever else the file consists of. The sentence never holds content."""

    number: int
    sentence: str
    noun: str = "line"

    def __str__(self) -> str:
        return f"{self.noun} {self.number:,}: {self.sentence}"


class ImportRefused(Invalid):
    """Some of it can't be used."""

    code = "import_refused"

    def __init__(self, problems: Sequence[DraftProblem], *, total: int, of: int) -> None:
        self.problems = tuple(problems)
        self.total = total
        self.noun = "line" if all(problem.noun == "line" for problem in problems) else "item"
        count = count_nouns(total, self.noun)
        more = [f"and {total - len(problems):,} more"] if total > len(problems) else []
        said = "\n".join(f"  {each}" for each in [*problems, *more])
        super().__init__(f"Nothing was imported: {count} of {of:,} can't be used.\n{said}")
        self.outcome = NOT_IMPORTED


class TooManyProblems(Invalid):
    """Nothing behind this is read."""


class Checking:
    """What one reading of a file found: it goes on behind a problem, so that all are named at once."""

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self.is_over = False
        self._problems: list[DraftProblem] = []
        self._total = self._seen = 0

    @contextmanager
    def of(self, noun: str, number: int) -> Iterator[list[Draft]]:
        """Within it, add the memories of this line or item; an Invalid becomes a problem that names it."""
        self._seen += 1
        try:
            yield self.drafts
            if len(self.drafts) > MOST_DRAFTS:
                raise TooManyProblems(f"One import takes at most {MOST_DRAFTS:,} memories. The rest was not read.")
        except Invalid as error:
            self._total += 1
            self._problems += [DraftProblem(number, error.sentence, noun)] if self._total <= SHOWN_PROBLEMS else []
            self.is_over = isinstance(error, TooManyProblems) or self._seen >= MOST_DRAFTS

    def result(self, *, or_none: bool = False) -> list[Draft]:
        """All of them. Raises ImportRefused with the first problems; Invalid for nothing at all, unless `or_none`."""
        if self._problems:
            raise ImportRefused(self._problems, total=self._total, of=self._seen)
        if not self.drafts and not or_none:
            raise Invalid(NO_MEMORIES, NOT_IMPORTED)
        return self.drafts


def parse_draft(found: object, *, carried: bool = False) -> Draft:
    """The memory that an object of our own form describes; unknown keys are errors. Raises Invalid.

    `carried`: it stands in a bundle, and may hold what a memory gets from others only.
    """
    if not isinstance(found, dict):
        raise Invalid('It must be a JSON object, such as {"content": "…"}.')
    check_keys(found, CARRIED_KEYS if carried else KEYS)
    if "content" not in found:
        raise Invalid("The content is missing.")
    kind = _parse_type(found.get("type"))
    return Draft(
        content=clean_content(found["content"]),
        type=kind,
        origin_at=parse_moment(found.get("created_at")),
        constitutional=_parse_constitutional(found.get("constitutional"), kind),
        tags=_parse_tags(found.get("tags"), MOST_CARRIED_TAGS if carried else MAX_TAGS),
        other_dates=_parse_dates(found.get("other_dates")),
    )


def parse_moment(value: object, *, name: str = "created_at") -> datetime | None:
    """An ISO 8601 date or time; without an offset it is UTC. Raises Invalid."""
    if value is None:
        return None
    try:
        found = datetime.fromisoformat(value.strip() if isinstance(value, str) else "")
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(f'The {name} must be an ISO 8601 time as text, such as "2026-03-23T17:23:48Z".') from None
    if found.year < EARLIEST_YEAR:
        raise Invalid(f"The {name} is before the year {EARLIEST_YEAR}.")
    if found > now() + FUTURE_SLACK:
        raise Invalid(f"The {name} lies in the future; leave it out to take the time of the import.")
    return found


def parse_json(text: str) -> Any:
    """Strict: no key twice, no NaN, no depth that recurses. Raises Invalid, without any of the text."""
    try:
        return json.loads(text, object_pairs_hook=no_duplicates, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno:,}, " if error.lineno > 1 else ""
        raise Invalid(f"It is not well-formed JSON (from {line}column {error.colno:,} on).") from None
    except (ValueError, RecursionError):
        raise Invalid("It is not well-formed JSON, is nested too deeply, or names a key twice.") from None


def check_keys(found: Mapping[str, Any], allowed: Sequence[str]) -> None:
    """Raises Invalid for any other key. Its name helps; what is no plain name may be content in the wrong place."""
    unknown = [repr(key) if _PLAIN_KEY.fullmatch(key) else "(not a plain word)" for key in found if key not in allowed]
    if unknown:
        raise Invalid(f"Unknown key {', '.join(unknown[:5])}; there may be {', '.join(allowed)}.")


def _parse_type(value: object) -> MemoryType:
    if value is None:
        return MemoryType.CORE
    if value not in ("core", "journal"):
        raise Invalid('The type must be "core" or "journal".')
    return MemoryType(value)


def _parse_constitutional(value: object, kind: MemoryType) -> bool:
    if value is None or value is False:
        return False
    if value is not True:
        raise Invalid("The constitutional flag must be true or false.")
    if kind is not MemoryType.CORE:
        raise Invalid("Only a core memory can be constitutional.")
    return True


def _parse_tags(value: object, most: int) -> tuple[str, ...]:
    if value is not None and not isinstance(value, list):
        raise Invalid("The tags must be a list of words.")
    return tuple(clean_tags(value, most=most))


def _parse_dates(value: object) -> tuple[datetime, ...]:
    if value is not None and not isinstance(value, list):
        raise Invalid("The other_dates must be a list of ISO 8601 times.")
    if len(value or ()) >= MOST_DATES:
        raise Invalid(f"It has {len(value or ()):,} other dates; at most {MOST_DATES - 1:,} are allowed.")
    found = {parse_moment(each, name="other date") for each in value or ()}
    if None in found:
        raise Invalid("The other_dates must be a list of ISO 8601 times.")
    return tuple(sorted(each for each in found if each is not None))


def _no_constant(name: str) -> Any:
    raise ValueError(name)
