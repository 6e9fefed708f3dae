"""What is needed of an agent while its model is asked and none of its rows may be held."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from app.asking.calls import AskedModel
from app.asking.model_endpoint import ModelEndpoint
from app.asking.prompt_memories import PromptMemory, memory_context, read_entries, read_journal
from app.extensions import now
from app.models import Actor, Agent
from app.models.state import JOURNAL_DAYS
from app.silo import AgentKeys


@dataclass(frozen=True)
class AskedAgent(AskedModel):
    """Taken when it is claimed: what becomes of its settings later does not touch the question."""

    as_actor: Actor
    system_prompt: str | None = field(repr=False)
    keys: AgentKeys

    @classmethod
    def of(cls, agent: Agent, keys: AgentKeys) -> AskedAgent:
        return cls(agent.account_id, agent.id, ModelEndpoint.of(agent), agent.as_actor, agent.system_prompt, keys)

    def read_core(self) -> list[PromptMemory]:
        """Its active core memories, oldest first, revealed. Raises SealBroken."""
        return read_entries(self.agent_id, self.keys)

    def read_recent_journal(self, *, own: bool = False) -> list[PromptMemory]:
        """Its journal of the last days, the same way; with `own` without Whetstone's notes."""
        return read_journal(self.agent_id, self.keys, since=now() - timedelta(days=JOURNAL_DAYS), own=own)

    def context(self, window: int | None) -> dict[str, Any]:
        """The message that says who it is and what it remembers, for a window in tokens."""
        return memory_context(self.system_prompt, self.read_core(), self.read_recent_journal(), window)
