"""Testing an agent's model: it is asked for one word, with nothing of the agent in the question.

It is asked as all others are: only the model that the log of statements names, with no transaction open, and the call
is booked. What it answers says nothing of consent.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from app.asking.calls import AskedModel, Dependencies, ModelCalls
from app.asking.model_endpoint import ModelEndpoint
from app.extensions import writing
from app.keynames import may_hold_a_key
from app.llm.client import Message, Messages, ModelError
from app.models import Agent, CallPurpose
from app.models.agent_settings import operator_settings
from app.statements.checks import check_agent

WITHIN = 60.0
"""Seconds, with all attempts: somebody is waiting for it."""

QUESTION: Message = {"role": "user", "content": "This is a test of the connection. Answer with one word: ready"}


@dataclass(frozen=True)
class ModelTested:
    """What came of it. `context_window`: what the model can read at once, in tokens, where LiteLLM knows it.

    `key_found`: whether the variable that is named for its key is set where it was asked; None where none is named.
    `failure`: why there was no answer, in a sentence without content; None where there was one.
    """

    model_id: str
    seconds: float
    context_window: int | None
    key_variable: str | None
    key_found: bool | None
    failure: str | None

    @property
    def answered(self) -> bool:
        return self.failure is None

    def as_json(self) -> dict[str, Any]:
        return {"answered": self.answered, **asdict(self)}


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
