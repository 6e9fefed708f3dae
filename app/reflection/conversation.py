"""A conversation: handed in and sealed at once; a worker opens it, and the agent's own model says what to remember.

All of it is kept, in one transaction with one audit entry, or nothing is. Either way the transcript is gone then.
What was said stands in the question as encoded data, one JSON object a line: none of it can pass for a rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from app.asking.calls import AskedAgent, Dependencies, ModelCalls
from app.asking.prompt_memories import tokens_left
from app.asking.rendering import encode_json, render_prompt
from app.asking.replies import MalformedReply, read_list, read_object
from app.errors import Invalid, NotFound, Refused, Unavailable
from app.extensions import db, end_reading, writing
from app.keys.provision import ensure_keys
from app.llm.client import Message, ModelError, Reply, Usage
from app.models import (
    DEFAULT_REFLECTION_PROMPT,
    Action,
    Actor,
    Agent,
    CallPurpose,
    Intake,
    IntakeStatus,
    Memory,
    MemoryType,
    Source,
    record,
)
from app.models.intake import CONVERSATION
from app.models.memory_numbers import reserve_memory_ids
from app.models.statement_errors import AgentStopped, LogBroken
from app.reflection.transcript import Turn, as_text, from_text, read_messages
from app.silo import SealBroken, TokenKey
from app.statements.signers import open_signed
from app.values.text import clean_content

MAX_JOURNAL, MAX_CORE = 10, 3
"""Memories of one conversation."""


class NoLanguageModel(Refused):
    """whetstone/offline is a rule-based de-duplicator and no language model: there is nobody to ask what to keep."""

    code = "no_language_model"


_AGAIN = "Nothing was created; the conversation may be handed in again."


def hand_in(agent_id: int, messages: object, by: Actor, signer: TokenKey | None = None) -> Intake:
    """Check a transcript and keep it sealed; the caller lets a worker hear it once it is committed.

    Raises Invalid, NotFound or AgentForgotten; nothing is written then.
    """
    text = as_text(read_messages(messages))
    with writing():
        return Intake.receive(Agent.lock(agent_id), text, by=by, kind=CONVERSATION, format=None, signer=signer)


def find_conversation(agent_id: int, intake_id: str) -> Intake:
    """One of the agent's own conversations. Raises NotFound."""
    is_storable = intake_id.isprintable()  # PostgreSQL takes no NUL and no lone surrogate
    intake = db.session.get(Intake, intake_id, populate_existing=True) if is_storable else None
    if intake is None or intake.agent_id != agent_id or intake.kind != CONVERSATION:
        raise NotFound("There is no such conversation.")
    return intake


def reflect_on_conversation(intake_id: str, dependencies: Dependencies) -> None:
    """Ask the agent's model, and keep what it says. Does nothing when another worker asks, or when it is settled."""
    heard = _claim_conversation(intake_id)
    if heard is None:
        return
    usage = Usage()
    with ModelCalls(heard.agent, dependencies, subject_id=intake_id) as calls:
        try:
            reply = calls.ask(CallPurpose.CONVERSATION, heard.messages)
            usage = reply.usage
            _keep_findings(heard, read_findings(reply), usage, calls)
        except (AgentStopped, LogBroken):
            end_reading()
            raise
        except (ModelError, MalformedReply, Invalid, Refused, SealBroken) as error:
            _record_failure(heard, error.sentence, usage, calls)
        except Unavailable:
            end_reading()
            raise
        except Exception as error:
            end_reading()
            _record_failure(
                heard, f"Something unexpected happened in the worker ({type(error).__name__}).", usage, calls
            )
            raise


@dataclass(frozen=True)
class _Heard:
    """All that is needed while no row may be held. `asked_at` says whose turn it is."""

    intake_id: str
    asked_at: datetime | None
    handed_in_at: datetime
    agent: AskedAgent
    instructions: str
    turns: Sequence[Turn] = field(repr=False)

    @classmethod
    def of(cls, intake: Intake, agent: Agent) -> _Heard:
        """Raises NoLanguageModel, AgentForgotten, SealBroken, Invalid; Unavailable or KeyFileError without a key."""
        asked, instructions = AskedAgent.of(agent, ensure_keys(agent)), agent.reflection_prompt
        if not agent.has_language_model:
            raise NoLanguageModel
        return cls(
            intake.id,
            intake.asked_at,
            intake.created_at,
            asked,
            instructions or DEFAULT_REFLECTION_PROMPT,
            from_text(open_signed(intake, agent)),
        )

    def messages(self, window: int | None) -> Sequence[Message]:
        """The whole transcript, and as much of the memories as there is room for."""
        lines = [encode_json(asdict(turn)) for turn in self.turns]
        limits = {"most_journal": MAX_JOURNAL, "most_core": MAX_CORE}
        question = render_prompt(
            "conversation_question.txt", instructions=self.instructions, transcript=lines, **limits
        )
        return [self.agent.context(tokens_left(window, lines)), {"role": "user", "content": question}]

    def lock(self) -> tuple[Intake, Agent] | None:
        """Both rows, unless it was settled or taken over meanwhile."""
        intake = Intake.lock(self.intake_id)
        if intake.status != IntakeStatus.WAITING or intake.asked_at != self.asked_at:
            return None
        return intake, Agent.lock(intake.agent_id)


@dataclass(frozen=True)
class ExtractedMemories:
    """The memories that an agent made of a conversation, as clean texts."""

    core: tuple[str, ...] = field(repr=False)
    journal: tuple[str, ...] = field(repr=False)


def read_findings(reply: Reply) -> ExtractedMemories:
    """What the model answered. Raises MalformedReply."""
    found = read_object(reply, "journal", "core")
    return ExtractedMemories(_read_texts(found, "core", MAX_CORE), _read_texts(found, "journal", MAX_JOURNAL))


def _read_texts(found: dict[str, Any], name: str, most: int) -> tuple[str, ...]:
    try:
        return tuple(clean_content(text) for text in read_list(found, name, most))
    except Invalid as error:
        raise MalformedReply(f"in {name}: {error.sentence.rstrip('.')}") from None


def _claim_conversation(intake_id: str) -> _Heard | None:
    """For exactly one worker at a time. What can't be heard by anybody is settled at once."""
    with writing():
        intake = Intake.claim(intake_id, Intake.kind == CONVERSATION, Intake.status == IntakeStatus.WAITING)
        if intake is None:
            return None
        try:
            return _Heard.of(intake, Agent.lock(intake.agent_id))
        except (AgentStopped, LogBroken):
            raise
        except (Invalid, Refused, SealBroken) as error:
            intake.settle(IntakeStatus.FAILED, error=f"{error.sentence} {_AGAIN}")
            return None


def _keep_findings(heard: _Heard, findings: ExtractedMemories, usage: Usage, calls: ModelCalls) -> None:
    with writing():
        calls.book()
        held = heard.lock()
        if held is None:
            return
        intake, agent = held
        memories = _write_memories(heard, agent, findings)
        core = [memory for memory in memories if memory.is_core]
        counts = {
            "core": len(core),
            "journal": len(memories) - len(core),
            "duplicates": len(findings.core) + len(findings.journal) - len(memories),
        }
        if memories:
            said = {"via": "conversation", "intake": intake.id, "ids": [memory.id for memory in memories]}
            mass = {"core_tokens": sum(memory.token_estimate for memory in core)}
            data = said | counts | mass
            record(Action.CREATE, actor=agent.as_actor, of=agent, subject=agent.subject, data=data, memories=memories)
            agent.announce("remembered")
        intake.settle(IntakeStatus.TAKEN, imported=len(memories), outcome=counts | usage.as_json())


def _write_memories(heard: _Heard, agent: Agent, findings: ExtractedMemories) -> list[Memory]:
    """A memory for each text, but for exact duplicates within them and of active core memories of the same day."""
    wanted: dict[bytes, tuple[MemoryType, str]] = {}
    for type_, texts in ((MemoryType.CORE, findings.core), (MemoryType.JOURNAL, findings.journal)):
        for text in texts:
            wanted.setdefault(heard.agent.keys.content_hash(text), (type_, text))
    new = [each for mark, each in wanted.items() if Memory.same_core(agent.id, mark, heard.handed_in_at) is None]
    write = partial(
        Memory.write, agent, keys=heard.agent.keys, source=Source.CONVERSATION, origin_at=heard.handed_in_at
    )
    numbers = reserve_memory_ids(len(new))
    return [write(text, type_=type_, memory_id=number) for number, (type_, text) in zip(numbers, new, strict=True)]


def _record_failure(heard: _Heard, why: str, usage: Usage, calls: ModelCalls) -> None:
    with writing():
        calls.book()
        held = heard.lock()
        if held is not None:
            outcome = {"core": 0, "journal": 0, "duplicates": 0} | usage.as_json()
            held[0].settle(IntakeStatus.FAILED, error=f"{why} {_AGAIN}", outcome=outcome)
