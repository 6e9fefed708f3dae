"""An agent with a model that answers as it is told, a conversation to hand in, and a journal to look back over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from flask import Flask

from app.asking.calls import Dependencies
from app.extensions import db, writing
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import Agent, Intake, Memory, MemoryType
from app.reflection.conversation import hand_in, reflect_on_conversation
from app.reflection.promotion import run_promotion
from tests.refinement.soundness import assert_sound
from tests.support.factories import make_agent
from tests.support.rows import fresh
from tests.support.scripted import Scripted, ScriptedClient, ScriptedClients

TALK = [
    {"role": "user", "content": "My sister Dora arrives on Friday. I like my tea without sugar."},
    {"role": "assistant", "content": "I will remember both."},
]


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent("wren", model_id="openai/scripted", system_prompt="You are Wren.")


@pytest.fixture(autouse=True)
def sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """Totals, states and chains are true after every test that has a database."""
    app: Flask | None = request.getfixturevalue("app") if "app" in request.fixturenames else None
    yield
    if app is not None:
        assert_sound(app)
        verdict = verify()
        assert verdict.ok, verdict.first_problem


def means_of(*replies: Scripted, window: int | None = None) -> tuple[Dependencies, ScriptedClient]:
    client = ScriptedClient(*replies, context_window=window)
    return Dependencies(ScriptedClients(client), pause=lambda _: None, monotonic=lambda: 0.0), client


def talk(agent: Agent, *replies: Scripted, messages: object = TALK) -> tuple[Intake, ScriptedClient]:
    """Hand a conversation in, and let a worker hear it."""
    intake = hand_in(agent.id, messages, agent.as_actor)
    dependencies, client = means_of(*replies)
    reflect_on_conversation(intake.id, dependencies)
    return fresh(intake), client


def jot(agent: Agent, *contents: str) -> list[int]:
    """The agent writes into its journal, now."""
    with writing():
        locked = Agent.lock(agent.id)
        return [
            Memory.save(locked, content, keys=open_keys(locked), by=locked.as_actor, type_=MemoryType.JOURNAL)[0].id
            for content in contents
        ]


def look_back(agent: Agent, *replies: Scripted, window: int | None = None) -> ScriptedClient:
    """The daily reflection, as a worker carries it."""
    dependencies, client = means_of(*replies, window=window)
    run_promotion(agent.id, dependencies)
    return client


def texts(agent: Agent, type_: MemoryType) -> list[str]:
    """The active memories of one type, revealed, oldest first."""
    db.session.rollback()
    keys = open_keys(agent)
    found = db.session.scalars(Memory.active(agent.id, type_).execution_options(populate_existing=True))
    return [keys.reveal_memory(memory.id, memory.content) for memory in found]


def at_rest(table: str) -> str:
    """Everything that a table holds, as a dump would show it."""
    db.session.rollback()
    rows: Sequence[Any] = db.session.execute(db.text(f"SELECT * FROM {table}")).all()
    return repr(rows)
