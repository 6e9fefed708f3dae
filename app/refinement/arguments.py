"""What a model may pass to the Knife, and nothing else: shapes are checked before anything is looked up."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from app.errors import Invalid
from app.strictjson import no_duplicates
from app.values.text import clean_text, is_blank

MAX_ARGUMENTS = 200_000
"""Characters of one call's JSON."""

_DECIMAL = re.compile(r"[0-9]{1,18}", re.ASCII)


class MalformedArguments(Invalid):
    """The arguments are no JSON object."""

    code = "malformed_arguments"


def parse_arguments(text: str) -> dict[str, Any]:
    """The JSON object in a call's raw arguments. Raises MalformedArguments with what was wrong."""
    if not isinstance(text, str) or not text.strip():
        raise MalformedArguments("The arguments are empty; give a JSON object with the function's parameters.")
    if len(text) > MAX_ARGUMENTS:
        raise MalformedArguments(f"The arguments have {len(text):,} characters; at most {MAX_ARGUMENTS:,} are read.")
    try:
        found = json.loads(text, object_pairs_hook=no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise MalformedArguments("The arguments are not well-formed JSON, or name a key twice.") from None
    if not isinstance(found, dict) or not found:
        raise MalformedArguments("The arguments must be a JSON object with the function's parameters.")
    return found


def check_argument_names(arguments: Mapping[str, Any], required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Raises Invalid unless exactly these keys are there."""
    takes = ", ".join([*required, *(f"{name} (optional)" for name in optional)])
    if missing := [name for name in required if arguments.get(name) is None]:
        raise Invalid(f"Missing: {', '.join(missing)}. This call takes {takes}.")
    if unknown := sorted(str(name)[:40] for name in set(arguments) - {*required, *optional}):
        raise Invalid(f"Unknown: {', '.join(map(repr, unknown))}. This call takes {takes}.")


def _as_id(value: object) -> int | None:
    number = int(value) if isinstance(value, str) and _DECIMAL.fullmatch(value) else value
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return number if 0 < number < LARGEST_SHOWN_ID else None


def memory_id(value: object) -> int:
    """An integer, or a decimal string. Raises Invalid."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18:
        return value
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return int(value)
    raise Invalid("The id must be one integer, or one decimal string.")


LARGEST_SHOWN_ID = 10**9
"""Of a refused call. A longer number is no memory's, and may be something that a memory says."""


def readable_ids(arguments: Mapping[str, Any]) -> list[int]:
    """The memories that a refused call names, as far as they can be read; each once."""
    many = arguments.get("ids")
    many = many.split(",") if isinstance(many, str) else many
    parts = [arguments.get("id"), *(many if isinstance(many, list | tuple) else ())]
    plain = (part.strip(" ") if isinstance(part, str) else part for part in parts)
    return list(dict.fromkeys(number for part in plain if (number := _as_id(part)) is not None))


def memory_ids(value: object) -> list[int]:
    """A JSON list of integers, or one comma-separated string; each once, at least two. Raises Invalid."""
    if isinstance(value, str):
        parts: list[Any] = [part.strip(" ") for part in value.split(",")]
    elif isinstance(value, list | tuple) and all(isinstance(part, int) for part in value):
        parts = list(value)
    else:
        raise Invalid("The ids must be a list of integers, or one comma-separated string.")
    ids = list(dict.fromkeys(memory_id(part) for part in parts))
    if len(ids) < 2:
        raise Invalid("At least two different ids are needed to consolidate.")
    if len(ids) > 1000:
        raise Invalid("At most 1,000 ids in one call.")
    return ids


def flag(value: object, *, name: str) -> bool:
    """A JSON boolean. Raises Invalid."""
    if isinstance(value, bool):
        return value
    raise Invalid(f"{name} must be true or false; leave it out where there is nothing to confirm.")


def query_text(value: object) -> str:
    """What to look for. Raises Invalid."""
    text = clean_text(value, what="query").strip()
    if is_blank(text) or len(text) > 1000:
        raise Invalid("The query must have 1 to 1,000 characters.")
    return text


def parse_day(value: object, *, name: str) -> date | None:
    """An ISO date, or the day in UTC of an ISO time. Raises Invalid."""
    if value is None or value == "":
        return None
    text = clean_text(value, what=name).strip()
    try:
        return date.fromisoformat(text) if len(text) <= len("2026-03-23") else _day_of_time(text)
    except (ValueError, OverflowError):
        raise Invalid(f"{name} must be a date like 2026-03-23.") from None


def _day_of_time(text: str) -> date:
    moment = datetime.fromisoformat(text)
    return (moment.astimezone(UTC) if moment.tzinfo else moment).date()


def _no_constant(name: str) -> Any:
    raise ValueError(name)
