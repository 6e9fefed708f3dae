"""What the settings page shows: the form, what the agent wrote that waits for an admin, and every change so far."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

from flask import url_for
from sqlalchemy import func, select

from app.authoring.asked_changes import HostOnly, must_agree
from app.authoring.fields import DEFAULTS, is_by_agent
from app.extensions import db, now
from app.models import (
    Account,
    Action,
    Agent,
    AuditLog,
    ModelTest,
    SettingProposal,
    SettingsRequest,
    SettingsRequestStatus,
    User,
)
from app.models.agent_settings import CONFIGURATION, PROMPTS
from app.models.base import iso
from app.models.settings_request import NEWEST_SETTINGS_REQUESTS, OPEN_SETTINGS_REQUESTS
from app.shapes.agent import Waiting
from app.shapes.settings_request import SettingsRequestShape
from app.views.forms import Form
from app.views.shown.agent import AgentState
from app.views.shown.diff import DiffPiece, compare_texts
from app.views.shown.entry import actor_name, receipt_url
from app.vocabulary import ACTIONS

HISTORY_ROWS = 50

COMPARED = 10
"""Prompts of the history that are compared word by word; of older changes both texts are shown."""

ASKED_ROWS = 10
SHOWN_FOR = timedelta(hours=24)
"""How long the page tells of an answer, while nothing newer is asked."""

OPTIONS = {
    "model_id": "--model",
    "api_base": "--api-base",
    "api_key_env": "--api-key-env",
    "second_reader_model": "--second-reader",
    "second_reader_api_base": "--second-reader-api-base",
    "second_reader_api_key_env": "--second-reader-api-key-env",
}
"""Of `./whetstone agents set`."""

_TOLD = (
    *(*OPEN_SETTINGS_REQUESTS, SettingsRequestStatus.APPLIED),
    *(SettingsRequestStatus.DENIED, SettingsRequestStatus.FAILED),
)
_LEFT_TO_THE_HOST = (SettingsRequestStatus.DENIED, SettingsRequestStatus.FAILED)
_ANSWERED = (SettingsRequestStatus.AGREED, SettingsRequestStatus.APPLIED, SettingsRequestStatus.DENIED)

LABELS = {name: name.replace("_", " ") for name in CONFIGURATION} | {
    "model_id": "model",
    "api_base": "API base",
    "api_key_env": "API key variable",
    "core_token_budget": "budget",
    "refinement_threshold": "threshold",
    "max_confirmed_losses": "confirmed losses",
    "second_reader_model": "second reader",
    "second_reader_api_base": "second reader's API base",
    "second_reader_api_key_env": "second reader's API key variable",
    "second_reader_action": "second reader's action",
}

_ANSWERS = (Action.AGENT_CHANGE_DENIED, Action.AGENT_CHANGE_FAILED)
"""What the agent said of a human's change: nothing that it wrote into a setting."""

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
        self.by_agent = is_by_agent(entry) and entry.action not in _ANSWERS
        self.let_through = self.by_agent and entry.actor_kind != "agent"
        self.reverts: int | None = data.get("reverts")
        self.title = "Reverted a change" if self.reverts else CHANGES[entry.action]
        self.can_be_reverted = entry.action == Action.AGENT_SETTINGS_UPDATE
        self.why, self.said = str(data.get("why", "")), str(data.get("said", ""))
        self.fields = _changed_fields(data.get("before", {}), data.get("after", {}), compared)
        named = [data["field"]] if data.get("field") else data.get("fields", [])
        if not self.fields:  # it tells about settings without changing them
            self.fields = [FieldChange(str(name), None, None) for name in named]
        self.was_asked = self.can_be_reverted and "request" in data
        is_answer = self.was_asked or entry.action == Action.AGENT_CHANGE_DENIED
        self.receipt_url = receipt_url(data["request"]) if is_answer else ""

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
            "agreed": self.was_asked,
            "receipt": self.receipt_url or None,
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


class AskedChange:
    """A change that a human asked for, compared with what is set now. `commands` would make it on the host."""

    def __init__(self, request: SettingsRequest, agent: Agent, asked_by: str, fields: Sequence[str]) -> None:
        self.request, self.agent_name, self.asked_by = request, agent.name, asked_by
        self.names = ", ".join(LABELS[name] for name in fields)
        self.is_over = not request.is_open
        self.fields = [] if self.is_over else _changed_fields(agent.configuration(), request.changes, compared=True)
        left = {name: request.changes[name] for name in fields}
        self.commands = host_commands(agent, left) if request.status in _LEFT_TO_THE_HOST else []

    @property
    def sentence(self) -> str:
        """How it stands."""
        match self.request.status:
            case SettingsRequestStatus.PENDING:
                return f"{self.agent_name} is asked. It applies on its YES, usually within seconds."
            case SettingsRequestStatus.AGREED:
                return f"{self.agent_name} agreed. A worker applies it, usually within seconds."
            case SettingsRequestStatus.APPLIED:
                return f"{self.agent_name} agreed: it applies."
            case SettingsRequestStatus.DENIED:
                return f"{self.agent_name} declined. Nothing was changed."
        return f"{self.agent_name} could not be asked, and nothing was changed. {self.request.why or ''}".strip()

    @property
    def receipt_url(self) -> str:
        """Of the agent's answer; empty where it gave none."""
        return receipt_url(self.request.id) if self.request.status in _ANSWERED else ""

    @property
    def withdraw_url(self) -> str:
        return url_for("settings.withdraw", agent_id=self.request.agent_id, change_id=self.request.id)

    def as_json(self) -> dict[str, Any]:
        return SettingsRequestShape.of(self.request).as_json() | {
            "commands": self.commands,
            "receipt": self.receipt_url or None,
        }


class ShownModelTest:
    """How the newest test of an agent's model stands."""

    def __init__(self, agent: Agent) -> None:
        test = ModelTest.newest_of(agent.id)
        self.test, self.url = test, url_for("settings.test_model", agent_id=agent.id)
        self.may_ask = agent.forgotten_at is None and not (test and test.is_open)
        self.is_old = test is not None and test.model_id != agent.model_id
        self.failure = (test.failure or test.why_lost) if test else ""

    @property
    def state(self) -> str:
        """`none`, `waiting`, `asked`, `answered` or `failed`."""
        if self.test is None:
            return "none"
        if self.test.is_open:
            return "waiting" if self.test.asked_at is None else "asked"
        return "failed" if self.failure else "answered"

    @property
    def waited(self) -> float:
        """Seconds, of one that is open."""
        began = self.test and (self.test.asked_at or self.test.requested_at)
        return max((now() - began).total_seconds(), 0.0) if began else 0.0

    def as_json(self) -> dict[str, Any] | None:
        test = self.test
        if test is None:
            return None
        return {
            "state": self.state,
            "model_id": test.model_id,
            "requested_at": iso(test.requested_at),
            "ended_at": iso(test.ended_at),
            "seconds": test.seconds,
            "context_window": test.context_window,
            "key_variable": test.key_variable,
            "key_found": test.key_found,
            "failure": self.failure or None,
        }


class SettingsPage:
    """The form does not live on the page, as the rest does: somebody may be typing in it.

    `host_only` is what was just saved and can't be asked; `saved` says what of that save applies.
    """

    def __init__(
        self, agent: Agent, form: Form | None = None, *, host_only: HostOnly | None = None, saved: str = ""
    ) -> None:
        self.state, self.form = AgentState.load(agent), form
        self.asked, self.waiting, self.history = asked_of(agent), waiting_of(agent), history_of(agent)
        self.host_only, self.saved = host_only, saved
        self.commands = host_commands(agent, host_only.changes) if host_only else []
        self.needs_consent = must_agree(agent)
        self.model_test = ShownModelTest(agent)

    def as_json(self) -> dict[str, Any]:
        return {
            "agent": self.state.agent.name,
            "settings": self.state.agent.configuration(),
            "model_test": self.model_test.as_json(),
            "asked": [each.as_json() for each in self.asked],
            "waiting": [each.as_json() for each in self.waiting],
            "history": [change.as_json() for change in self.history],
        }


def asked_of(agent: Agent) -> list[AskedChange]:
    """What the agent is asked now, and what it lately was and nothing newer was asked about; newest first."""
    lately = SettingsRequest.decided_at > now() - SHOWN_FOR
    is_shown = SettingsRequest.status.in_(OPEN_SETTINGS_REQUESTS) | lately
    query = select(SettingsRequest, User.email).join(User, User.id == SettingsRequest.user_id)
    query = query.where(SettingsRequest.agent_id == agent.id, is_shown)
    ordered = (
        query.order_by(*NEWEST_SETTINGS_REQUESTS.order).limit(ASKED_ROWS).execution_options(populate_existing=True)
    )
    shown, newer = [], set[str]()
    for request, email in db.session.execute(ordered).tuples():
        fields = [name for name in request.changes if name not in newer]
        newer |= {*request.changes}
        is_told = request.status in _TOLD and _still_matters(request, agent, fields)
        if fields and is_told:
            shown.append(AskedChange(request, agent, email, fields))
    return shown


def waiting_changes(agent: Agent) -> dict[str, Any]:
    """The settings as they would be, of all that the agent is asked now: the form shows what was typed last."""
    changes: dict[str, Any] = {}
    for request in SettingsRequest.open_of(agent.id):
        changes |= request.changes
    return changes


def host_commands(agent: Agent, changes: Mapping[str, Any]) -> list[str]:
    """Commands for the host that make these changes: one for all that fits into a line, and one a prompt."""
    several = (db.session.scalar(select(func.count(Account.id))) or 0) > 1
    home = f" --account {shlex.quote(db.session.get_one(Account, agent.account_id).name)}" if several else ""
    command = f"./whetstone agents set {shlex.quote(agent.name)}{home}"
    options = {name: OPTIONS[name] for name in OPTIONS if name in changes}
    line = "".join(f" {option} {shlex.quote(changes[name] or '')}" for name, option in options.items())
    prompts = [_prompt_command(command, name, changes[name]) for name in PROMPTS if name in changes]
    return [*([command + line] if line else []), *prompts]


def _prompt_command(command: str, name: str, text: str | None) -> str:
    """With the text on standard input, up to a line that is none of its own."""
    option = f"--{name.replace('_', '-')}-file"
    if not text:
        return f"{command} {option} /dev/null"
    end = next(word for word in (f"END{number or ''}" for number in count()) if word not in text.split("\n"))
    return f"{command} {option} - <<'{end}'\n{text}\n{end}"


def _still_matters(request: SettingsRequest, agent: Agent, fields: Sequence[str]) -> bool:
    """Whether what a NO or an error left undone is undone still."""
    return request.status not in _LEFT_TO_THE_HOST or any(
        getattr(agent, name) != request.changes[name] for name in fields
    )


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
