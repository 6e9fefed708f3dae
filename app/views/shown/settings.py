"""What the settings page shows: the form, what the agent wrote that waits for an admin, and every change so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flask import url_for
from sqlalchemy import select

from app.authoring.fields import DEFAULTS
from app.authoring.versions import is_by_agent
from app.extensions import db
from app.models import Action, Agent, AuditLog, SettingProposal
from app.models.agent_settings import PROMPTS
from app.models.base import iso
from app.shapes.setting import Waiting
from app.views.forms import Form
from app.views.shown.agent import AgentState
from app.views.shown.diff import DiffPiece, compare_texts
from app.views.shown.entry import actor_name
from app.vocabulary import ACTIONS

HISTORY_ROWS = 50

COMPARED = 10
"""Prompts of the history that are compared word by word; of older changes both texts are shown."""

CHANGES = {action: term.history for action, term in ACTIONS.items() if term.history}
"""The actions that its history tells of, by their titles there."""


@dataclass(frozen=True)
class FieldChange:
    """One setting of a change. `pieces` compare two prompts; a default's own text stands in for it there."""

    name: str
    before: object
    after: object
    pieces: Sequence[DiffPiece] = ()

    @property
    def words(self) -> str:
        return self.name.replace("_", " ")


@dataclass(frozen=True)
class SettingChange:
    """One entry of the settings history. `reverts` is the entry that it took back; `let_through` names an admin.

    `why` is the system's own sentence, `said` what the safety model answered.
    """

    entry_id: int
    at: datetime
    actor: str
    by_agent: bool
    let_through: bool
    action: Action
    fields: Sequence[FieldChange]
    reverts: int | None
    why: str
    said: str

    @property
    def title(self) -> str:
        return "Reverted a change" if self.reverts else CHANGES[self.action]

    @property
    def can_be_reverted(self) -> bool:
        return self.action == Action.AGENT_SETTINGS_UPDATE

    def as_json(self) -> dict[str, Any]:
        names = [each.name for each in self.fields]
        changed = {each.name: {"before": each.before, "after": each.after} for each in self.fields}
        said: dict[str, Any] = {"entry": self.entry_id, "at": iso(self.at), "actor": self.actor, "title": self.title}
        said |= {"by_agent": self.by_agent, "changed": changed if self.can_be_reverted else {}}
        return said | {"fields": names, "reverts": self.reverts, "why": self.why or None, "said": self.said or None}


@dataclass(frozen=True)
class WaitingPrompt:
    """A prompt that the agent wrote and that does not apply: compared with the present one, or its default."""

    proposal: SettingProposal
    pieces: Sequence[DiffPiece]
    said: str = ""

    @property
    def words(self) -> str:
        return self.proposal.field.replace("_", " ")

    def url(self, act: str) -> str:
        return url_for(f"settings.{act}", agent_id=self.proposal.agent_id, proposal_id=self.proposal.id)

    def as_json(self) -> dict[str, Any]:
        return Waiting.of(self.proposal).as_json() | {"field": self.proposal.field, "said": self.said or None}


@dataclass(frozen=True)
class SettingsPage:
    state: AgentState
    waiting: Sequence[WaitingPrompt]
    history: Sequence[SettingChange]
    form: Form

    @classmethod
    def load(cls, agent: Agent, form: Form) -> SettingsPage:
        return cls(AgentState.load(agent), waiting_of(agent), history_of(agent), form)

    def as_json(self) -> dict[str, Any]:
        return {
            "agent": self.state.agent.name,
            "settings": self.state.agent.configuration(),
            "waiting": [each.as_json() for each in self.waiting],
            "history": [change.as_json() for change in self.history],
        }


@dataclass(frozen=True)
class SettingsParts:
    """What lives on the page: all but the form, in which somebody may be typing."""

    state: AgentState
    waiting: Sequence[WaitingPrompt]
    history: Sequence[SettingChange]

    @classmethod
    def load(cls, agent: Agent) -> SettingsParts:
        return cls(AgentState.load(agent), waiting_of(agent), history_of(agent))


def waiting_of(agent: Agent) -> list[WaitingPrompt]:
    """What the agent wrote that is being read, or held."""
    found = SettingProposal.open_of(agent.id).values()
    said = _said_of([each.subject for each in found], agent)
    return [
        WaitingPrompt(
            each, _compare_prompts(each.field, getattr(agent, each.field), each.value), said.get(each.subject, "")
        )
        for each in found
    ]


def _said_of(subjects: Sequence[str], agent: Agent) -> dict[str, str]:
    """What the safety model answered, from the log, where nobody can edit it."""
    held = (AuditLog.agent_id == agent.id, AuditLog.action == Action.AGENT_SETTING_HELD, AuditLog.subject.in_(subjects))
    entries = db.session.scalars(select(AuditLog).where(*held).order_by(AuditLog.id)) if subjects else ()
    return {entry.subject: str(entry.data["said"]) for entry in entries if entry.data.get("said")}


def history_of(agent: Agent) -> list[SettingChange]:
    """The newest changes first."""
    query = select(AuditLog).where(AuditLog.agent_id == agent.id, AuditLog.action.in_(CHANGES))
    entries = db.session.scalars(query.order_by(AuditLog.id.desc()).limit(HISTORY_ROWS)).all()
    compared = _to_compare(entries)
    return [_setting_change(entry, entry.id in compared) for entry in entries]


def _to_compare(entries: Sequence[AuditLog]) -> set[int]:
    """A page of fifty long prompts would take seconds: the newest few are enough."""
    with_prompts = [entry.id for entry in entries if set(PROMPTS) & set(entry.data.get("after", {}))]
    return set(with_prompts[:COMPARED])


def _setting_change(entry: AuditLog, compared: bool) -> SettingChange:
    before, after = entry.data.get("before", {}), entry.data.get("after", {})
    fields = [_field_change(name, before.get(name), value, compared) for name, value in after.items()]
    by_agent = is_by_agent(entry)
    return SettingChange(
        entry_id=entry.id,
        at=entry.at,
        actor=actor_name(entry.actor),
        by_agent=by_agent,
        let_through=by_agent and entry.actor_kind != "agent",
        action=Action(entry.action),
        fields=fields or _named_field(entry),
        reverts=entry.data.get("reverts"),
        why=str(entry.data.get("why", "")),
        said=str(entry.data.get("said", "")),
    )


def _named_field(entry: AuditLog) -> list[FieldChange]:
    """Of an entry that tells about a setting without changing it: its name."""
    name = entry.data.get("field")
    return [FieldChange(str(name), None, None)] if name else []


def _field_change(name: str, before: object, after: object, compared: bool) -> FieldChange:
    return FieldChange(name, before, after, _compare_prompts(name, before, after) if compared else ())


def _compare_prompts(name: str, before: object, after: object) -> list[DiffPiece]:
    if name not in PROMPTS:
        return []
    default = DEFAULTS.get(name, "")
    return compare_texts(str(before or default), str(after or default))
