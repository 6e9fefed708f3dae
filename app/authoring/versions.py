"""The versions of a setting: the audit log's entries are them, so that nothing is kept twice and none can be edited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select

from app.errors import NotFound, Refused
from app.extensions import db, is_sqlite, writing
from app.models import Action, Actor, ActorKind, Agent, AuditLog
from app.models.agent_settings import CONFIGURATION, as_json
from app.shapes.agent import Version

SHOWN = 50


@dataclass(frozen=True)
class CurrentVersion:
    """How many versions a setting has had, and when and by whom it became what it is."""

    version: int = 0
    changed_at: datetime | None = None
    changed_by: str | None = None


def versions(agent: Agent, field: str, *, limit: int = SHOWN) -> list[Version]:
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


def revert_setting(agent_id: int, entry_id: int, field: str, *, by: Actor) -> int:
    """Give a setting back what it was before an entry changed it; returns the id of the entry that this wrote.

    Raises NotFound for an entry that changed no such setting of this agent, Refused where it is so already, and
    Invalid where a rule has changed since.
    """
    with writing():
        agent = Agent.lock(agent_id)
        entry = db.session.scalar(select(AuditLog).where(*_entry_conditions(agent), AuditLog.id == entry_id))
        before = entry.data.get("before", {}) if entry else {}
        if field not in before or field not in CONFIGURATION:
            raise NotFound(f"{agent.name} has no such change that could be reverted.")
        if as_json(getattr(agent, field)) == before[field]:
            raise Refused(f"The {field.replace('_', ' ')} is what it was before that already.", "Nothing was changed.")
        agent.change(by=by, about={"reverts": entry_id}, **{field: before[field]})
        made = db.session.scalar(select(func.max(AuditLog.id)).where(*_entry_conditions(agent)))
    if made is None:
        raise RuntimeError("a change without an entry")
    return made


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
