"""Forgetting an agent: its keys are destroyed, so that nobody ever reads again what it remembered. Nothing undoes it.

The record stays: audit log, counts, dates and the sealed bytes, to which no key is left.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, func, select, update

from app.errors import Refused
from app.extensions import db, now, writing
from app.models.agent import Agent
from app.models.agent_settings import PROMPTS
from app.models.audit import Action, record
from app.models.grant import AccessGrant, AccessView
from app.models.installation import note_what_to_shred
from app.models.intake import Intake, IntakeStatus
from app.models.key import AgentKey, live_tokens
from app.models.memory import Memory
from app.models.memory_text import ContentKey
from app.models.proposal import SettingProposal
from app.models.refinement import Refinement
from app.models.settings_request import SettingsRequest
from app.models.token_request import TokenRequest
from app.values.actor import Actor
from app.values.refinement_states import Status

ATTEMPTS = 5
"""A refinement may start between the look and the lock; not five times in a row."""


@dataclass(frozen=True)
class Forgotten:
    """What was destroyed or ended. `keys` counts sealed copies; `memories` stay as bytes that nothing opens."""

    keys: int
    tokens: int
    intakes: int
    exceptions: int
    memories: int


def forget_agent(agent_id: int, *, by: Actor) -> Forgotten:
    """Destroy the keys of an agent, in one transaction with its entries; then `shredding.shred` cleans the disk.

    An open refinement is ended first, exceptions and tokens are revoked, what waits to be imported is emptied.
    Raises NotFound, or AgentForgotten when it was done already.
    """
    for _ in range(ATTEMPTS):
        done = _try_to_forget(agent_id, by)
        if done is not None:
            return done
    raise Refused("Refinements kept starting in the meantime.", "Nothing was done; pause the agent and try again.")


def _try_to_forget(agent_id: int, by: Actor) -> Forgotten | None:
    """None when a refinement started meanwhile: locks go refinement, intakes, agent, so it has to begin again."""
    with writing():
        running = Refinement.open_of(agent_id)
        if running is not None:
            running = Refinement.lock(running.id)
        waiting = Intake.lock_waiting(agent_id)
        agent = Agent.lock(agent_id)
        agent.check_not_forgotten()
        still = Refinement.open_of(agent.id)
        if still is not None and (running is None or running.id != still.id):
            return None
        if still is not None:
            still.end_now(agent, Status.STOPPED, reason="The agent was forgotten; that ended it first.", by=by)
        return _forget_locked_agent(agent, waiting, by)


def _forget_locked_agent(agent: Agent, waiting: list[Intake], by: Actor) -> Forgotten:
    for intake in waiting:
        intake.settle(IntakeStatus.FAILED, error="The agent was forgotten before this was taken in.")
    SettingsRequest.close(agent, None, by=by, why="the agent was forgotten")
    TokenRequest.end_all(agent, by=by, why="the agent was forgotten")
    exceptions = AccessGrant.revoke_all(agent, by=by, why="the agent was forgotten")
    done = Forgotten(
        tokens=_revoke_tokens(agent, by),
        exceptions=exceptions,
        intakes=len(waiting),
        memories=db.session.scalar(select(func.count(Memory.id)).where(Memory.agent_id == agent.id)) or 0,
        keys=_destroy_keys(agent),
    )
    SettingProposal.close(agent, PROMPTS, by=by, why="the agent was forgotten")
    agent.change(active=False, by=by)
    agent.pause(by=by)
    agent.forgotten_at = now()
    record(Action.AGENT_FORGET, actor=by, of=agent, subject=agent.subject, data=vars(done))
    agent.announce("forgotten")
    note_what_to_shred()
    return done


def _revoke_tokens(agent: Agent, by: Actor) -> int:
    tokens = live_tokens(agent.id)
    for token in tokens:
        token.mark_revoked(agent, by=by, why="the agent was forgotten")
    return len(tokens)


def _destroy_keys(agent: Agent) -> int:
    """All of all versions and readers, and what a worker sealed for a look that was not fetched yet."""
    looks = select(AccessGrant.id).where(AccessGrant.agent_id == agent.id)
    db.session.execute(update(AccessView).where(AccessView.grant_id.in_(looks)).values(sealed=None))
    db.session.execute(delete(ContentKey).where(ContentKey.agent_id == agent.id))
    removed = db.session.scalars(delete(AgentKey).where(AgentKey.agent_id == agent.id).returning(AgentKey.id))
    return len(removed.all())
