"""What the process needs of its agent while no row may be held: its voice, its words, its keys, its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.asking.prompt_memories import PromptMemory
from app.models import Agent, Refinement, Trigger, open_keys
from app.models.tally import MAX_PROTECTIONS
from app.refinement.prompts import PromptFigures
from app.silo import AgentKeys


@dataclass(frozen=True)
class AgentSnapshot:
    """Taken once, at the start. `is_asked` is false where the agent itself wanted the refinement."""

    agent_id: int
    model_id: str
    api_base: str | None
    api_key_env: str | None
    system_prompt: str | None
    instructions: str
    keys: AgentKeys
    is_asked: bool
    numbers: PromptFigures

    @classmethod
    def of(cls, agent: Agent, refinement: Refinement) -> AgentSnapshot:
        return cls(
            agent.id,
            refinement.model_id,
            agent.api_base,
            agent.api_key_env,
            agent.system_prompt,
            agent.effective_refinement_prompt,
            open_keys(agent),
            refinement.trigger != Trigger.AGENT,
            figures_of(agent, refinement),
        )

    def figures(self, core: Sequence[PromptMemory]) -> PromptFigures:
        return with_counts(self.numbers, core)


def figures_of(agent: Agent, refinement: Refinement) -> PromptFigures:
    """The numbers for the prompts, but for what only the ledger tells."""
    return PromptFigures(
        core_count=agent.core_count,
        constitutional_count=0,
        mass=agent.core_token_usage,
        budget=agent.core_token_budget,
        cap=refinement.cap,
        threshold=refinement.threshold,
        deduplicated=refinement.deduplicated,
        protections=MAX_PROTECTIONS,
    )


def with_counts(figures: PromptFigures, core: Sequence[PromptMemory]) -> PromptFigures:
    """The same with what the revealed ledger tells."""
    return replace(figures, constitutional_count=sum(entry.constitutional for entry in core))
