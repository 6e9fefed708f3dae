"""The agent of one refinement, as it is needed while no row may be held, and what its model is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.asking.asked_agent import AskedAgent
from app.models import Agent, Refinement, Trigger, open_keys
from app.refinement.prompts import PromptFigures, consent_messages, refinement_messages


@dataclass(frozen=True)
class RefinedAgent:
    """Taken once, at the start. `is_asked` is false where the agent itself wanted the refinement."""

    agent: AskedAgent
    instructions: str = field(repr=False)
    is_asked: bool
    figures: PromptFigures

    @classmethod
    def of(cls, agent: Agent, refinement: Refinement) -> RefinedAgent:
        asked, figures = AskedAgent.of(agent, open_keys(agent)), PromptFigures.of(agent, refinement)
        return cls(asked, agent.effective_refinement_prompt, refinement.trigger != Trigger.AGENT, figures)

    def question(self, window: int | None) -> list[dict[str, Any]]:
        """Whether it wants the refinement."""
        core, journal = self.agent.read_core(), self.agent.read_recent_journal()
        return consent_messages(
            system_prompt=self.agent.system_prompt,
            core=core,
            journal=journal,
            figures=self.figures.with_counts(core),
            window=window,
        )

    def opening(self, figures: PromptFigures, window: int | None) -> list[dict[str, Any]]:
        """Of the loop, with the numbers of the snapshot."""
        core = self.agent.read_core()
        return refinement_messages(
            system_prompt=self.agent.system_prompt,
            instructions=self.instructions,
            core=core,
            figures=figures.with_counts(core),
            window=window,
        )
