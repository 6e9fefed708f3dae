"""Which model reads once more what a refinement changed, and what its answer may do.

The operator's settings are floors: their reader comes before an agent's own, and their `reverse` holds for all.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.asking.model_endpoint import ModelEndpoint
from app.config import ReaderAction
from app.models import Agent
from app.models.agent_settings import operator_settings

__all__ = ["ReaderAction", "SecondReader", "effective_reader_action", "second_reader_of"]


@dataclass(frozen=True)
class SecondReader:
    """Whom to ask, and what becomes of a refinement of which it does not call everything kept."""

    endpoint: ModelEndpoint
    action: ReaderAction


def second_reader_of(agent: Agent) -> SecondReader | None:
    """The operator's, else the agent's own, else none."""
    endpoint = _operators_endpoint() or _own_endpoint(agent)
    return None if endpoint is None else SecondReader(endpoint, effective_reader_action(agent))


def effective_reader_action(agent: Agent) -> ReaderAction:
    """The stricter of the operator's and the agent's."""
    actions = (operator_settings().second_reader_action, agent.second_reader_action)
    return ReaderAction.REVERSE if ReaderAction.REVERSE in actions else ReaderAction.FLAG


def _operators_endpoint() -> ModelEndpoint | None:
    known = operator_settings()
    if not known.second_reader_model:
        return None
    where = (known.second_reader_api_base or None, known.second_reader_api_key_env or None)
    return ModelEndpoint(known.second_reader_model, *where, is_operators=True)


def _own_endpoint(agent: Agent) -> ModelEndpoint | None:
    if agent.second_reader_model is None:
        return None
    return ModelEndpoint(agent.second_reader_model, agent.second_reader_api_base, agent.second_reader_api_key_env)
