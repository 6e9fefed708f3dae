"""The settings that an agent authors itself: what each is, what it has been, and how it becomes something else.

The audit log's entries are a setting's versions, so that nothing is kept twice and none can be edited. Where a safety
model is set, a prompt that an agent writes waits for its reading first: see `reading`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select

from app.asking.second_reader import effective_reader_action, second_reader_of
from app.errors import Invalid, NotFound, Refused
from app.extensions import db, is_sqlite, writing
from app.models import (
    DEFAULT_MEMORY_REFLECTION_PROMPT,
    DEFAULT_REFINEMENT_PROMPT,
    DEFAULT_REFLECTION_PROMPT,
    Action,
    Actor,
    ActorKind,
    Agent,
    AuditLog,
    SettingProposal,
)
from app.models.agent_settings import CONFIGURATION, PROMPTS, SECOND_READER, as_json, clean_setting, operator_settings
from app.shapes.agent import Setting, Version
from app.silo import TokenKey
from app.values.text import clean_name

FIELDS = (
    *("name", *PROMPTS, "refinement_threshold"),
    *("recall_probes", "max_confirmed_losses", *SECOND_READER, "second_reader_action"),
)

DEFAULTS = {
    "reflection_prompt": DEFAULT_REFLECTION_PROMPT,
    "memory_reflection_prompt": DEFAULT_MEMORY_REFLECTION_PROMPT,
    "refinement_prompt": DEFAULT_REFINEMENT_PROMPT,
}
"""Of the prompts that have one."""


class NoDefault(Refused):
    """A name has no default: give another name instead."""

    code = "no_default"
    outcome = "Nothing was changed."


def read_setting(agent: Agent, field: str) -> Setting:
    """One of them. Raises NotFound for any other word."""
    return read_settings(agent, [_check_field(field)])[0]


def read_settings(agent: Agent, fields: Sequence[str] = FIELDS) -> list[Setting]:
    """All of them, in three queries."""
    current, waiting = current_versions(agent, fields), SettingProposal.open_of(agent.id)
    return [_build_setting(agent, field, current[field], waiting.get(field)) for field in fields]


def author_setting(agent_id: int, field: str, value: object, *, by: Actor, signer: TokenKey | None = None) -> Setting:
    """Set a setting, or with None go back to its default. By an agent, a prompt may have to wait: see `pending`.

    `signer` is the agent's token. The caller lets a worker read what is `unread` then. Raises NotFound, Invalid,
    Refused or AgentForgotten.
    """
    _check_field(field)
    with writing():
        agent = Agent.lock(agent_id)
        agent.check_not_forgotten()
        cleaned = _clean_value(field, value)
        if _must_wait(agent, field, cleaned, by):
            SettingProposal.make(agent, field, cleaned, by=by, signer=signer)
        else:
            SettingProposal.close(agent, [field], by=by, why="withdrawn")
            agent.change(by=by, signer=signer, **{field: cleaned})
    return read_setting(agent, field)


def check_setting(field: str, value: object) -> None:
    """Raises what `author_setting` would raise for such a value: NotFound, Invalid or Refused."""
    _clean_value(_check_field(field), value)


def _check_field(field: str) -> str:
    if field not in FIELDS:
        raise NotFound(f"There is no such setting. An agent's own are: {', '.join(FIELDS)}.")
    return field


def _clean_value(field: str, value: object) -> Any:
    """As it is stored; None only where None was given: what is blank by mistake is no reset."""
    if value is None:
        if field == "name":
            raise NoDefault
        return None
    cleaned = clean_name(value) if field == "name" else clean_setting(field, value)
    if cleaned is None or value == "":
        raise Invalid(f"The {field} is blank. Reset it to use the default again.", "Nothing was changed.")
    return cleaned


def _must_wait(agent: Agent, field: str, cleaned: object, by: Actor) -> bool:
    """A new prompt by the agent itself, where a safety model is set. Going back to a default never waits."""
    is_new = cleaned is not None and cleaned != getattr(agent, field)
    return bool(operator_settings().safety_model) and field in PROMPTS and by.kind == ActorKind.AGENT and is_new


def _build_setting(agent: Agent, field: str, last: CurrentVersion, proposal: SettingProposal | None) -> Setting:
    value = getattr(agent, field)
    if field == "recall_probes":
        value = value or None
    default, used = _find_used(agent, field)
    told = {"value": value, "default": default, "effective": used, "is_default": value is None}
    return Setting.of(last, field=field, **told, pending=proposal)


def _find_used(agent: Agent, field: str) -> tuple[object, object]:
    """A setting's default, and what is used."""
    value, known = getattr(agent, field), operator_settings()
    match field:
        case "refinement_threshold":
            return known.default_threshold, agent.effective_refinement_threshold
        case "recall_probes":
            return 0, value
        case "max_confirmed_losses":
            return known.max_confirmed_losses, agent.effective_max_confirmed_losses
        case "second_reader_action":
            return known.second_reader_action, effective_reader_action(agent)
        case _ if field in SECOND_READER:
            return None, _find_used_reader(agent, field)
    default = DEFAULTS.get(field)
    return default, value or default


def _find_used_reader(agent: Agent, field: str) -> str | None:
    """Who reads it, and where, is the agent's to know, also of the operator's reader; not where that one's key is."""
    reader = second_reader_of(agent)
    if reader is None or (reader.endpoint.is_operators and field == "second_reader_api_key_env"):
        return None
    endpoint = reader.endpoint
    return dict(zip(SECOND_READER, (endpoint.model_id, endpoint.api_base, endpoint.api_key_env), strict=True))[field]


@dataclass(frozen=True)
class CurrentVersion:
    """How many versions a setting has had, and when and by whom it became what it is."""

    version: int = 0
    changed_at: datetime | None = None
    changed_by: str | None = None


def list_versions(agent: Agent, field: str, *, limit: int = 50) -> list[Version]:
    """Newest first. The last one is what the agent was made with."""
    query = (
        select(AuditLog).where(*_entry_conditions(agent), _sets_field(field)).order_by(AuditLog.id.desc()).limit(limit)
    )
    return [
        Version.of(
            entry,
            entry=entry.id,
            by=entry.actor,
            by_agent=is_by_agent(entry),
            value=entry.data["settings" if entry.action == Action.AGENT_CREATE else "after"][field],
        )
        for entry in db.session.scalars(query)
    ]


def current_versions(agent: Agent, fields: Sequence[str]) -> dict[str, CurrentVersion]:
    """Of some settings, in two queries."""
    columns = [
        column
        for name in fields
        for column in (func.count().filter(_sets_field(name)), func.max(AuditLog.id).filter(_sets_field(name)))
    ]
    found = db.session.execute(select(*columns).where(*_entry_conditions(agent))).one()
    counted = {name: (found[2 * place], found[2 * place + 1]) for place, name in enumerate(fields)}
    ids = {entry_id for _, entry_id in counted.values() if entry_id}
    entries = {entry.id: entry for entry in db.session.scalars(select(AuditLog).where(AuditLog.id.in_(ids)))}
    return {
        name: CurrentVersion(count, entries[entry_id].at, entries[entry_id].actor) if entry_id else CurrentVersion()
        for name, (count, entry_id) in counted.items()
    }


def value_before(agent: Agent, entry_id: int, field: str) -> object:
    """What a setting was before an entry changed it, as the log says it.

    Raises NotFound for an entry that changed no such setting of this agent, and Refused where it is so already.
    """
    entry = db.session.scalar(select(AuditLog).where(*_entry_conditions(agent), AuditLog.id == entry_id))
    before = entry.data.get("before", {}) if entry else {}
    if field not in before or field not in CONFIGURATION:
        raise NotFound(f"{agent.name} has no such change that could be reverted.")
    if as_json(getattr(agent, field)) == before[field]:
        raise Refused(f"The {field.replace('_', ' ')} is what it was before that already.", "Nothing was changed.")
    return before[field]


def is_by_agent(entry: AuditLog) -> bool:
    """Whether the agent itself wrote what this entry set, also where an admin let it through."""
    return entry.actor_kind == ActorKind.AGENT or str(entry.data.get("authored_by", "")).startswith("agent:")


def _entry_conditions(agent: Agent) -> tuple[ColumnElement[bool], ...]:
    said = AuditLog.action.in_((Action.AGENT_CREATE, Action.AGENT_SETTINGS_UPDATE))
    return AuditLog.agent_id == agent.id, AuditLog.account_id == agent.account_id, said


def _sets_field(name: str) -> ColumnElement[bool]:
    """Whether an entry set this setting; to its default counts, and stands there as null."""
    return or_(_has_key("after", name), _has_key("settings", name))


def _has_key(part: str, name: str) -> ColumnElement[bool]:
    if is_sqlite(db.session()):
        return func.json_type(AuditLog.data, f"$.{part}.{name}").is_not(None)
    return func.json_typeof(AuditLog.data[part][name]).is_not(None)
