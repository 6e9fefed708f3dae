"""A model server that never ends its reply: the refinement ends, at its deadline, and leaves agent and thread free."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from flask import Flask

from app.asking.calls import AskedModel, Dependencies, ModelCalls
from app.asking.model_endpoint import ModelEndpoint
from app.extensions import db, writing
from app.llm.client import ModelError, ModelErrorKind
from app.llm.litellm import LiteLLMClients, load_litellm
from app.models import COMMAND_LINE, Agent, CallPurpose, Refinement, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from tests.support.factories import remember
from tests.support.hostile_server import HostileServer

pytestmark = pytest.mark.once

SECONDS = 1
PROVIDERS = ("openai/m", "lm_studio/m", "anthropic/m")


@pytest.fixture(scope="module")
def loaded() -> None:
    """The first call of each provider loads modules of its own: not in the time that is measured."""
    load_litellm()
    with HostileServer("redirect") as server:
        for model in PROVIDERS:
            with pytest.raises(ModelError), closing(LiteLLMClients().for_model(model, api_base=server.base_url)) as one:
                one.complete([{"role": "user", "content": "?"}], timeout=60)


@pytest.fixture
def server(loaded: None) -> Iterator[HostileServer]:
    with HostileServer("drip") as running:
        yield running


@pytest.fixture
def short(app: Flask) -> None:
    app.extensions["settings"] = app.extensions["settings"].model_copy(update={"deadline_seconds": SECONDS})


@pytest.mark.parametrize("model", PROVIDERS)
@pytest.mark.parametrize(
    ("trigger", "status"), [(Trigger.ADMIN, "failed"), (Trigger.AGENT, "unfinished")], ids=["consent", "loop"]
)
def test_a_refinement_ends_at_its_deadline_however_slowly_its_model_sends(
    agent: Agent, short: None, server: HostileServer, model: str, trigger: Trigger, status: str
) -> None:
    remember(agent, "We spoke of ships.", "We spoke of captains.")
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, model_id=model, api_base=server.base_url)
    refinement = start_refinement(agent.id, trigger=trigger, by=COMMAND_LINE)
    began = time.monotonic()
    run_refinement(refinement.id, Dependencies(LiteLLMClients()))
    assert time.monotonic() - began < SECONDS + 2
    ended = db.session.get_one(Refinement, refinement.id, populate_existing=True)
    assert (ended.status, ended.is_open) == (status, False)
    assert len(server.paths) == 1


@pytest.mark.parametrize("model", PROVIDERS)
def test_every_other_question_ends_at_its_own_deadline(
    agent: Agent, short: None, server: HostileServer, model: str
) -> None:
    """Exceptions, safety readings, conversations and promotions ask by this."""
    began = time.monotonic()
    asked = AskedModel(agent.account_id, agent.id, ModelEndpoint(model, server.base_url, None))
    with pytest.raises(ModelError) as caught, ModelCalls(asked, Dependencies(LiteLLMClients())) as calls:
        calls.ask(CallPurpose.EXCEPTION, lambda _: [{"role": "user", "content": "?"}])
    assert caught.value.kind is ModelErrorKind.TIMEOUT
    assert time.monotonic() - began < SECONDS + 2
