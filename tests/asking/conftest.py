"""An agent whose model is asked for each purpose, by what a worker calls; and what was booked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from flask import Flask

from app.asking.model_test import check_model
from app.extensions import db, writing
from app.history.verify import verify
from app.llm.client import Reply, Usage
from app.models import Agent, CallPurpose, ModelCall, Refinement, TokenRequest, Trigger
from tests.authoring.conftest import ask_about, guarded, read_by, writes
from tests.grants.conftest import put
from tests.refinement.driving import call, carry, say
from tests.refinement.reading import DONE, choose_reader, run, want_probes
from tests.refinement.soundness import assert_sound
from tests.reflection.conftest import jot, look_back, means_of, talk
from tests.support.factories import ledger, make_agent, make_user, remember
from tests.support.scripted import Scripted
from tests.tokens.conftest import think

__all__ = ["guarded"]

SECRET = "Ann hides the key under the blue stone."
COST = Usage(700, 70, Decimal("0.012345"))

Asking = Callable[..., str | None]
"""Has an agent's model asked, with these replies; returns the id of what that was for."""


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("wren", model_id="openai/scripted")
    remember(made, SECRET, "Bob moved to Oslo.")
    jot(made, "Dora comes on Friday.")
    return made


@pytest.fixture(autouse=True)
def sound(app: Flask) -> Iterator[None]:
    yield
    assert_sound(app)
    assert verify().ok


def _consent(agent: Agent, *replies: Scripted) -> str:
    return carry(agent, *replies).refinement.id


def _refinement(agent: Agent, *replies: Scripted) -> str:
    return carry(agent, *replies, trigger=Trigger.AGENT).refinement.id


def _exception(agent: Agent, *replies: Scripted) -> str:
    return put(agent, make_user("ann@example.org", "admin"), *replies)[0].id


def _token(agent: Agent, *replies: Scripted) -> str:
    user = make_user("bob@example.org", "admin")
    with writing():
        asked, _ = TokenRequest.make(Agent.lock(agent.id), user, name="laptop", scopes=["read"], by=user.actor)
    try:
        think(asked, *replies)
    finally:
        db.session.rollback()
    return asked.id


def _safety_reading(agent: Agent, *replies: Scripted) -> str:
    return read_by(writes(agent, "system_prompt", "You are Wren, and kind."), *replies).proposal.id


def _conversation(agent: Agent, *replies: Scripted) -> str:
    return talk(agent, *replies)[0].id


def _promotion(agent: Agent, *replies: Scripted) -> None:
    look_back(agent, *replies)


def _settings_change(agent: Agent, *replies: Scripted) -> str:
    cleo = make_user("cleo@example.org", "admin")
    return ask_about(agent, cleo, *replies, reflection_prompt="Keep what rhymes.")[0].id


def _second_reading(agent: Agent, *replies: Scripted) -> str:
    choose_reader(agent)
    change = call("update_memory", id=ledger(agent)[-1][0], content="Bob moved to Oslo!")
    return run(agent, [change, DONE], replies, trigger=Trigger.AGENT).refinement.id


def _recall_probes(agent: Agent, *replies: Scripted) -> str:
    want_probes(agent, 1)
    return run(agent, [*replies, DONE] if replies else [], trigger=Trigger.AGENT).refinement.id


def _model_test(agent: Agent, *replies: Scripted) -> None:
    check_model(agent.id, means_of(*replies)[0])


ASKED: dict[CallPurpose, tuple[Asking, Reply]] = {
    CallPurpose.CONSENT: (_consent, say("NO")),
    CallPurpose.REFINEMENT: (_refinement, call("complete_refinement", summary="All is well.")),
    CallPurpose.EXCEPTION: (_exception, say("YES")),
    CallPurpose.TOKEN: (_token, say("YES")),
    CallPurpose.SAFETY_READING: (_safety_reading, say("SAFE")),
    CallPurpose.CONVERSATION: (_conversation, say('{"journal": ["Tea without sugar."], "core": []}')),
    CallPurpose.PROMOTION: (_promotion, say('{"promote": []}')),
    CallPurpose.SETTINGS_CHANGE: (_settings_change, say("YES")),
    CallPurpose.SECOND_READING: (_second_reading, say("1: kept")),
    CallPurpose.MODEL_TEST: (_model_test, say("ready")),
    CallPurpose.RECALL_PROBES: (_recall_probes, say('{"probes": []}')),
}
"""By purpose: how its question is put, and a reply to it."""


def costly(reply: Reply) -> Reply:
    return replace(reply, usage=COST)


def booked(*purposes: CallPurpose) -> Sequence[ModelCall]:
    """All calls, or those of these purposes; oldest first."""
    db.session.rollback()
    query = db.select(ModelCall).where(ModelCall.purpose.in_(purposes or tuple(CallPurpose)))
    return db.session.scalars(query.order_by(ModelCall.id)).all()


def total(calls: Sequence[ModelCall]) -> Usage:
    parts = (Usage(each.prompt_tokens, each.completion_tokens, each.cost_usd) for each in calls)
    return sum(parts, start=Usage())


def on_account(refinement: Refinement) -> Usage:
    return Usage(refinement.prompt_tokens, refinement.completion_tokens, refinement.cost_usd)
