"""One entry of the audit log in words: what was done, by whom, about what, and its open data as small facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.history.log import LogEntry
from app.models import Action, ActorKind
from app.views.addresses import page_url, row_url

SHORT = 60
"""Characters that stand in a line; longer values open."""

SHOWN_VALUES = 12


PARTS = {"worker": "Worker", "beat": "Timetable", "command line": "Command line", "setup": "Setup"}
"""The system's parts as actors."""

_SIGN_INS = (Action.SIGN_IN, Action.SIGN_IN_FAILED, Action.SIGN_OUT)

_ANSWERS = (
    *(Action.REFINEMENT_CONSENT, Action.ACCESS_GRANTED, Action.ACCESS_DENIED, Action.TOKEN_GRANTED),
    *(Action.TOKEN_DENIED, Action.AGENT_CHANGE_AGREED, Action.AGENT_CHANGE_APPLIED, Action.AGENT_CHANGE_DENIED),
)
"""Each is a YES or a NO of an agent, which was signed."""


@dataclass(frozen=True)
class Fact:
    """One open value. `full` is what opens where the value is too long for a line."""

    name: str
    value: str
    full: str = ""


@dataclass(frozen=True)
class Subject:
    """What an entry is about, with the address of its page if it has one."""

    words: str
    url: str = ""
    is_refinement: bool = False


def actor_name(actor: str) -> str:
    """For the eye, of an actor as the log names it."""
    kind, _, name = actor.partition(":")
    return PARTS.get(name, name) if kind == ActorKind.SYSTEM else name or actor


def receipt_url_of(entry: LogEntry) -> str:
    """Where the receipt of the agent's answer is, that an entry tells of; empty for all others."""
    return receipt_url(entry.subject.partition(":")[2]) if entry.action in _ANSWERS else ""


def receipt_url(receipt_id: str) -> str:
    return row_url("receipts.download", "receipt_id", receipt_id)


def subject_of(entry: LogEntry) -> Subject | None:
    """None where it is the agent, the account or the actor, whom the row names anyway."""
    kind, _, number = entry.subject.partition(":")
    match kind:
        case "refinement" | "rollback" | "exception":
            return link_subject(entry.subject)
        case "token-request" if entry.agent_id is not None:
            return Subject(f"token request {number[:8]}", row_url("tokens.index", "agent_id", entry.agent_id))
        case "token" if entry.agent_id is not None:
            return Subject(f"token {number}", row_url("tokens.index", "agent_id", entry.agent_id))
        case "settings_request" if entry.agent_id is not None:
            return Subject("change of settings", row_url("settings.show", "agent_id", entry.agent_id))
        case "proposal" if entry.agent_id is not None:
            return Subject("what it wrote", row_url("settings.show", "agent_id", entry.agent_id))
        case "notice-channel":
            return Subject(f"channel {number[:8]}", page_url("house.notices"))
        case "user" if entry.action in _SIGN_INS:
            return None
        case "agent" | "account" | "":
            return None
    return Subject(f"{kind} {number}")


def link_subject(subject: str) -> Subject:
    """Of a refinement, a rollback, an exception or a change that was asked for, with its page."""
    kind, _, number = subject.partition(":")
    if kind == "settings_request":
        return Subject("change of settings", row_url("settings.find_request", "change_id", number))
    url = row_url(f"{kind}s.show", f"{kind}_id", number)
    return Subject(f"{kind} {number[:8]}", url, is_refinement=kind == "refinement")


def facts_of(entry: LogEntry) -> list[Fact]:
    """The open data, value by value, in the order in which it was recorded; less what is empty or said already."""
    data = entry.data
    kind, _, number = entry.subject.partition(":")
    told = {name for name in (kind, "id") if str(data.get(name)) == number}
    found: list[Fact] = []
    before, after = data.get("before"), data.get("after")
    if isinstance(before, dict) and isinstance(after, dict):
        found += [_change_fact(_name_words(name), before.get(name), value) for name, value in after.items()]
        told |= {"before", "after"}
    said = ((name, value) for name, value in data.items() if name not in told and value not in (None, [], {}))
    return found + [_value_fact(_name_words(name), value) for name, value in said]


def _change_fact(name: str, before: object, after: object) -> Fact:
    old, new = ("default" if value is None else _plain_text(value) for value in (before, after))
    if len(old) + len(new) <= SHORT:
        return Fact(name, f"{old} → {new}")
    return Fact(name, f"{len(old):,} → {len(new):,} characters", f"{old}\n\n→\n\n{new}")


def _value_fact(name: str, value: object) -> Fact:
    if name == "tokens" and isinstance(value, list) and len(value) == 2:
        return Fact(name, f"{_plain_text(value[0])} → {_plain_text(value[1])}")
    if isinstance(value, dict):
        return _dict_fact(name, value)
    if isinstance(value, list):
        return _list_fact(name, value)
    said = _plain_text(value)
    return Fact(name, said) if len(said) <= SHORT else Fact(name, f"{len(said):,} characters", said)


def _dict_fact(name: str, values: Mapping[str, Any]) -> Fact:
    """Counts stand in a line, with the zeros left out; everything else opens."""
    if all(type(value) is int for value in values.values()):
        return Fact(
            name, ", ".join(f"{count} {_name_words(each)}" for each, count in values.items() if count) or "none"
        )
    lines = "\n".join(f"{_name_words(each)}: {_plain_text(value)}" for each, value in values.items())
    return Fact(name, f"{len(values)} values", lines)


def _list_fact(name: str, values: Sequence[Any]) -> Fact:
    said = ", ".join(_plain_text(value) for value in values[:SHOWN_VALUES]) or "none"
    if len(values) <= SHOWN_VALUES and len(said) <= SHORT:
        return Fact(name, said)
    return Fact(name, f"{len(values):,} values", ", ".join(_plain_text(value) for value in values))


def _plain_text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        return f"{len(value)} values"
    return str(value)


def _name_words(name: str) -> str:
    return name.replace("_", " ")
