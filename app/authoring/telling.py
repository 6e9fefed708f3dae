"""Telling an agent, in its journal, what became of a prompt that it wrote for itself: held, or decided by a human."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import or_, select

from app.errors import NotFound
from app.extensions import db, now, reading, writing
from app.history.telling import tell_agent
from app.models import OPEN_PROPOSALS, Agent, SettingProposal
from app.vocabulary import PROPOSAL_STATUSES

THOUGHT_OVER = timedelta(minutes=1)
"""A human's decision is told once it has stood for so long: until then it is easily taken back."""


def find_untold() -> list[str]:
    """Ids of those that somebody else than the agent has decided, and of which its journal says nothing yet."""
    by_another = or_(SettingProposal.decided_by.is_(None), SettingProposal.decided_by != SettingProposal.proposed_by)
    stands = SettingProposal.decided_at <= now() - THOUGHT_OVER
    ended = SettingProposal.status.not_in(OPEN_PROPOSALS)
    query = select(SettingProposal.id).where(SettingProposal.told_at.is_(None), ended, stands, by_another)
    with reading() as session:
        return list(session.scalars(query.order_by(SettingProposal.decided_at).limit(100)))


def tell_outcome(proposal_id: str) -> None:
    """Write the note, once, after the end. Raises NotFound."""
    with writing():
        agent, proposal = _lock_both(proposal_id)
        if proposal.told_at is not None or proposal.is_open:
            return
        proposal.told_at = now()
        if agent.forgotten_at is None:
            words = PROPOSAL_STATUSES[proposal.status].told.format(name=_field_name(proposal))
            tell_agent(agent, f"{_opening_words(proposal)} {words}", about={"proposal": proposal.id})


def tell_held(agent: Agent, proposal: SettingProposal) -> None:
    """In the transaction that holds it back, whose caller has locked both."""
    name = _field_name(proposal)
    tell_agent(
        agent,
        f"{_opening_words(proposal)} does not apply yet: {proposal.why} "
        "It waits for a human who runs this system to read it. "
        f"Until then my {name} stays as it was. I can write another one, or reset it.",
        about={"proposal": proposal.id},
    )


def _opening_words(proposal: SettingProposal) -> str:
    return f"The new {_field_name(proposal)} that I wrote on {_shown_time(proposal.proposed_at)}"


def _field_name(proposal: SettingProposal) -> str:
    return proposal.field.replace("_", " ")


def _shown_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _lock_both(proposal_id: str) -> tuple[Agent, SettingProposal]:
    """The agent's row, then the proposal's."""
    agent_id = db.session.scalar(select(SettingProposal.agent_id).where(SettingProposal.id == proposal_id))
    if agent_id is None:
        raise NotFound("There is no such change of a setting.")
    agent = Agent.lock(agent_id)
    return agent, SettingProposal.lock(agent, proposal_id)
