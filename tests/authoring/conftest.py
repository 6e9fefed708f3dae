"""An agent that writes to itself, and a safety model that answers as it is told."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.authoring.fields import author_setting
from app.authoring.reading import read_proposal
from app.extensions import db
from app.models import Agent, SettingProposal
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


def proposal(proposal_id: str) -> SettingProposal:
    db.session.rollback()
    return db.session.get_one(SettingProposal, proposal_id, populate_existing=True)
