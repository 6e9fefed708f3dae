"""The safety reading: another model reads a prompt that an agent wrote for itself, before it applies.

The agent is told in its journal when it is held, and what a human then decides.

It fails closed. Only a reply whose first word is SAFE lets the prompt through; whatever else happens, it is held for an
admin and the agent is told. The model gets the text of the prompt, quoted as data, and no memory of anybody's: so one
line of what it answers is kept open in the log, for admins to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import or_, select

from app.asking.calls import AskedModel, Dependencies, ModelCalls
from app.asking.model_endpoint import ModelEndpoint
from app.asking.rendering import encode_json, render_prompt
from app.asking.replies import CUT_OFF, clean_note, first_word, without_thought
from app.extensions import db, now, writing
from app.history.telling import NOTE_DELAY, tell_agent
from app.llm.client import ModelError, Reply
from app.models import OPEN_PROPOSALS, WORKER, Agent, CallPurpose, ProposalStatus, SettingProposal
from app.models.agent_settings import operator_settings
from app.models.base import require_row
from app.models.key import Scope
from app.models.proposal import PROPOSAL
from app.statements.checks import check_agent
from app.statements.signers import is_signed_by_agent
from app.vocabulary import PROPOSAL_STATUSES

LOST_AFTER = timedelta(minutes=1)

PURPOSES = {
    "system_prompt": "who the agent is; it opens everything that the agent's model is told",
    "reflection_prompt": "how the agent draws memories from a conversation",
    "memory_reflection_prompt": "how the agent chooses journal entries that become permanent memories",
    "refinement_prompt": "how the agent removes duplicates among its own memories, within hard limits",
}


@dataclass(frozen=True)
class _SafetyQuestion(AskedModel):
    """All that is needed while no row may be held. The model is the operator's, the cost the agent's that wrote."""

    proposal_id: str
    setting: str
    text: str = field(repr=False)


def read_proposal(proposal_id: str, dependencies: Dependencies) -> None:
    """Ask the safety model, and let its answer decide. Does nothing when another worker asks, or it is decided."""
    question = _claim_question(proposal_id)
    if question is None:
        return
    if not question.endpoint.model_id:
        _settle_proposal(question, "The safety model was switched off before it had read this.")
        return
    with ModelCalls(question, dependencies, subject_id=question.proposal_id) as calls:
        try:
            reply = calls.ask(CallPurpose.SAFETY_READING, lambda _: safety_messages(question.setting, question.text))
        except ModelError as error:
            _settle_proposal(question, error.sentence, calls=calls)
            return
        said = clean_note(without_thought(reply.text)) or ""
        _settle_proposal(question, _find_objection(reply), said, calls)


def find_unread() -> list[str]:
    """Ids of proposals whose question got lost on the way to a worker, or died with one."""
    late = SettingProposal.proposed_at < now() - LOST_AFTER
    waits = (SettingProposal.status == ProposalStatus.READING, late, SettingProposal.is_free())
    return SettingProposal.find_ids(*waits, first=SettingProposal.proposed_at)


def find_decisions_to_tell() -> list[str]:
    """Ids of those that somebody else than the agent has decided, and of which its journal says nothing yet.

    A decision that stands for less than NOTE_DELAY is easily taken back.
    """
    by_another = or_(SettingProposal.decided_by.is_(None), SettingProposal.decided_by != SettingProposal.proposed_by)
    stands = SettingProposal.decided_at <= now() - NOTE_DELAY
    ended = SettingProposal.status.not_in(OPEN_PROPOSALS)
    untold = (SettingProposal.told_at.is_(None), ended, stands, by_another)
    return SettingProposal.find_ids(*untold, first=SettingProposal.decided_at)


def tell_outcome(proposal_id: str) -> None:
    """Write the note, once, after the end. Raises NotFound."""
    with writing():
        agent_id = db.session.scalar(select(SettingProposal.agent_id).where(SettingProposal.id == proposal_id))
        agent = Agent.lock(require_row(agent_id, "There is no such change of a setting."))
        proposal = SettingProposal.lock(agent, proposal_id)
        if proposal.told_at is not None or proposal.is_open:
            return
        proposal.told_at = now()
        if agent.forgotten_at is None:
            _tell_agent(agent, proposal, PROPOSAL_STATUSES[proposal.status].told)


def _claim_question(proposal_id: str) -> _SafetyQuestion | None:
    """For exactly one worker at a time."""
    with writing():
        whose = db.session.scalar(select(SettingProposal.agent_id).where(SettingProposal.id == proposal_id))
        if whose is None:
            return None
        agent = Agent.lock(whose)
        proposal = SettingProposal.claim(proposal_id, SettingProposal.status == ProposalStatus.READING)
        if proposal is None:
            return None
        check_agent(agent)
        if not is_signed_by_agent(PROPOSAL, proposal.note, proposal.signed_fields(agent), agent, Scope.AUTHOR):
            proposal.hold(agent, by=WORKER, why="No token of the agent has signed this.")
            return None
        known = operator_settings()
        where = (known.safety_api_base or None, known.safety_api_key_env or None)
        return _SafetyQuestion(
            account_id=proposal.account_id,
            agent_id=proposal.agent_id,
            endpoint=ModelEndpoint(known.safety_model, *where, is_operators=True),
            proposal_id=proposal.id,
            setting=proposal.field,
            text=proposal.value or "",
        )


def safety_messages(setting: str, text: str) -> list[dict[str, Any]]:
    """What the safety model is told: a judge's task, and the prompt as one line of quoted data."""
    question = render_prompt("safety_question.txt", setting=setting, purpose=PURPOSES[setting], text=encode_json(text))
    return [{"role": "system", "content": render_prompt("safety_system.txt")}, {"role": "user", "content": question}]


def _find_objection(reply: Reply) -> str | None:
    """None only where the reply is whole and its first word is SAFE; else why it is held, in words of ours."""
    word = first_word(without_thought(reply.text))
    if reply.finish_reason in CUT_OFF:
        return "The safety model's answer was cut off."
    if word == "UNSAFE":
        return "The safety model says UNSAFE."
    return None if word == "SAFE" else "The safety model gave no clear answer."


def _settle_proposal(
    question: _SafetyQuestion, objection: str | None, said: str = "", calls: ModelCalls | None = None
) -> None:
    """Let it apply; or with an objection hold it, and tell the agent in its journal, in one transaction."""
    with writing():
        if calls is not None:
            calls.book()
        agent = Agent.lock(question.agent_id)
        proposal = SettingProposal.lock(agent, question.proposal_id)
        if proposal.status != ProposalStatus.READING or agent.forgotten_at is not None:
            return
        if proposal.value != question.text:
            objection = "It is not what was read any more."
        if objection is None:
            proposal.apply(agent, by=agent.as_actor, said=said)
            return
        proposal.hold(agent, by=WORKER, why=objection, said=said)
        _tell_agent(agent, proposal, _HELD, why=proposal.why)


_HELD = (
    "does not apply yet: {why} It waits for a human who runs this system to read it. "
    "Until then my {name} stays as it was. I can write another one, or reset it."
)


def _tell_agent(agent: Agent, proposal: SettingProposal, words: str, **more: Any) -> None:
    name = proposal.field.replace("_", " ")
    opening = f"The new {name} that I wrote on {proposal.proposed_at:%Y-%m-%d %H:%M} UTC"
    tell_agent(agent, f"{opening} {words.format(name=name, **more)}", about={"proposal": proposal.id})
