"""The scene of every attack: a victim with memories and a token, an attacker with an agent and an account of theirs."""

from __future__ import annotations

import pytest
from flask import Flask

from app.models import MemoryType
from app.models.user import ADMIN
from tests.adversaries.scene import HONEST, SECRET, Attacker, KnownAgent, KnownUser, Scene, issue
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, make_user, remember


@pytest.fixture
def scene(app: Flask, web: Flask, clock: FakeClock) -> Scene:
    victim = make_agent("wren", model_id=HONEST[0], system_prompt="You are Wren.")
    remember(victim, f"{SECRET}.", "Ann likes tea.", "Bob moved to Oslo.")
    remember(victim, f"{SECRET}, I noted.", type_=MemoryType.JOURNAL)
    return Scene(
        app=app,
        web=web,
        clock=clock,
        victim=KnownAgent.of(victim),
        home=issue(KnownAgent.of(victim)),
        attacker=Attacker.come(),
        ann=KnownUser.of(make_user("ann@example.org", ADMIN)),
        mallory=KnownUser.of(make_user("mallory@example.org", ADMIN)),
    )
