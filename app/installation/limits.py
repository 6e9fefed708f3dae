"""The operator's limits: what each setting is now, what it means, and whether it comes from the environment.

What is in no group concerns the host alone, and is told to its operator only: so is a setting that is added later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic_core import PydanticUndefined

from app.config import Settings, variable_name

GROUPS: Mapping[str, tuple[str, ...]] = {
    "Every refinement": (
        *("max_mutations", "max_turns", "deadline_seconds", "step_timeout_seconds", "max_model_tokens"),
        *("max_cost_usd", "immutable_tags"),
    ),
    "What must be kept": (
        *("min_threshold", "default_threshold", "erosion_floor", "max_confirmed_losses", "second_reader_model"),
        *("second_reader_api_base", "second_reader_api_key_env", "second_reader_action"),
    ),
    "When agents are refined": ("schedule", "interval_days", "default_budget", "concurrency"),
    "Models": (
        *("models", "api_key_envs", "safety_model", "safety_api_base", "safety_api_key_env", "environment_note"),
        *("retry_base_seconds",),
    ),
    "Agents' API": ("api_rate",),
}
"""Fields of the settings that say what agents and their admins may do."""

HOST = "This host"

UNITS: Mapping[str, str] = {
    **dict.fromkeys(("deadline_seconds", "step_timeout_seconds", "retry_base_seconds", "demo_pace_seconds"), "s"),
    "interval_days": "days",
    "max_model_tokens": "tokens",
    "default_budget": "tokens",
    "max_cost_usd": "US dollars",
}

NOTHING: Mapping[str, str] = {
    "erosion_floor": "off",
    "unfinished_per_address": "off",
    "models": "all",
    "api_key_envs": "any whose name ends like a model's key",
    "master_key_file": "in the data directory",
    "database_url": "SQLite in the data directory",
    "redis_url": "the embedded broker",
    **dict.fromkeys(("safety_model", "second_reader_model"), "off"),
}
"""What it means that there is no value."""

SHARES = ("min_threshold", "default_threshold", "erosion_floor")

_SECRET = re.compile(r"password|secret|token$|private|credential")


@dataclass(frozen=True)
class Limit:
    """One setting. `value` is for programs, `words` for people; what could be a secret is in neither."""

    name: str
    value: Any
    words: str
    default: str
    meaning: str
    is_set: bool

    @property
    def source(self) -> str:
        return "environment" if self.is_set else "default"

    def as_json(self) -> dict[str, Any]:
        said = {"name": self.name, "value": self.value, "words": self.words, "meaning": self.meaning}
        return said | {"source": self.source, "default": self.default}


@dataclass(frozen=True)
class LimitGroup:
    title: str
    limits: tuple[Limit, ...]


def read_limits(settings: Settings, *, with_host: bool) -> list[LimitGroup]:
    """`with_host`: also what is the operator's own affair, such as addresses and folders."""
    found = [LimitGroup(title, tuple(_read_limit(settings, each) for each in names)) for title, names in GROUPS.items()]
    if with_host:
        found.append(LimitGroup(HOST, tuple(_read_limit(settings, each) for each in _host_fields())))
    return found


def limits_as_json(groups: list[LimitGroup]) -> dict[str, Any]:
    return {"groups": [{"title": each.title, "limits": [one.as_json() for one in each.limits]} for each in groups]}


def _host_fields() -> Iterator[str]:
    grouped = {name for names in GROUPS.values() for name in names}
    return (name for name in Settings.model_fields if name not in grouped)


def _read_limit(settings: Settings, name: str) -> Limit:
    field = Settings.model_fields[name]
    value, default = getattr(settings, name), field.default
    return Limit(
        name=variable_name(name),
        value=_plain_value(name, value),
        words=_words(name, value),
        default="" if default is PydanticUndefined else _words(name, default),
        meaning=field.description or "",
        is_set=name in settings.model_fields_set and value != "",
    )


def _plain_value(name: str, value: Any) -> Any:
    """As JSON has it."""
    if _is_secret(name):
        return None
    if isinstance(value, tuple):
        return [_masked(str(each)) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _masked(_text(value))


def _words(name: str, value: Any) -> str:
    if _is_secret(name):
        return "set, not shown" if value else "not set"
    if name == "master_key_file" and value is not None and str(value).startswith(os.devnull):
        return "kept from this process"
    if value is None or value == "":
        return NOTHING.get(name, "–")
    if isinstance(value, bool):
        return "on" if value else "off"
    if name in SHARES:
        return f"{value:.0%}" if value == round(value, 2) else f"{value:.2%}"
    if isinstance(value, tuple):
        return ", ".join(_masked(str(each)) for each in value) or "none"
    text = f"{value:,}" if isinstance(value, int) and name in UNITS else _masked(_text(value))
    return f"{text} {UNITS[name]}" if name in UNITS else text


def _is_secret(name: str) -> bool:
    return bool(_SECRET.search(name))


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value.value if isinstance(value, Enum) else value)


def _masked(text: str) -> str:
    """An address without who signs in there, and without what stands behind a question mark."""
    scheme, is_address, rest = text.partition("://")
    if not is_address:
        return text
    login, has_login, place = rest.rpartition("@")
    if "?" in login:  # which part is which can't be told
        return f"{scheme}://…"
    place, has_query, _ = place.partition("?")
    return f"{scheme}://{'…@' if has_login else ''}{place}{'?…' if has_query else ''}"
