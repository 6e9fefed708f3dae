"""What an agent is told of itself: its name, its model, its budget, and what its token may."""

from __future__ import annotations

from pydantic import Field

from app.api.caller import Caller
from app.api.operation import operation
from app.extensions import now
from app.models import Refinement
from app.models.key import Scope
from app.shapes.agent import AgentShape, TokenTold


class Me(AgentShape):
    token: TokenTold = Field(description="The token that you came with.")


@operation("GET", "/me", Scope.READ)
def whoami(caller: Caller) -> Me:
    """Who you are here: name, model, how much you remember and may, and what this token allows."""
    agent = caller.agent()
    running, bearer = Refinement.open_of(agent.id), caller.bearer
    return Me.of(
        agent,
        needs_refinement=agent.needs_refinement(now()),
        open_refinement=running and running.id,
        token=TokenTold.of(bearer, id=bearer.public_id),
    )
