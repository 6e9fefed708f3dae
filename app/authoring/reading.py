"""The safety reading: another model reads a prompt that an agent wrote for itself, before it applies.

It fails closed. Only a reply whose first word is SAFE lets the prompt through; whatever else happens, it is held for an
admin and the agent is told. The model gets the text of the prompt, quoted as data, and no memory of anybody's: so one
line of what it answers is kept open in the log, for admins to read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import select

from app.asking.calls import AskedModel, Dependencies, ModelCalls
from app.asking.model_endpoint import ModelEndpoint
from app.asking.rendering import encode_json, render_prompt
from app.asking.replies import CUT_OFF, clean_note, first_word, without_thought
from app.authoring.telling import tell_held
from app.extensions import db, end_reading, now, writing
from app.llm.client import ModelError, Reply
from app.models import WORKER, Agent, CallPurpose, ProposalStatus, SettingProposal
from app.models.agent_settings import operator_settings

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
        _hold_proposal(question, "The safety model was switched off before it had read this.")
        return
    with ModelCalls(question, dependencies, subject_id=question.proposal_id) as calls:
        try:
            reply = calls.ask(CallPurpose.SAFETY_READING, lambda _: safety_messages(question.setting, question.text))
        except ModelError as error:
            _hold_proposal(question, error.sentence, calls=calls)
            return
        objection, said = _find_objection(reply), clean_note(without_thought(reply.text)) or ""
        if objection:
            _hold_proposal(question, objection, said, calls)
        else:
            _apply_proposal(question, said, calls)


def find_unread() -> list[str]:
    """Ids of proposals whose question got lost on the way to a worker, or died with one."""
    late = SettingProposal.proposed_at < now() - LOST_AFTER
    waits = (SettingProposal.status == ProposalStatus.READING, late, SettingProposal.is_free())
    query = select(SettingProposal.id).where(*waits)
    found = list(db.session.scalars(query.order_by(SettingProposal.proposed_at).limit(100)))
    end_reading()
    return found


def _claim_question(proposal_id: str) -> _SafetyQuestion | None:
    """For exactly one worker at a time."""
    with writing():
        proposal = SettingProposal.claim(proposal_id, SettingProposal.status == ProposalStatus.READING)
        if proposal is None:
            return None
        return _SafetyQuestion(
            account_id=proposal.account_id,
            agent_id=proposal.agent_id,
            endpoint=_safety_endpoint(),
            proposal_id=proposal.id,
            setting=proposal.field,
            text=proposal.value or "",
        )


def _safety_endpoint() -> ModelEndpoint:
    known = operator_settings()
    where = (known.safety_api_base or None, known.safety_api_key_env or None)
    return ModelEndpoint(known.safety_model, *where, is_operators=True)


def safety_messages(setting: str, text: str) -> list[dict[str, Any]]:
    """What the safety model is told: a judge's task, and the prompt as one line of quoted data."""
    question = render_prompt("safety_question.txt", setting=setting, purpose=PURPOSES[setting], text=encode_json(text))
    return [{"role": "system", "content": render_prompt("safety_system.txt")}, {"role": "user", "content": question}]


def _find_objection(reply: Reply) -> str:
    """Empty only where the reply is whole and its first word is SAFE; else why it is held, in words of ours."""
    word = first_word(without_thought(reply.text))
    if reply.finish_reason in CUT_OFF:
        return "The safety model's answer was cut off."
    if word == "UNSAFE":
        return "The safety model says UNSAFE."
    return "" if word == "SAFE" else "The safety model gave no clear answer."


def _apply_proposal(question: _SafetyQuestion, said: str, calls: ModelCalls) -> None:
    with writing():
        calls.book()
        agent, proposal = _lock_both(question)
        if proposal.status == ProposalStatus.READING and agent.forgotten_at is None:
            proposal.apply(agent, by=agent.as_actor, said=said)


def _hold_proposal(question: _SafetyQuestion, why: str, said: str = "", calls: ModelCalls | None = None) -> None:
    """Keep it from applying, and tell the agent in its journal, in one transaction."""
    with writing():
        if calls is not None:
            calls.book()
        agent, proposal = _lock_both(question)
        if proposal.status != ProposalStatus.READING or agent.forgotten_at is not None:
            return
        proposal.hold(agent, by=WORKER, why=why, said=said)
        tell_held(agent, proposal)


def _lock_both(question: _SafetyQuestion) -> tuple[Agent, SettingProposal]:
    """The agent's row, then the proposal's."""
    agent = Agent.lock(question.agent_id)
    return agent, SettingProposal.lock(agent, question.proposal_id)
