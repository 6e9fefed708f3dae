"""Carrying a whole refinement to its end in a test, with a model that says what was written down for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.asking.calls import Dependencies
from app.extensions import db
from app.models import COMMAND_LINE, Agent, Mode, Refinement, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from tests.support.factories import ledger
from tests.support.scripted import Scripted, ScriptedClient, ScriptedClients, call, say

LONG = "On the third of May we promised each other to tell the truth, even when it is small and unwelcome. "
MARKS = ".,;:!?-–—…·•*+~|/^°¶§†‡"


def alike(count: int, text: str = LONG) -> list[str]:
    """So many texts of one length, each of which says all of each other: they end in different marks."""
    return [text + mark for mark in MARKS[:count]]


DONE = call("complete_refinement", summary="I am done.")


@dataclass
class Ended:
    """A refinement after its process, and what its model was asked."""

    refinement: Refinement
    client: ScriptedClient
    pauses: list[float] = field(default_factory=list)

    @property
    def status(self) -> str:
        return str(self.refinement.status)


def carry(
    agent: Agent,
    *replies: Scripted,
    trigger: Trigger = Trigger.ADMIN,
    mode: Mode = Mode.FULL,
    window: int | None = None,
    monotonic: Callable[[], float] = lambda: 0.0,
) -> Ended:
    """Start, and run to the end in this thread."""
    refinement = start_refinement(agent.id, trigger=trigger, by=COMMAND_LINE, mode=mode)
    client, pauses = ScriptedClient(*replies, context_window=window), []  # type: ScriptedClient, list[float]
    run_refinement(refinement.id, Dependencies(ScriptedClients(client), pause=pauses.append, monotonic=monotonic))
    db.session.rollback()
    return Ended(db.session.get_one(Refinement, refinement.id, populate_existing=True), client, pauses)


def contents(agent: Agent, keys: Any) -> dict[int, str]:
    """The agent's ledger in words, by id."""
    from app.models import Memory

    return {row[0]: keys.reveal_memory(row[0], db.session.get_one(Memory, row[0]).content) for row in ledger(agent)}


__all__ = ["DONE", "LONG", "Ended", "alike", "call", "carry", "contents", "say"]
