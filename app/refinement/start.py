"""Starting and stopping: who may, when, and how a start becomes a row before anything is done."""

from __future__ import annotations

from app.errors import Refused
from app.extensions import now, writing
from app.models import Actor, Agent, Mode, Refinement, Trigger
from app.models.account_use import check_monthly_cost
from app.models.agent_settings import operator_settings
from app.models.declaring import declare
from app.models.statement import StatementKind
from app.silo import TokenKey


class AlreadyRunning(Refused):
    """The agent has an open refinement."""

    code = "already_running"

    def __init__(self, refinement_id: str) -> None:
        super().__init__(f"Already running: refinement {refinement_id} of this agent is open.", "Nothing was started.")
        self.refinement_id = refinement_id


class LedgerEmpty(Refused):
    """The agent has no core memories to refine."""

    code = "ledger_empty"
    outcome = "Nothing was started."


class RestingAfterNo(Refused):
    """The agent said NO, and is not asked again for 24 hours."""

    code = "declined_recently"


class AgentInactive(Refused):
    """The agent is not active."""

    code = "agent_inactive"
    outcome = "Nothing was started."


def start_refinement(
    agent_id: int, *, trigger: Trigger, by: Actor, mode: Mode = Mode.FULL, signer: TokenKey | None = None
) -> Refinement:
    """Claim the agent: write the one open refinement that it may have, queued for a worker.

    `signer` is the agent's token where it asks for one itself: that signature is its consent.

    Raises AlreadyRunning, LedgerEmpty, MonthlyCostReached, RestingAfterNo, AgentInactive or AgentForgotten; nothing is
    written then. The caller puts the id on the queue once this is committed; the sweeper finds what gets lost.
    """
    with writing():
        agent = Agent.lock(agent_id)
        _check_startable(agent, trigger, mode)
        cap = operator_settings().max_mutations
        refinement = Refinement.queue(agent, trigger=trigger, mode=mode, cap=cap, by=by)
        if trigger is Trigger.AGENT:
            said = {"mode": str(mode), "by_token": signer.public_id if signer else None}
            declare(StatementKind.OWN_REQUEST, agent, refinement.subject, said, signer=signer)
        return refinement


def request_stop(refinement_id: str, *, by: Actor) -> Refinement:
    """Stop: at once where no worker has begun, otherwise before the next change. Does nothing to an ended one."""
    with writing():
        refinement = Refinement.lock(refinement_id)
        agent = Agent.lock(refinement.agent_id)
        refinement.request_stop(agent, by=by)
        return refinement


def _check_startable(agent: Agent, trigger: Trigger, mode: Mode) -> None:
    agent.check_not_forgotten()
    if not agent.active:
        raise AgentInactive
    running = Refinement.open_of(agent.id)
    if running is not None:
        raise AlreadyRunning(running.id)
    if agent.core_count == 0:
        raise LedgerEmpty
    check_monthly_cost(agent.account_id, mode)
    is_asked = trigger is not Trigger.AGENT and mode is Mode.FULL
    if is_asked and agent.declined_until > now():
        raise RestingAfterNo(
            f"{agent.name} declined. You can ask again after {agent.declined_until:%Y-%m-%d %H:%M} UTC.",
            "Nothing was started. Removing exact duplicates only needs no question.",
        )
