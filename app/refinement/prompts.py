"""What the model is told: who it is, hard rules, its own instructions, numbers, the ledger, a closing line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from app.asking.calls import AskedAgent
from app.asking.prompt_memories import NO_IDENTITY, PromptMemory, consent_context, fit_ledger, imported_lately
from app.asking.rendering import encode_json, render_prompt
from app.asking.second_reader import ReaderAction, SecondReader, second_reader_of
from app.extensions import now
from app.keys.agent_keys import open_keys
from app.models import DEFAULT_REFINEMENT_PROMPT, Agent, Refinement, Trigger
from app.models.statement_log import current_of
from app.models.tally import MAX_PROTECTIONS
from app.refinement.functions import MUTATING


@dataclass(frozen=True)
class PromptFigures:
    """The numbers that both prompts tell, but for what only the revealed ledger tells. Masses in tokens."""

    core_count: int
    mass: int
    budget: int
    cap: int
    threshold: Decimal
    deduplicated: int = 0
    confirmations: int = 0

    @classmethod
    def of(cls, agent: Agent, refinement: Refinement) -> PromptFigures:
        mass, budget = agent.core_token_usage, agent.core_token_budget
        return cls(
            agent.core_count,
            mass,
            budget,
            refinement.cap,
            refinement.threshold,
            refinement.deduplicated,
            refinement.max_confirmed_losses,
        )

    def with_counts(self, core: Sequence[PromptMemory]) -> dict[str, Any]:
        """The values for a template, with what the ledger tells."""
        return vars(self) | {
            "constitutional_count": sum(entry.constitutional for entry in core),
            "over_budget": max(self.mass - self.budget, 0),
            "threshold": f"{self.threshold:.2%}",
            "protections": MAX_PROTECTIONS,
            "mutating": ", ".join(MUTATING),
        }


@dataclass(frozen=True)
class RefinedAgent:
    """The agent of one refinement, as it is needed while no row may be held: taken once, at the start.

    `is_asked` is false where the agent itself wanted the refinement. `reader` is to read its changes once more, and it
    is to write so many `probes`.
    """

    agent: AskedAgent
    instructions: str = field(repr=False)
    is_asked: bool
    figures: PromptFigures
    reader: SecondReader | None
    probes: int

    @classmethod
    def of(cls, agent: Agent, refinement: Refinement) -> RefinedAgent:
        asked, figures = AskedAgent.of(agent, open_keys(agent)), PromptFigures.of(agent, refinement)
        instructions = agent.refinement_prompt or DEFAULT_REFINEMENT_PROMPT
        is_asked, reader = not _is_own_request(agent, refinement), second_reader_of(agent)
        return cls(asked, instructions, is_asked, figures, reader, agent.recall_probes)

    def question(self, window: int | None) -> list[dict[str, Any]]:
        """Whether it wants the refinement."""
        core, journal = self.agent.read_core(), self.agent.read_recent_journal()
        imported = imported_lately(self.agent.agent_id)
        return consent_messages(self.agent.system_prompt, core, journal, self.figures, window, imported, self.reader)

    def opening(self, figures: PromptFigures, window: int | None) -> list[dict[str, Any]]:
        """Of the loop, with the numbers of the snapshot."""
        core = self.agent.read_core()
        return refinement_messages(self.agent.system_prompt, self.instructions, core, figures, window)


REQUEST_KEPT = timedelta(hours=72)
"""How long an agent's own request waits for a worker; after that it is asked whether it still wants that."""


def _is_own_request(agent: Agent, refinement: Refinement) -> bool:
    """Whether the agent asked for it itself, by what it signed; what the row says is not enough."""
    if refinement.trigger != Trigger.AGENT:
        return False
    current = current_of(agent.id, agent.uuid)
    stated = current.requests.get(refinement.id)
    if stated is None or stated.body["mode"] != refinement.mode:
        return False
    is_by_live_token = stated.body["by_token"] is None or stated.body["by_token"] in current.tokens
    return is_by_live_token and stated.at > now() - REQUEST_KEPT


def consent_messages(
    system_prompt: str | None,
    core: Sequence[PromptMemory],
    journal: Sequence[PromptMemory],
    figures: PromptFigures,
    window: int | None,
    imported: Collection[int] = (),
    reader: SecondReader | None = None,
) -> list[dict[str, Any]]:
    """The question whether the agent wants a refinement: two messages, no tools. `imported` are not shown, and the
    model of a second reader is quoted: a human may have named it.
    """
    model = encode_json(reader.endpoint.model_id) if reader else ""
    reverses = reader is not None and reader.action is ReaderAction.REVERSE
    numbers = figures.with_counts(core)
    question = render_prompt("consent_question.txt", reader=model, reverses=reverses, **numbers)
    context = consent_context(system_prompt, core, journal, window, imported)
    return [context, {"role": "user", "content": question}]


def refinement_messages(
    system_prompt: str | None,
    instructions: str,
    core: Sequence[PromptMemory],
    figures: PromptFigures,
    window: int | None,
) -> list[dict[str, Any]]:
    """The opening of the loop."""
    shown, heading = fit_ledger(core, window)
    numbers = figures.with_counts(core)
    identity = system_prompt or NO_IDENTITY
    system = render_prompt("refinement_system.txt", identity=identity, instructions=instructions, **numbers)
    ledger = render_prompt("refinement_ledger.txt", ledger=shown, ledger_heading=heading, **numbers)
    return [{"role": "system", "content": system}, {"role": "user", "content": ledger}]
