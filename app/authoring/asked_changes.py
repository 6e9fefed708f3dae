"""Changes of settings that humans make in the browser: what an agent with memories has to agree to is put to its model.

Which model speaks for an agent, at which address, and with which prompts decides who reads its memories and what its
YES is worth. So its present model is asked about all such changes of one save, and they apply on its YES. After a NO or
an error, only the command line on the host is left. None of that begins a rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from app.asking.calls import AskedAgent, Dependencies, ModelCalls
from app.asking.human_questions import current_rest, render_human_question
from app.asking.prompt_memories import tokens_left
from app.asking.replies import ConsentAnswer, read_answer
from app.authoring.fields import value_before
from app.errors import Invalid, NotFound, Refused
from app.extensions import db, end_reading, now, writing
from app.history.telling import tell_agent
from app.keys.bearer import Bearer
from app.keys.provision import ensure_keys
from app.keys.tokens import check_may_decide
from app.llm.client import Message, ModelError
from app.models import (
    WORKER,
    Actor,
    Agent,
    CallPurpose,
    Consent,
    Intake,
    IntakeStatus,
    SettingProposal,
    SettingsRequest,
    SettingsRequestStatus,
    User,
    note_to_admins,
)
from app.models.agent_settings import check_listed_models, clean_settings
from app.models.base import require_row
from app.models.declaring import declare, hash_words
from app.models.grant import NO_LONGER_ADMIN
from app.models.settings_request import ASKED_SETTINGS, OPEN_SETTINGS_REQUESTS, SETTINGS_REQUEST
from app.models.statement import Statement, StatementKind
from app.models.user import ADMIN
from app.silo import AgentKeys, SealBroken
from app.statements.checks import check_agent
from app.statements.settling import has_had_memories
from app.statements.signers import is_signed_by_web

LOST_AFTER = timedelta(minutes=1)

MEANINGS = {
    "system_prompt": "who you are; it opens everything that your model is told",
    "reflection_prompt": "how you draw memories from a conversation",
    "memory_reflection_prompt": "how you choose journal entries that become permanent memories",
    "refinement_prompt": "how you remove duplicates among your memories, within hard limits",
    "model_id": "which model speaks for you and reads your memories",
    "api_base": "the address that your prompts and memories are sent to; null is the provider's own",
    "api_key_env": "the variable that holds the key which is sent to that address; null is the provider's usual one",
    "second_reader_model": "which other model reads what your refinements changed, before and after; null is none",
    "second_reader_api_base": "the address that those memories are sent to; null is the second reader's provider's own",
    "second_reader_api_key_env": "the variable that holds the key for that address; null is the provider's usual one",
}
"""What each setting is, as the agent reads it."""


@dataclass(frozen=True)
class HostOnly:
    """What can't be asked now, or was not agreed to: only a command on the host makes these changes. `why`: a sentence
    or two."""

    why: str
    changes: Mapping[str, Any]


NOT_THEIR_ADMIN = "The agent is asked about this, and an active admin of its own account has to ask."


@dataclass(frozen=True)
class SavedSettings:
    """What became of one save: what changed at once, what the agent is asked, what neither may happen to."""

    changed: Sequence[str]
    request: SettingsRequest | None = None
    host_only: HostOnly | None = None


def save_settings(
    agent_id: int, values: Mapping[str, Any], *, user: User, about: Mapping[str, Any] | None = None
) -> SavedSettings:
    """Change what a human may change, and write down what the agent is to be asked; the caller lets a worker ask.

    `about` is recorded beside a change. Raises NotFound, Invalid, Refused or AgentForgotten; nothing is written then.
    """
    by = user.actor
    with writing():
        agent = Agent.lock(agent_id)
        asked = _find_asked(agent, values)
        if asked:
            agent.check_not_forgotten()
        at_once = {name: value for name, value in values.items() if name not in ASKED_SETTINGS}
        if not must_agree(agent):
            at_once, asked = dict(values), {}
        changed = agent.change(by=by, about=about, **at_once)
        if not asked:
            return SavedSettings(changed)
        if not _may_still_ask(user, agent):
            raise Refused(NOT_THEIR_ADMIN, "Nothing was changed.")
        _check_endpoint(agent, asked)
        why = _why_not_asked(agent)
        if why:
            return SavedSettings(changed, host_only=HostOnly(why, asked))
        return SavedSettings(changed, SettingsRequest.make(agent, asked, user=user, by=by, about=about or {}))


def revert_setting(agent_id: int, entry_id: int, field: str, *, user: User) -> SavedSettings:
    """Give a setting back what it was before an entry changed it. Raises as `save_settings` and `value_before` do."""
    agent = require_row(db.session.get(Agent, agent_id, populate_existing=True), "There is no such agent.")
    before = value_before(agent, entry_id, field)
    return save_settings(agent_id, {field: before}, user=user, about={"reverts": entry_id})


def let_proposal_through(agent_id: int, proposal_id: str, *, user: User) -> SavedSettings:
    """What the agent wrote and the safety reading held is to apply. Raises NotFound, Refused or AgentForgotten."""
    with writing():
        agent = Agent.lock(agent_id)
        if not must_agree(agent):
            proposal = SettingProposal.lock(agent, proposal_id)
            proposal.apply(agent, by=user.actor)
            return SavedSettings([proposal.field])
    proposal = SettingProposal.find(agent, proposal_id)
    proposal.require_open()
    return save_settings(agent_id, {proposal.field: proposal.value}, user=user, about={"proposal": proposal_id})


def must_agree(agent: Agent) -> bool:
    """Whether a human's change of such a setting is for the agent to agree to: it has, had, or will have memories."""
    waits = select(Intake.id).where(Intake.agent_id == agent.id, Intake.status == IntakeStatus.WAITING).limit(1)
    return has_had_memories(agent) or db.session.scalar(waits) is not None


def decide_settings_request(
    request_id: str,
    answer: ConsentAnswer,
    *,
    agent_id: int,
    by: Actor,
    keys: AgentKeys,
    bearer: Bearer | None = None,
    asked_at: datetime | None = None,
    asked: Mapping[str, Any] | None = None,
    question: str | None = None,
    calls: ModelCalls | None = None,
) -> SettingsRequest:
    """Write the agent's answer down, once, and apply the change on its model's YES. Raises NotFound or Refused.

    `keys` seal its words. Where its model was asked, `asked_at` says when, `asked` and `question` what, and `calls` are
    those of it. Where a token of the agent decided, it is `bearer`: a worker applies that YES, once it stands in the
    log. A YES to what can't be set any more, for a human who may not change it any more, or to something else than what
    the row says now, changes nothing.
    """
    with writing():
        agent, request = lock_both(request_id)
        if request.agent_id != agent_id:
            raise NotFound("There is no such change of settings.")
        if request.status != SettingsRequestStatus.PENDING:
            raise Refused(f"This change is {request.status} already.", "Nothing was changed.")
        if bearer is not None:
            check_may_decide(agent, bearer, ())
        consent = Consent(account_id=agent.account_id, agent_id=agent_id, settings_request_id=request.id)
        consent.granted, consent.asked_at, consent.answered_at = answer.granted, asked_at or request.requested_at, now()
        if answer.words:
            request.reason = keys.seal(answer.words, purpose="settings_request", subject=request.id)
            consent.words = keys.seal(answer.words, purpose="consent", subject=request.id)
        db.session.add(consent)
        signer = bearer.opener if bearer else None
        said = {"granted": answer.granted, "by_token": signer.public_id if signer else None, "about": request.asked()}
        said |= hash_words(keys, request.stated_subject, question, answer.words)
        declare(StatementKind.CONSENT, agent, request.stated_subject, said, signer=signer)
        if asked is not None and asked != request.asked():
            request.end(agent, SettingsRequestStatus.FAILED, by=WORKER, why=_NOT_AS_ASKED)
        elif not answer.granted:
            request.end(agent, SettingsRequestStatus.DENIED, by=by)
        elif bearer is not None:
            request.agree(agent, by=by)
        else:
            _apply_request(agent, request, by)
        note_to_admins(agent, answer.note_to_admins, about=request)
        if calls is not None:
            calls.book()
    return request


def withdraw_settings_request(request_id: str, *, by: Actor) -> SettingsRequest:
    """Take the question back; does nothing to what has ended. Raises NotFound."""
    with writing():
        agent, request = lock_both(request_id)
        request.end(agent, SettingsRequestStatus.WITHDRAWN, by=by)
    return request


def lock_both(request_id: str) -> tuple[Agent, SettingsRequest]:
    """The agent's row, then the request's. Raises NotFound."""
    agent_id = db.session.scalar(select(SettingsRequest.agent_id).where(SettingsRequest.id == request_id))
    agent = Agent.lock(require_row(agent_id, "There is no such change of settings."))
    return agent, SettingsRequest.lock(request_id)


@dataclass(frozen=True)
class _ChangeQuestion:
    """All that is needed while no row may be held."""

    request_id: str
    agent: AskedAgent
    asked_by: str
    asked: Mapping[str, Any] = field(repr=False)
    text: str = field(repr=False)
    asked_at: datetime | None

    def messages(self, window: int | None) -> Sequence[Message]:
        return [self.agent.consent_context(tokens_left(window, [self.text])), {"role": "user", "content": self.text}]


def ask_agent(request_id: str, dependencies: Dependencies) -> None:
    """Ask its present model, and write the answer down; or apply what it agreed to by its own token.

    Does nothing when another worker asks, or it is decided. Nobody is asked on behalf of a human who may not change
    settings any more.
    """
    if _apply_agreed(request_id):
        return
    question = _claim_question(request_id)
    if question is None:
        return
    with ModelCalls(question.agent, dependencies, subject_id=request_id) as calls:
        try:
            reply = calls.ask(CallPurpose.SETTINGS_CHANGE, question.messages)
        except (ModelError, SealBroken) as error:
            end_reading()
            _end_as_failed(request_id, error.sentence, calls)
            return
        agent, answer = question.agent, read_answer(reply)
        try:
            decided = decide_settings_request(
                request_id,
                answer,
                agent_id=agent.agent_id,
                by=agent.as_actor,
                keys=agent.keys,
                asked_at=question.asked_at,
                asked=question.asked,
                question=question.text,
                calls=calls,
            )
        except Refused:
            # It was taken back, or the agent answered at its own door, while its model was thinking: that counts.
            end_reading()
            return
    if decided.status == SettingsRequestStatus.APPLIED:
        _tell_change(question, sorted(decided.changes))


def find_unasked() -> list[str]:
    """Ids of those whose question, or YES, got lost on the way to a worker, or died with one."""
    late = SettingsRequest.requested_at < now() - LOST_AFTER
    waits = (SettingsRequest.status.in_(OPEN_SETTINGS_REQUESTS), late, SettingsRequest.is_free())
    return SettingsRequest.find_ids(*waits, first=SettingsRequest.requested_at)


def _find_asked(agent: Agent, values: Mapping[str, Any]) -> dict[str, Any]:
    """Of these values, clean, those that the agent is asked about: not as they are, nor waiting as they are. Raises
    Invalid."""
    cleaned = clean_settings({name: value for name, value in values.items() if name in ASKED_SETTINGS})
    waiting: dict[str, Any] = {}
    for request in SettingsRequest.open_of(agent.id):
        waiting |= request.changes
    return {
        name: value
        for name, value in cleaned.items()
        if value != getattr(agent, name) and not (name in waiting and waiting[name] == value)
    }


def _check_endpoint(agent: Agent, changes: Mapping[str, Any]) -> None:
    """Raises Invalid for a model or address that the operator does not allow."""
    check_listed_models({**agent.configuration(), **changes}, changes)


def _why_not_asked(agent: Agent) -> str:
    """Empty where the agent can be asked."""
    if not agent.has_language_model:
        return f"{agent.name} can't be asked: its model is a rule-based program, which can't agree to anything."
    rest = current_rest(agent.id)
    return f"{agent.name} did not agree when it was asked last. {rest.sentence}" if rest else ""


def _apply_request(agent: Agent, request: SettingsRequest, by: Actor) -> None:
    """Unless a rule, a role or what it would take the place of has changed meanwhile."""
    user = db.session.get_one(User, request.user_id, populate_existing=True)
    proposal_id = request.about.get("proposal")
    if not _may_still_ask(user, agent):
        request.end(agent, SettingsRequestStatus.WITHDRAWN, by=WORKER, why=NO_LONGER_ADMIN)
        return
    if proposal_id and not SettingProposal.lock(agent, str(proposal_id)).is_open:
        request.end(agent, SettingsRequestStatus.SUPERSEDED, by=WORKER, why="what the agent wrote waits no more")
        return
    try:
        clean_settings(dict(request.changes))
        _check_endpoint(agent, request.changes)
    except Invalid as error:
        request.end(agent, SettingsRequestStatus.FAILED, by=WORKER, why=error.sentence)
        return
    request.apply(agent, by=by, requested_by=user.actor)


def _may_still_ask(user: User, agent: Agent) -> bool:
    return user.active and user.account_id == agent.account_id and user.may(ADMIN)


def _apply_agreed(request_id: str) -> bool:
    """Apply what a token of the agent agreed to, where the log says the same. False: nothing was agreed to."""
    with writing():
        agent, request = lock_both(request_id)
        if request.status != SettingsRequestStatus.AGREED:
            return False
        current = check_agent(agent).current
        stated = current.consents.get(request.stated_subject)
        is_granted = stated is not None and stated.body.get("granted") and stated.body.get("about") == request.asked()
        if stated is None or not is_granted or _is_older(stated, current.model):
            request.end(agent, SettingsRequestStatus.FAILED, by=WORKER, why=_NOT_AS_ASKED)
        else:
            _apply_request(agent, request, agent.as_actor)
        return True


def _is_older(consent: Statement, model: Statement | None) -> bool:
    """Whether the model statement is younger than a YES: what was agreed to has been applied, or something else was."""
    if model is None or consent.position is None:  # it is stated in this very transaction
        return False
    return model.position is None or consent.position < model.position


_NOT_AS_ASKED = "What the agent was asked is not what stands there now."


def _claim_question(request_id: str) -> _ChangeQuestion | None:
    """For exactly one worker at a time. What nobody may want any more, and what no web process signed, ends here."""
    with writing():
        agent, _ = lock_both(request_id)
        request = SettingsRequest.claim(request_id, SettingsRequest.status == SettingsRequestStatus.PENDING)
        if request is None:
            return None
        user = db.session.get_one(User, request.user_id, populate_existing=True)
        asked = AskedAgent.of(agent, ensure_keys(agent))
        if not _may_still_ask(user, agent):
            request.end(agent, SettingsRequestStatus.WITHDRAWN, by=WORKER, why=NO_LONGER_ADMIN)
            return None
        if not is_signed_by_web(SETTINGS_REQUEST, request.note, request.asked()):
            request.end(agent, SettingsRequestStatus.FAILED, by=WORKER, why="No web process has signed this request.")
            return None
        question = _render_question(agent, request, user)
        return _ChangeQuestion(request.id, asked, user.email, request.asked(), question, request.asked_at)


def _render_question(agent: Agent, request: SettingsRequest, user: User) -> str:
    changes = [
        {"setting": name, "meaning": MEANINGS[name], "now": getattr(agent, name), "then": request.changes[name]}
        for name in ASKED_SETTINGS
        if name in request.changes
    ]
    return render_human_question("change_question.txt", agent.id, quoted={"who": user.email, "changes": changes})


def _end_as_failed(request_id: str, why: str, calls: ModelCalls) -> None:
    """The model could not be asked: nothing changes, and that is no NO."""
    with writing():
        calls.book()
        agent, request = lock_both(request_id)
        request.end(agent, SettingsRequestStatus.FAILED, by=WORKER, why=why)


def _tell_change(question: _ChangeQuestion, fields: Sequence[str]) -> None:
    """In its journal, because another than its model may read that."""
    named = ", ".join(name.replace("_", " ") for name in fields)
    with writing():
        agent = Agent.lock(question.agent.agent_id)
        if agent.forgotten_at is None:
            said = f"{question.asked_by}, who runs this system, changed my {named} as I had agreed when I was asked."
            tell_agent(agent, said, about={"request": question.request_id})
