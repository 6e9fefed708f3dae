"""Who is asked what to keep: an agent that has a mind; and what its answer cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.asking.model_endpoint import ModelEndpoint
from app.errors import Refused
from app.llm import offline
from app.llm.client import Usage
from app.models import Agent
from app.silo import AgentKeys


class NoMind(Refused):
    """whetstone/offline is a rule-based de-duplicator and no language model: there is nobody to ask what to keep."""

    code = "no_mind"


@dataclass(frozen=True)
class AskedAgent:
    """What is needed of an agent while none of its rows may be held."""

    agent_id: int
    endpoint: ModelEndpoint
    system_prompt: str | None
    instructions: str
    keys: AgentKeys

    @classmethod
    def of(cls, agent: Agent, instructions: str, keys: AgentKeys) -> AskedAgent:
        """Raises NoMind."""
        if agent.model_id == offline.MODEL_ID:
            raise NoMind
        return cls(agent.id, ModelEndpoint.of(agent), agent.system_prompt, instructions, keys)


def spent(usage: Usage) -> dict[str, Any]:
    """What a reply cost, for records."""
    return {"tokens": usage.total_tokens, "cost_usd": float(usage.cost_usd)}
