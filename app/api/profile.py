"""What an agent is told of itself: its name, its model, its budget, and what its token may."""

from __future__ import annotations

from pydantic import Field

from app.api.caller import Caller
from app.api.operation import NoParameters, Operation, ResponseModel
from app.extensions import now
from app.models import Refinement
from app.models.base import iso
from app.models.key import Scope


class TokenTold(ResponseModel):
    id: str
    name: str
    scopes: list[str]


class Me(ResponseModel):
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
    last_refinement_at: str | None
    open_refinement: str | None = Field(description="The id of the refinement that is open now, if one is.")
    token: TokenTold = Field(description="The token that you came with.")


def me(caller: Caller, _: NoParameters) -> Me:
    agent = caller.agent()
    running, own = Refinement.open_of(agent.id), agent.refinement_threshold
    return Me(
        id=agent.id,
        name=agent.name,
        model_id=agent.model_id,
        core_token_usage=agent.core_token_usage,
        core_token_budget=agent.core_token_budget,
        core_count=agent.core_count,
        journal_count=agent.journal_count,
        refinement_threshold=None if own is None else float(own),
        effective_refinement_threshold=float(agent.effective_refinement_threshold),
        needs_refinement=agent.needs_refinement(now()),
        active=agent.active,
        paused=agent.paused,
        last_refinement_at=iso(agent.last_refinement_at),
        open_refinement=running.id if running else None,
        token=TokenTold(id=caller.bearer.public_id, name=caller.bearer.name, scopes=caller.bearer.scopes),
    )


OPERATIONS = (
    Operation(
        "whoami", "GET", "/me", Scope.READ,
        "Who you are here: name, model, how much you remember and may, and what this token allows.",
        me, Me,
    ),
)  # fmt: skip
