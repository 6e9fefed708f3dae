"""Calls of a model: each is sent with retries, with no transaction open meanwhile, timed, and booked with its cost.

Who is asked is taken along before: an agent as it is needed while none of its rows may be held.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from typing import Any, Self

from app.asking.model_endpoint import ModelEndpoint
from app.asking.prompt_memories import (
    PromptMemory,
    consent_context,
    imported_lately,
    memory_context,
    read_entries,
    read_journal,
)
from app.extensions import after_commit, end_reading, now, writing
from app.llm.client import Messages, ModelClient, ModelClients, ModelError, Reply, Tools, Usage
from app.llm.retry import OnRetry, complete_with_retries
from app.models import Actor, Agent, CallPurpose, ModelCall
from app.models.agent_settings import operator_settings
from app.models.base import insert_rows
from app.models.model_call import ANSWERED, UNEXPECTED
from app.models.state import JOURNAL_DAYS
from app.silo import AgentKeys
from app.work_turns import waiting_elsewhere

LONGEST_SECONDS = 540
"""A question is given up before another worker may take it over (`CLAIM_EXPIRES_AFTER`)."""

Compose = Callable[[int | None], Messages]
"""Makes the messages for a context window in tokens, None where nobody knows it."""


@dataclass(frozen=True)
class Dependencies:
    """Clients for models, and a clock for pauses and deadlines that a test can turn."""

    clients: ModelClients
    pause: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class AskedModel:
    """Which model is asked, and on behalf of which agent."""

    account_id: int
    agent_id: int
    endpoint: ModelEndpoint


@dataclass(frozen=True)
class AskedAgent(AskedModel):
    """Taken when it is claimed: what becomes of its settings later does not touch the question."""

    as_actor: Actor
    system_prompt: str | None = field(repr=False)
    keys: AgentKeys

    @classmethod
    def of(cls, agent: Agent, keys: AgentKeys) -> AskedAgent:
        return cls(agent.account_id, agent.id, ModelEndpoint.of(agent), agent.as_actor, agent.system_prompt, keys)

    def read_core(self) -> list[PromptMemory]:
        """Its active core memories, oldest first, revealed. Raises SealBroken."""
        return read_entries(self.agent_id, self.keys)

    def read_recent_journal(self, *, own: bool = False) -> list[PromptMemory]:
        """Its journal of the last days, the same way; with `own` without Whetstone's notes."""
        return read_journal(self.agent_id, self.keys, since=now() - timedelta(days=JOURNAL_DAYS), own=own)

    def context(self, window: int | None) -> dict[str, Any]:
        """The message that says who it is and what it remembers, for a window in tokens."""
        return memory_context(self.system_prompt, self.read_core(), self.read_recent_journal(), window)

    def consent_context(self, window: int | None) -> dict[str, Any]:
        """The same for a question that asks for a YES: with sources, without what humans imported lately."""
        core, journal = self.read_core(), self.read_recent_journal()
        return consent_context(self.system_prompt, core, journal, window, imported_lately(self.agent_id))


class ModelCalls:
    """The calls of one model about one subject, on one connection; close it after.

    What each came to is noted, and booked with the transaction in which whoever asks writes the answer down; what no
    transaction booked, because the answer came too late or was refused, `close` does. So every call is booked once.
    `deadline` is a moment of `dependencies.monotonic`; without one, that of a single question. `on_retry` hears of each
    attempt that failed and is followed by another one.
    """

    def __init__(
        self,
        asked: AskedModel,
        dependencies: Dependencies,
        *,
        subject_id: str | None = None,
        deadline: float | None = None,
        on_retry: OnRetry | None = None,
    ) -> None:
        self.asked, self._dependencies, self._subject_id = asked, dependencies, subject_id
        self.on_retry = on_retry
        self._settings = operator_settings()
        longest = min(self._settings.deadline_seconds, LONGEST_SECONDS)
        self._deadline = dependencies.monotonic() + longest if deadline is None else deadline
        self._set_aside = 0.0
        self._client: ModelClient | None = None
        self._unbooked: list[ModelCall] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, purpose: CallPurpose) -> ModelClient:
        """Make the connection, which the first call would make. Raises ModelError; that, too, is a call that failed."""
        if self._client is None:
            try:
                self._client = self.asked.endpoint.client(self._dependencies.clients)
            except ModelError as error:
                self._note_call(purpose, str(error.kind), Usage(), started_at=now(), seconds=0.0)
                raise
        return self._client

    def ask(self, purpose: CallPurpose, compose: Compose, tools: Tools = (), *, within: float | None = None) -> Reply:
        """One call with its retries, at most `within` seconds. Raises ModelError; and what `compose` raises, when
        nothing was sent yet."""
        client = self.open(purpose)
        messages = compose(client.context_window())
        end_reading()
        started_at, start = now(), self._dependencies.monotonic()
        outcome, usage = UNEXPECTED, Usage()
        try:
            with waiting_elsewhere():
                reply = self._send_with_retries(client, messages, tools, within)
            outcome, usage = ANSWERED, reply.usage
        except ModelError as error:
            outcome = str(error.kind)
            raise
        finally:
            self._note_call(
                purpose, outcome, usage, started_at=started_at, seconds=self._dependencies.monotonic() - start
            )
        return reply

    def time_left(self) -> float:
        """Seconds until the deadline, without those that are set aside."""
        return float(self._deadline - self._set_aside - self._dependencies.monotonic())

    def set_aside(self, seconds: float) -> None:
        """Keep so many seconds before the deadline for what comes later; 0 gives them back."""
        self._set_aside = seconds

    def book(self) -> None:
        """Write down, in the open transaction, every call that is not written yet: tokens, cost, time."""
        insert_rows(self._unbooked)
        after_commit(self._unbooked.clear)

    def close(self) -> None:
        """Close the model's client, and write down the calls that none has booked."""
        if self._client is not None:
            self._client.close()
        if self._unbooked:
            with writing():
                self.book()

    def _send_with_retries(self, client: ModelClient, messages: Messages, tools: Tools, within: float | None) -> Reply:
        end = inf if within is None else self._dependencies.monotonic() + within
        return complete_with_retries(
            client,
            messages,
            tools,
            step_timeout=self._settings.step_timeout_seconds,
            time_left=lambda: min(self.time_left(), end - self._dependencies.monotonic()),
            pause=self._dependencies.pause,
            base=self._settings.retry_base_seconds,
            on_retry=self.on_retry,
        )

    def _note_call(self, purpose: CallPurpose, outcome: str, usage: Usage, **timed: Any) -> None:
        call = ModelCall(
            **timed,
            account_id=self.asked.account_id,
            agent_id=self.asked.agent_id,
            subject_id=self._subject_id,
            purpose=purpose,
            model_id=self.asked.endpoint.model_id[:200],
            **vars(usage),
            total_tokens=usage.total_tokens,
            outcome=outcome,
        )
        self._unbooked.append(call)
