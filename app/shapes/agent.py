"""An agent: its model, its budget, what it holds and whether it is being refined. Its prompts are settings."""

from __future__ import annotations

from pydantic import Field

from app.shapes.response import Moment, ResponseModel


class AgentShape(ResponseModel):
    id: int
    name: str
    model_id: str
    core_token_usage: int = Field(description="What your active core memories weigh, in tokens.")
    core_token_budget: int = Field(description="The mass that you should stay under.")
    core_count: int
    journal_count: int
    refinement_threshold: float | None = Field(description="Your own; null where the default holds.")
    effective_refinement_threshold: float
    needs_refinement: bool
    active: bool
    paused: bool
    last_refinement_at: Moment | None
    open_refinement: str | None = Field(description="The id of the refinement that is open now, if one is.")


class AdminAgent(AgentShape):
    """As those who run it see it."""

    forgotten_at: Moment | None
    next_due: Moment | None


class OperatedAgent(AdminAgent):
    """As the command line tells it, with what its operator set."""

    next_due_words: str
    last_attempt_at: Moment | None
    api_base: str | None
    api_key_env: str | None
    created_at: Moment | None
