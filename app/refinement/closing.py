"""The close of a refinement: what its worker does between the last change and the end, and what prepares that.

With a second reader, another model reads the changes; with recall probes, the agent's own model answers what it asked
itself after the snapshot. The refinement stays open and its heartbeat beats, but takes no call any more. No transaction
is open while a model thinks, every call is booked, and all of it lies within the deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from app.asking.calls import AskedModel, Dependencies, ModelCalls
from app.asking.replies import MalformedReply
from app.asking.second_reader import SecondReader
from app.extensions import db, end_reading, writing
from app.history.reversing import end_read
from app.llm.client import Message, ModelError, Usage
from app.models import Agent, CallPurpose, Refinement
from app.models.agent_settings import operator_settings
from app.models.asked_loss import asked_losses
from app.models.recall_probe import Probe, keep_probes, note_answers, reveal_probes
from app.models.second_reading import GroupVerdict, ReadingOutcome, change_groups, keep_reader_words
from app.refinement.guard import Claim
from app.refinement.prompts import RefinedAgent
from app.refinement.recall_probes import (
    answer_messages,
    count_held,
    is_answered,
    probe_messages,
    read_answers,
    read_probes,
)
from app.refinement.second_reading import GroupTexts, read_groups, read_verdicts, reading_messages
from app.silo import AgentKeys

SHARE = 10
"""Each call after the loop has at least a tenth of the deadline for itself, or a whole step where that is less."""

UnlessStopped = Callable[[Sequence[Message]], Sequence[Message]]
"""Gives messages back that may be sent now. Raises where the refinement is to stop."""


NO_USAGE = Usage()


class CloseWork:
    """Of one refinement whose snapshot is taken, by its worker. `calls` are those of the agent's own model."""

    def __init__(
        self, claim: Claim, dependencies: Dependencies, refined: RefinedAgent, calls: ModelCalls, deadline: float
    ) -> None:
        self._claim, self._dependencies, self._refined = claim, dependencies, refined
        self._calls, self._deadline = calls, deadline
        settings = operator_settings()
        self._share = min(settings.deadline_seconds / SHARE, float(settings.step_timeout_seconds))
        calls.set_aside(self._share * ((refined.reader is not None) + (refined.probes > 0)))

    @property
    def keys(self) -> AgentKeys:
        return self._refined.agent.keys

    def write_probes(self, unless_stopped: UnlessStopped) -> None:
        """Have the agent write its questions, where it wants some. Raises what `unless_stopped` raises, or SealBroken.

        Whatever else goes wrong leaves it without questions, and changes nothing else.
        """
        wanted = self._refined.probes
        if not wanted:
            return
        ledger = self._refined.agent.read_core()
        probes, usage = list[Probe](), Usage()
        try:
            reply = self._calls.ask(
                CallPurpose.RECALL_PROBES,
                lambda window: unless_stopped(probe_messages(self._refined.agent, ledger, wanted, window)),
                within=self._share,
            )
            probes, usage = read_probes(reply, ledger, wanted), reply.usage
        except ModelError:
            end_reading()
        with writing():
            refinement = Refinement.lock(self._claim.refinement_id)
            self._calls.book()
            if refinement.is_held_by(self._claim.worker):
                refinement.book_usage(**vars(usage))
                refinement.probes_asked = keep_probes(refinement.id, refinement.agent_id, self.keys, probes)

    def finish(self) -> None:
        """After the last change: read, then answer the probes, then end. Does nothing where it has ended."""
        if self._refined.reader is None and not self._refined.probes:
            return
        refinement = self._read_row()
        if self._is_mine(refinement) and refinement.awaits_reading and self._refined.reader is not None:
            self._read_again(self._refined.reader)
            refinement = self._read_row()
        if not (refinement.reverses and refinement.flagged_groups) and self._awaits_answers(refinement):
            self._answer_probes()
        with writing():
            refinement = Refinement.lock(self._claim.refinement_id)
            if self._is_mine(refinement):
                end_read(refinement, Agent.lock(refinement.agent_id), self.keys)

    def _read_again(self, reader: SecondReader) -> None:
        """Ask the reader, and record what it says of each group."""
        texts = read_groups(self._claim.refinement_id, self.keys)
        agent, subject_id = self._refined.agent, self._claim.refinement_id
        asked = AskedModel(agent.account_id, agent.agent_id, reader.endpoint)
        with ModelCalls(
            asked, self._dependencies, subject_id=subject_id, deadline=self._deadline, on_retry=self._calls.on_retry
        ) as calls:
            calls.set_aside(self._share * (self._refined.probes > 0))
            reading = _ask_reader(calls, texts)
            with writing():
                refinement = Refinement.lock(subject_id)
                calls.book()
                if self._is_mine(refinement):
                    self._record_reading(refinement, reading)

    def _record_reading(self, refinement: Refinement, reading: _ReaderAnswer) -> None:
        refinement.book_usage(**vars(reading.usage))
        refinement.book_reading(Agent.lock(refinement.agent_id), reading.outcome, reading.verdicts)
        groups = change_groups(refinement.id)
        said = reading.verdicts or [GroupVerdict(False, reading.words)] * len(groups)
        keep_reader_words(refinement.id, refinement.agent_id, self.keys, groups, said)

    def _answer_probes(self) -> None:
        """Ask the agent's model what it asked itself, and count what it still knows."""
        probes = reveal_probes(self._claim.refinement_id, self.keys)
        ledger = self._refined.agent.read_core()
        named = {words for _, asked in asked_losses(self._claim.refinement_id, self.keys) for words in asked}
        held = count_held(named, ledger)
        answers, usage = None, Usage()
        self._calls.set_aside(0)
        try:
            reply = self._calls.ask(
                CallPurpose.RECALL_PROBES, lambda window: answer_messages(ledger, list(probes.values()), window)
            )
            answers, usage = read_answers(reply, len(probes)), reply.usage
        except ModelError:
            end_reading()
        with writing():
            refinement = Refinement.lock(self._claim.refinement_id)
            self._calls.book()
            if self._is_mine(refinement):
                refinement.book_usage(**vars(usage))
                refinement.missing_named, refinement.missing_held = len(named), held
                if answers is not None:
                    said = zip(probes.items(), answers, strict=True)
                    known = {number: is_answered(probe, answer) for (number, probe), answer in said}
                    refinement.probes_kept = note_answers(refinement.id, known)

    def _awaits_answers(self, refinement: Refinement) -> bool:
        return (
            self._is_mine(refinement) and refinement.ending is not None and refinement.awaits_answers(refinement.ending)
        )

    def _is_mine(self, refinement: Refinement) -> bool:
        """Whether it has come to its end, and is still in the hands of this worker."""
        return refinement.is_held_by(self._claim.worker) and refinement.ending is not None

    def _read_row(self) -> Refinement:
        return db.session.get_one(Refinement, self._claim.refinement_id, populate_existing=True)


@dataclass(frozen=True)
class _ReaderAnswer:
    """What came of asking the reader. `words` are all of an answer that could not be used."""

    outcome: ReadingOutcome
    usage: Usage = NO_USAGE
    verdicts: Sequence[GroupVerdict] = ()
    words: str = field(default="", repr=False)


def _ask_reader(calls: ModelCalls, texts: Sequence[GroupTexts]) -> _ReaderAnswer:
    try:
        reply = calls.ask(CallPurpose.SECOND_READING, lambda window: reading_messages(texts, window))
    except ModelError:
        end_reading()
        return _ReaderAnswer(ReadingOutcome.UNREACHABLE)
    try:
        return _ReaderAnswer(ReadingOutcome.READ, reply.usage, read_verdicts(reply, len(texts)))
    except MalformedReply:
        return _ReaderAnswer(ReadingOutcome.UNUSABLE, reply.usage, words=reply.text.encode("utf-8", "replace").decode())
