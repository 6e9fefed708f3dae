"""Testing an agent's model: it is asked for one word, with nothing of the agent in the question.

It is asked as all others are: only the model that the log of statements names, with no transaction open, and the call
is booked. What it answers says nothing of consent.
"""

from __future__ import annotations

import os

from app.asking.calls import AskedModel, Dependencies, ModelCalls
from app.asking.model_endpoint import ModelEndpoint
from app.errors import WhetstoneError
from app.extensions import writing
from app.keynames import may_hold_a_key
from app.llm.client import Message, Messages, ModelError
from app.models import Agent, CallPurpose
from app.models.agent_settings import operator_settings
from app.models.model_test import ModelTest, ModelTested
from app.statements.checks import check_agent

WITHIN = 60.0
"""Seconds, with all attempts: somebody is waiting for it."""

QUESTION: Message = {"role": "user", "content": "This is a test of the connection. Answer with one word: ready"}


UNEXPECTED = "It ended by an error that nobody expected. The worker's log says where."


def answer_model_test(agent_id: int, dependencies: Dependencies) -> None:
    """Ask for the word that somebody waits for on the agent's page, in a worker, and write down what came of it.

    Does nothing where another worker does it, or nobody waits any more. Raises what keeps the model from being asked,
    once it is written down.
    """
    test = ModelTest.claim(agent_id)
    if test is None:
        return
    found: ModelTested | str = UNEXPECTED
    try:
        found = check_model(agent_id, dependencies)
    except WhetstoneError as error:
        found = error.sentence
        raise
    finally:
        test.end(found)


def check_model(agent_id: int, dependencies: Dependencies) -> ModelTested:
    """Ask the agent's present model for a word.

    Raises NotFound, AgentForgotten, AgentStopped or LogBroken, before anything is asked.
    """
    with writing():
        agent = Agent.lock(agent_id)
        agent.check_not_forgotten()
        check_agent(agent)
        asked = AskedModel(agent.account_id, agent.id, ModelEndpoint.of(agent))
    window, start = list[int | None](), list[float]()

    def compose(known: int | None) -> Messages:
        """The models' library is loaded by now: that is no part of how long the answer takes."""
        window.append(known)
        start.append(dependencies.monotonic())
        return [QUESTION]

    with ModelCalls(asked, dependencies) as calls:
        failure = None
        try:
            calls.ask(CallPurpose.MODEL_TEST, compose, within=WITHIN)
        except ModelError as error:
            failure = error.sentence
        seconds = dependencies.monotonic() - start[0] if start else 0.0
    endpoint = asked.endpoint
    key = (endpoint.api_key_env or None, _is_key_set(endpoint.api_key_env))
    return ModelTested(endpoint.model_id, seconds, window[0] if window else None, *key, failure)


def _is_key_set(name: str | None) -> bool | None:
    """Whether the variable holds something in this process; of one that may hold no key, nothing is told."""
    if not name:
        return None
    return may_hold_a_key(name, operator_settings().api_key_envs) and bool(os.environ.get(name, "").strip())
