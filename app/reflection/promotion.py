"""Promotion: once a day the agent looks back over its journal, and says what of it is to stay for good.

Beat only says "look"; the database decides who is due, and one conditional UPDATE who asks. A promoted entry is the
same memory, now core; one undo takes all promotions of a reflection back, and a rewind does too. A question that got no
answer is no reflection: the next look asks again, a few times, and the entries stay news until one is answered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from sqlalchemy import ColumnElement, and_, case, exists, or_, select

from app.asking.calls import AskedAgent, Dependencies, ModelCalls
from app.asking.prompt_memories import memory_context, newest_that_fit, room_of, tokens_left
from app.asking.rendering import render_prompt
from app.asking.replies import MalformedReply, read_list, read_object
from app.extensions import db, end_reading, now, reading, writing
from app.keys.agent_keys import open_keys
from app.llm.client import Message, ModelError, Reply, Usage
from app.models import DEFAULT_MEMORY_REFLECTION_PROMPT, WORKER, Action, Agent, CallPurpose, Memory, MemoryType, record
from app.models.base import CLAIM_EXPIRES_AFTER, claim_row, lock_row
from app.models.state import JOURNAL_DAYS, PLATFORM_NOTES
from app.silo import SealBroken

MAX_PROMOTED = 10
"""Journal entries that one reflection lets become core."""

PROMOTION_PAUSE = timedelta(hours=20)
"""Between two days' questions to one agent: less than a day, so that an hourly look finds it every day."""

MOST_TRIES = 3
"""Questions in a row without an answer; then the agent rests, and what it wrote waits for the day after."""

RECENT = timedelta(days=JOURNAL_DAYS)

BATCH = 5_000
"""Agents that one look starts; the next one goes on."""


def find_due(at: datetime) -> list[int]:
    """Ids of the agents whose journal has news, those that waited longest first."""
    waited = (Agent.reflection_asked_at.is_not(None), Agent.reflection_asked_at, Agent.id)
    with reading() as session:
        return list(session.scalars(select(Agent.id).where(_is_due(at)).order_by(*waited).limit(BATCH)))


def run_promotion(agent_id: int, dependencies: Dependencies) -> None:
    """Ask the agent's model, and promote what it names. Does nothing when the agent is not due, or no longer."""
    question = _claim_agent(agent_id)
    if question is None:
        return
    with ModelCalls(question.agent, dependencies) as calls:
        try:
            _ask_question(question, calls)
        except ModelError as error:
            question.error = str(error.kind)
        except (MalformedReply, SealBroken) as error:
            question.error = error.code
        except Exception:
            end_reading()
            question.error = "unexpected"
            _close_question(question, calls)
            raise
        _close_question(question, calls)


@dataclass
class _PromotionQuestion:
    """What is asked, and what it came to: the entries that were shown, those that the agent named, what went wrong."""

    agent: AskedAgent
    instructions: str
    asked_at: datetime
    shown: Sequence[int] = ()
    named: Sequence[int] = ()
    usage: Usage = field(default_factory=Usage)
    error: str | None = None

    @property
    def is_answered(self) -> bool:
        """A malformed answer is one, too."""
        return self.error in (None, MalformedReply.code)

    def messages(self, window: int | None) -> Sequence[Message]:
        """The newest journal entries that fit into half of the room, beside the core memories."""
        journal = self.agent.read_recent_journal(own=True)
        lines = newest_that_fit(journal, room_of(window) // 2)
        self.shown = [entry.id for entry in journal[len(journal) - len(lines) :]]
        counts = {"count": len(journal), "most": MAX_PROMOTED}
        question = render_prompt("promotion_question.txt", instructions=self.instructions, journal=lines, **counts)
        left = tokens_left(window, lines)
        context = memory_context(self.agent.system_prompt, self.agent.read_core(), (), left)
        return [context, {"role": "user", "content": question}]


def _claim_agent(agent_id: int) -> _PromotionQuestion | None:
    """For exactly one worker: the others find the agent asked."""
    moment = now()
    tries = case((_is_rested(moment), 1), else_=Agent.reflection_tries + 1)
    with writing():
        asked = {"reflection_asked_at": moment, "reflection_tries": tries}
        agent = claim_row(Agent, Agent.id == agent_id, _is_due(moment), **asked)
        if agent is None:
            return None
        data = {"try": agent.reflection_tries}
        record(Action.REFLECTION_ASK, actor=WORKER, of=agent, subject=agent.subject, data=data, rows=[agent])
        instructions = agent.memory_reflection_prompt or DEFAULT_MEMORY_REFLECTION_PROMPT
        return _PromotionQuestion(AskedAgent.of(agent, open_keys(agent)), instructions, moment)


def _ask_question(question: _PromotionQuestion, calls: ModelCalls) -> None:
    """Raises ModelError, MalformedReply or SealBroken."""
    reply = calls.ask(CallPurpose.PROMOTION, question.messages)
    question.usage = reply.usage
    question.named = read_promotions(reply, question.shown)


def read_promotions(reply: Reply, shown: Collection[int]) -> list[int]:
    """Which of the shown journal entries are to become core. Raises MalformedReply."""
    ids = read_list(read_object(reply, "promote"), "promote", MAX_PROMOTED)
    if any(type(number) is not int for number in ids) or len(set(ids)) != len(ids):
        raise MalformedReply("promote must be a list of different whole numbers")
    if not set(ids) <= set(shown):
        raise MalformedReply("promote names what is none of the journal entries that were shown")
    return ids


def _close_question(question: _PromotionQuestion, calls: ModelCalls) -> None:
    """Promote, and tell in numbers how the question went; an agent that was forgotten meanwhile is left alone."""
    with writing():
        calls.book()
        agent = Agent.lock(question.agent.agent_id)
        if agent.forgotten_at is not None:
            return
        if question.is_answered:
            agent.last_reflection_at, agent.reflection_tries = question.asked_at, 0
        promoted = _promote_entries(agent, question.named)
        data = {
            "asked": len(question.shown),
            "promoted": len(promoted),
            "skipped": len(question.named) - len(promoted),
            **question.usage.as_json(),
            "error": question.error,
        }
        actor = WORKER if question.error else agent.as_actor
        record(Action.REFLECTION, actor=actor, of=agent, subject=agent.subject, data=data)
        agent.announce("reflected")


def _promote_entries(agent: Agent, ids: Sequence[int]) -> list[Memory]:
    """Those of them that are journal entries still, and no exact duplicate of a core memory of the same day."""
    known: set[tuple[bytes, date]] = set()
    promoted: list[Memory] = []
    journal = Memory.active(agent.id, MemoryType.JOURNAL).where(Memory.id.in_(ids))
    entries = db.session.scalars(lock_row(journal.order_by(None).order_by(Memory.id))).all()
    Memory.hold_contents(entries)
    for memory in entries:
        content_hash, at = memory.content.content_hash or b"", memory.origin_at
        mark = content_hash, at.date()
        if mark not in known and Memory.same_core(agent.id, content_hash, at) is None:
            promoted.append(memory)
        known.add(mark)
    for memory in promoted:
        memory.promote(agent)
    if promoted:
        data = {
            "ids": [memory.id for memory in promoted],
            "core_tokens": sum(memory.token_estimate for memory in promoted),
        }
        record(Action.PROMOTE, actor=agent.as_actor, of=agent, subject=agent.subject, data=data, memories=promoted)
    return promoted


def _is_due(at: datetime) -> ColumnElement[bool]:
    """Active, not paused, with a language model to be asked, and with a recent journal entry that is news to it.

    What Whetstone itself noted there, of refinements and of what humans did, is none.
    """
    news = exists().where(
        Memory.agent_id == Agent.id,
        Memory.type == MemoryType.JOURNAL,
        Memory.discarded_at.is_(None),
        Memory.source.not_in(PLATFORM_NOTES),
        Memory.origin_at >= at - RECENT,
        or_(Agent.last_reflection_at.is_(None), Memory.created_at > Agent.last_reflection_at),
    )
    asked = or_(_is_rested(at), _is_unanswered(at))
    return and_(Agent.active, ~Agent.paused, Agent.has_language_model, asked, news)


def _is_rested(at: datetime) -> ColumnElement[bool]:
    return or_(Agent.reflection_asked_at.is_(None), Agent.reflection_asked_at <= at - PROMOTION_PAUSE)


def _is_unanswered(at: datetime) -> ColumnElement[bool]:
    """Asked, not answered, not too often; and whoever asked is done with it, or dead."""
    tries = Agent.reflection_tries
    return and_(tries > 0, tries < MOST_TRIES, Agent.reflection_asked_at < at - CLAIM_EXPIRES_AFTER)
