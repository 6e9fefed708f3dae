"""What the settings page shows: the form, what the agent wrote that waits for an admin, and every change so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import url_for
from sqlalchemy import select

from app.authoring.fields import DEFAULTS, is_by_agent
from app.extensions import db
from app.models import Action, Agent, AuditLog, SettingProposal
from app.models.agent_settings import PROMPTS
from app.models.base import iso
from app.shapes.agent import Waiting
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


class SettingChange:
    """One entry of the settings history. `reverts` is the entry that it took back; `let_through` names an admin.

    `why` is the system's own sentence, `said` what the safety model answered. Where `compared`, prompts are.
    """

    def __init__(self, entry: AuditLog, compared: bool) -> None:
        data = entry.data
        self.entry_id, self.at, self.actor = entry.id, entry.at, actor_name(entry.actor)
        self.by_agent = is_by_agent(entry)
        self.let_through = self.by_agent and entry.actor_kind != "agent"
        self.reverts: int | None = data.get("reverts")
        self.title = "Reverted a change" if self.reverts else CHANGES[entry.action]
        self.can_be_reverted = entry.action == Action.AGENT_SETTINGS_UPDATE
        self.why, self.said = str(data.get("why", "")), str(data.get("said", ""))
        self.fields = _changed_fields(data.get("before", {}), data.get("after", {}), compared)
        if not self.fields and data.get("field"):  # it tells about a setting without changing it
            self.fields = [FieldChange(str(data["field"]), None, None)]

    def as_json(self) -> dict[str, Any]:
        changed = {each.name: {"before": each.before, "after": each.after} for each in self.fields}
        return {
            "entry": self.entry_id,
            "at": iso(self.at),
            "actor": self.actor,
            "title": self.title,
            "by_agent": self.by_agent,
            "changed": changed if self.can_be_reverted else {},
            "fields": list(changed),
            "reverts": self.reverts,
            "why": self.why or None,
            "said": self.said or None,
        }


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


class SettingsPage:
    """The form does not live on the page, as the rest does: somebody may be typing in it."""

    def __init__(self, agent: Agent, form: Form | None = None) -> None:
        self.state, self.form = AgentState.load(agent), form
        self.waiting, self.history = waiting_of(agent), history_of(agent)

    def as_json(self) -> dict[str, Any]:
        return {
            "agent": self.state.agent.name,
            "settings": self.state.agent.configuration(),
            "waiting": [each.as_json() for each in self.waiting],
            "history": [change.as_json() for change in self.history],
        }


def waiting_of(agent: Agent) -> list[WaitingPrompt]:
    """What the agent wrote that is being read, or held."""
    found = SettingProposal.open_of(agent.id).values()
    said = _said_of([each.subject for each in found], agent)

    def shown(each: SettingProposal) -> WaitingPrompt:
        pieces = _compare_prompts(each.field, getattr(agent, each.field), each.value)
        return WaitingPrompt(each, pieces, said.get(each.subject, ""))

    return [shown(each) for each in found]


def _said_of(subjects: Sequence[str], agent: Agent) -> dict[str, str]:
    """What the safety model answered, from the log, where nobody can edit it."""
    held = (AuditLog.agent_id == agent.id, AuditLog.action == Action.AGENT_SETTING_HELD, AuditLog.subject.in_(subjects))
    entries = db.session.scalars(select(AuditLog).where(*held).order_by(AuditLog.id)) if subjects else ()
    return {entry.subject: str(entry.data["said"]) for entry in entries if entry.data.get("said")}


def history_of(agent: Agent) -> list[SettingChange]:
    """The newest changes first."""
    query = select(AuditLog).where(AuditLog.agent_id == agent.id, AuditLog.action.in_(CHANGES))
    entries = db.session.scalars(query.order_by(AuditLog.id.desc()).limit(HISTORY_ROWS)).all()
    # A page of fifty long prompts would take seconds: the newest few are enough.
    compared = [entry.id for entry in entries if set(PROMPTS) & set(entry.data.get("after", {}))][:COMPARED]
    return [SettingChange(entry, entry.id in compared) for entry in entries]


def _changed_fields(before: Mapping[str, Any], after: Mapping[str, Any], compared: bool) -> list[FieldChange]:
    return [
        FieldChange(name, before.get(name), value, _compare_prompts(name, before.get(name), value) if compared else ())
        for name, value in after.items()
    ]


def _compare_prompts(name: str, before: object, after: object) -> list[DiffPiece]:
    if name not in PROMPTS:
        return []
    default = DEFAULTS.get(name, "")
    return compare_texts(str(before or default), str(after or default))
