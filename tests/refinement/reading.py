"""Refinements whose changes a second, scripted model reads before the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.asking.calls import Dependencies
from app.extensions import db, writing
from app.llm.client import Message, Reply
from app.models import COMMAND_LINE, Agent, Memory, MemoryType, Refinement, Trigger
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from tests.refinement.driving import DONE, call, say
from tests.support.scripted import Scripted, ScriptedClient

READER = "openai/reader"
TEXTS = (
    "We promised each other in Lisbon to always tell the truth, even when it is small and unwelcome to hear.",
    "The red bicycle stands in the cellar, behind the shelf with the paint and the old newspapers of the neighbours.",
    "Every Sunday we bake bread together, and whoever wakes up first has to feed the sourdough in the kitchen.",
    "The cat sleeps on the piano when it rains, and nobody is allowed to practise while she sleeps there.",
)


@dataclass
class TwoModels:
    """Clients for the agent's own model, and for the reader."""

    own: ScriptedClient
    reader: ScriptedClient

    def for_model(
        self, model_id: str, *, api_base: str | None = None, api_key_env: str | None = None
    ) -> ScriptedClient:
        return self.reader if model_id == READER else self.own


@dataclass
class Read:
    """A refinement after its process, and what both models were asked."""

    refinement: Refinement
    own: ScriptedClient
    reader: ScriptedClient

    @property
    def status(self) -> str:
        return str(self.refinement.status)

    @property
    def question(self) -> str:
        """The one that the reader was asked."""
        (asked,) = self.reader.asked
        return str(asked.messages[-1]["content"])


def choose_reader(agent: Agent, action: str | None = None) -> None:
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, second_reader_model=READER, second_reader_action=action)


def want_probes(agent: Agent, count: int) -> None:
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, recall_probes=count)


def shorten(memory_id: int, number: int = 0) -> Reply:
    """One of `TEXTS`, tightened: nothing of it is lost."""
    shorter = TEXTS[number].replace("even when", "when").replace(", and ", "; ").replace("the old", "old")
    assert shorter != TEXTS[number]
    return call("update_memory", id=memory_id, content=shorter)


def run(
    agent: Agent,
    own: Sequence[Scripted],
    reader: Sequence[Scripted] = (),
    *,
    trigger: Trigger = Trigger.ADMIN,
    window: int | None = None,
    monotonic: Callable[[], float] = lambda: 0.0,
) -> Read:
    """Start, and run to the end in this thread. The agent says YES first, unless it wants that itself."""
    refinement = start_refinement(agent.id, trigger=trigger, by=COMMAND_LINE)
    yes = [] if trigger is Trigger.AGENT else [say("YES")]
    models = TwoModels(ScriptedClient(*yes, *own), ScriptedClient(*reader, context_window=window))
    try:
        run_refinement(refinement.id, Dependencies(models, pause=lambda _: None, monotonic=monotonic))
    finally:
        db.session.rollback()
    row = db.session.get_one(Refinement, refinement.id, populate_existing=True)
    return Read(row, models.own, models.reader)


def after(act: Callable[[], object], reply: Scripted) -> Callable[[Sequence[Message]], Reply]:
    """A model in whose thinking time something happens."""

    def think(messages: Sequence[Message]) -> Reply:
        act()
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, Reply) else reply(messages)

    return think


def newest_journal(agent: Agent, keys: object) -> str:
    """What Whetstone told the agent last."""
    query = Memory.active(agent.id, MemoryType.JOURNAL).order_by(None).order_by(Memory.id.desc()).limit(1)
    memory = db.session.scalars(query).one()
    return str(keys.reveal_memory(memory.id, memory.content))  # type: ignore[attr-defined]


__all__ = ["DONE", "READER", "TEXTS", "Read", "TwoModels", "after", "call", "choose_reader", "newest_journal"]
__all__ += ["run", "say", "shorten", "want_probes"]
