"""An agent that writes to itself, and a safety model that answers as it is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.asking.replies import ConsentAnswer
from app.authoring.asked_changes import SavedSettings, ask_agent, decide_settings_request, save_settings
from app.authoring.fields import author_setting
from app.authoring.reading import read_proposal
from app.extensions import db, writing
from app.keys.agent_keys import open_keys
from app.models import Agent, SettingProposal, SettingsRequest, User
from app.shapes.agent import Setting
from tests.support.factories import make_agent, remember
from tests.support.scripted import Scripted, ScriptedClient, ScriptedClients

SECRET = "Ann hides the key under the blue stone."


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("wren")
    remember(made, SECRET)
    return made


@pytest.fixture
def guarded(app: Flask) -> None:
    """A safety model is set."""
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"safety_model": "openai/judge"})


def writes(agent: Agent, field: str, value: object) -> Setting:
    """The agent authors one of its own settings."""
    return author_setting(agent.id, field, value, by=agent.as_actor)


@dataclass
class Reading:
    proposal: SettingProposal
    client: ScriptedClient


def read_by(view: Setting, *replies: Scripted) -> Reading:
    """A worker lets the safety model read what waits."""
    assert view.unread is not None
    client = ScriptedClient(*replies)
    read_proposal(view.unread, Dependencies(ScriptedClients(client), pause=lambda _: None, monotonic=lambda: 0.0))
    return Reading(proposal(view.unread), client)


def wants(agent: Agent, user: User, **changes: Any) -> SavedSettings:
    """A human saves settings of it in the browser."""
    return save_settings(agent.id, changes, user=user)


def put(request: SettingsRequest, *replies: Scripted) -> tuple[SettingsRequest, ScriptedClient]:
    """A worker lets the agent's model answer."""
    client = ScriptedClient(*replies)
    ask_agent(request.id, Dependencies(ScriptedClients(client), pause=lambda _: None, monotonic=lambda: 0.0))
    return reload(request), client


def ask_about(agent: Agent, user: User, *replies: Scripted, **changes: Any) -> tuple[SettingsRequest, ScriptedClient]:
    """A human wants to change these settings, and the scripted model answers."""
    saved = wants(agent, user, **changes)
    assert saved.request is not None, saved
    return put(saved.request, *replies)


def declines(agent: Agent, user: User, words: str = "") -> SettingsRequest:
    """A human wanted a change, and the agent says NO to it, whatever model it has."""
    with writing():
        locked, wanted = Agent.lock(agent.id), {"reflection_prompt": "Keep what rhymes."}
        request = SettingsRequest.make(locked, wanted, user=user, by=user.actor, about={})
    answer = ConsentAnswer(granted=False, words=words)
    return decide_settings_request(request.id, answer, agent_id=agent.id, by=agent.as_actor, keys=open_keys(agent))


def reload(request: SettingsRequest) -> SettingsRequest:
    db.session.rollback()
    return db.session.get_one(SettingsRequest, request.id, populate_existing=True)


def proposal(proposal_id: str) -> SettingProposal:
    db.session.rollback()
    return db.session.get_one(SettingProposal, proposal_id, populate_existing=True)
