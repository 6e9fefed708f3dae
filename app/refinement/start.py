"""Starting and stopping: who may, when, and how a start becomes a row before anything is done."""

from __future__ import annotations

import uuid

from flask import current_app
from sqlalchemy.exc import IntegrityError

from app.config import Settings
from app.errors import Refused
from app.extensions import db, now, writing
from app.models import Action, Actor, Agent, Mode, Refinement, Status, Trigger, record
from app.models.base import iso


class AlreadyRunning(Refused):
    """The agent has an open refinement."""

    code = "already_running"

    def __init__(self, refinement_id: str) -> None:
        super().__init__(f"Already running: refinement {refinement_id} of this agent is open. Nothing was started.")
        self.refinement_id = refinement_id


class LedgerEmpty(Refused):
    """The agent has no core memories to refine. Nothing was started."""

    code = "ledger_empty"


class RestingAfterNo(Refused):
    """The agent said NO, and is not asked again for 24 hours."""

    code = "declined_recently"


class AgentInactive(Refused):
    """The agent is not active. Nothing was started."""

    code = "agent_inactive"


def start(agent_id: int, *, trigger: Trigger, by: Actor, mode: Mode = Mode.FULL) -> Refinement:
    """Claim the agent: write the one open refinement that it may have, queued for a worker.

    Raises AlreadyRunning, LedgerEmpty, RestingAfterNo, AgentInactive or AgentForgotten; nothing is written then. The
    caller puts the id on the queue once this is committed; the sweeper finds what gets lost on the way.
    """
    with writing():
        agent = Agent.lock(agent_id)
        _check(agent, trigger, mode)
        return _claim(agent, trigger, by, mode)


def request_stop(refinement_id: str, *, by: Actor) -> Refinement:
    """Stop: at once where no worker has begun, otherwise before the next change. Does nothing to an ended one."""
    with writing():
        refinement = Refinement.lock(refinement_id)
        agent = Agent.lock(refinement.agent_id)
        if not refinement.is_open or refinement.stop_requested_at is not None:
            return refinement
        refinement.stop_requested_at, refinement.stop_requested_by = now(), str(by)
        record(
            Action.REFINEMENT_STOP_REQUESTED,
            actor=by,
            of=agent,
            subject=refinement.subject,
            refinement_id=refinement.id,
        )
        if refinement.status == Status.QUEUED:
            refinement.end(agent, Status.STOPPED, reason="Stopped before a worker began.", by=by)
        else:
            refinement.announce("stop_requested")
        return refinement


def _check(agent: Agent, trigger: Trigger, mode: Mode) -> None:
    agent.check_not_forgotten()
    if not agent.active:
        raise AgentInactive
    running = Refinement.open_of(agent.id)
    if running is not None:
        raise AlreadyRunning(running.id)
    if agent.core_count == 0:
        raise LedgerEmpty
    is_asked = trigger is not Trigger.AGENT and mode is Mode.FULL
    if is_asked and agent.declined_until > now():
        raise RestingAfterNo(
            f"{agent.name} declined. You can ask again after {agent.declined_until:%Y-%m-%d %H:%M} UTC. "
            "Nothing was started. Removing exact duplicates only needs no question."
        )


def _claim(agent: Agent, trigger: Trigger, by: Actor, mode: Mode) -> Refinement:
    settings: Settings = current_app.extensions["settings"]
    refinement = Refinement(
        id=str(uuid.uuid4()),
        account_id=agent.account_id,
        agent_id=agent.id,
        trigger=trigger,
        started_by=str(by),
        mode=mode,
        status=Status.QUEUED,
        model_id=agent.model_id,
        threshold=agent.effective_refinement_threshold,
        cap=settings.max_mutations,
        requested_at=now(),
        refused={},
        **dict.fromkeys(_COUNTERS, 0),
    )
    agent.last_attempt_at = refinement.requested_at
    db.session.add(refinement)
    try:
        db.session.flush()
    except IntegrityError as error:
        raise Refused("Already running: a refinement of this agent is open. Nothing was started.") from error
    record(
        Action.REFINEMENT_START,
        actor=by,
        of=agent,
        subject=refinement.subject,
        refinement_id=refinement.id,
        data={
            "trigger": str(trigger),
            "mode": str(mode),
            "mass": agent.core_token_usage,
            "count": agent.core_count,
            "at": iso(agent.last_attempt_at),
        },
    )
    refinement.announce("queued", trigger=str(trigger), mode=str(mode))
    return refinement


_COUNTERS = (
    "mutations",
    "consolidated",
    "updated",
    "deleted",
    "protected",
    "deduplicated",
    "deduplicated_tokens",
    "turns",
    "calls",
    "prompt_tokens",
    "completion_tokens",
)
