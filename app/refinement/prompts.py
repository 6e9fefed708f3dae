"""What the model is told: who it is, hard rules, its own instructions, numbers, the ledger, a closing line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from app.asking.memory_context import NO_IDENTITY, fit_ledger, memory_context
from app.asking.prompt_memories import PromptMemory
from app.asking.rendering import render_prompt
from app.models import Agent, Refinement
from app.models.tally import MAX_PROTECTIONS


@dataclass(frozen=True)
class PromptFigures:
    """The numbers that both prompts tell. Masses in tokens."""

    core_count: int
    constitutional_count: int
    mass: int
    budget: int
    cap: int
    threshold: Decimal
    deduplicated: int = 0
    protections: int = 10

    @classmethod
    def of(cls, agent: Agent, refinement: Refinement) -> PromptFigures:
        """All but what only the ledger tells; see `with_counts`."""
        return cls(
            core_count=agent.core_count,
            constitutional_count=0,
            mass=agent.core_token_usage,
            budget=agent.core_token_budget,
            cap=refinement.cap,
            threshold=refinement.threshold,
            deduplicated=refinement.deduplicated,
            protections=MAX_PROTECTIONS,
        )

    def with_counts(self, core: Sequence[PromptMemory]) -> PromptFigures:
        """The same with what the revealed ledger tells."""
        return replace(self, constitutional_count=sum(entry.constitutional for entry in core))


def consent_messages(
    *,
    system_prompt: str | None,
    core: Sequence[PromptMemory],
    journal: Sequence[PromptMemory],
    figures: PromptFigures,
    window: int | None,
) -> list[dict[str, Any]]:
    """The question whether the agent wants a refinement: two messages, no tools."""
    question = render_prompt("consent_question.txt", **_figure_values(figures))
    return [memory_context(system_prompt, core, journal, window), {"role": "user", "content": question}]


def refinement_messages(
    *,
    system_prompt: str | None,
    instructions: str,
    core: Sequence[PromptMemory],
    figures: PromptFigures,
    window: int | None,
) -> list[dict[str, Any]]:
    """The opening of the loop."""
    shown, heading = fit_ledger(core, window)
    numbers = _figure_values(figures)
    system = render_prompt(
        "refinement_system.txt", identity=system_prompt or NO_IDENTITY, instructions=instructions, **numbers
    )
    ledger = render_prompt("refinement_ledger.txt", ledger=shown, ledger_heading=heading, **numbers)
    return [{"role": "system", "content": system}, {"role": "user", "content": ledger}]


def _figure_values(figures: PromptFigures) -> dict[str, Any]:
    return {
        "core_count": figures.core_count,
        "constitutional_count": figures.constitutional_count,
        "mass": figures.mass,
        "budget": figures.budget,
        "over_budget": max(figures.mass - figures.budget, 0),
        "cap": figures.cap,
        "threshold": f"{figures.threshold:.2%}",
        "deduplicated": figures.deduplicated,
        "protections": figures.protections,
    }
