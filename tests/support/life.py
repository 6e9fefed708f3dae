"""A life with a canary in every place where content can be: remembered, refined, refused, told, asked for, waiting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from flask import current_app
from sqlalchemy import LargeBinary, select

from app.asking.prompt_memories import read_entries
from app.exchange.taking_in import take_in
from app.extensions import db, writing
from app.history.plan import Target
from app.history.undo import roll_back
from app.keys.agent_keys import open_keys
from app.llm.client import Message, ModelError, ModelErrorKind, Reply
from app.models import (
    COMMAND_LINE,
    AccessGrant,
    Agent,
    Consent,
    IdempotencyKey,
    Intake,
    Memory,
    MemoryState,
    MemoryText,
    MemoryType,
    Refinement,
    SettingsRequest,
    TokenRequest,
    Trigger,
    asked_losses,
)
from app.models.base import SealedText
from app.models.memory_text import texts_of
from app.models.recall_probe import Probe, reveal_probes
from app.models.second_reading import reveal_reader_words
from app.silo import AgentKeys, open_intake
from tests.refinement.driving import call, carry, say
from tests.support.canary import canary, places_in
from tests.support.factories import make_agent, promote, remember
from tests.support.scripted import calls

LEDGER = {"ledger", "constitutional", "promoted", "edited", "mergedone", "mergedtwo", "deleted"}
"""What an exception for the ledger shows, once the life's refinement is undone."""

CHANGED = {"edited", "edit", "mergedone", "mergedtwo", "merge", "deleted"}
HISTORY = CHANGED | {"yes", "summary", "probed", "ledger", "reader"}
"""What an exception for the history of that refinement shows: before and after, the agent's own words, its recall probe
with the memory that answers it, and the words of the second reader."""

SEALED = LEDGER | HISTORY | {"journal", "declined", "waiting", "answer"}
"""All that is kept. The rest was only said: to the model, or by it."""

FILLER = "It rained in Lisbon. " * 250


@dataclass(frozen=True)
class Life:
    """`refinement` was undone since; `later` was rolled back by the latch."""

    agent: Agent
    refinement: Refinement
    later: Refinement
    rollback_id: str


def live(name: str = "ezra") -> Life:
    """Of a new agent of the first account."""
    agent = make_agent(name, system_prompt=f"You are {name}.")
    places = ("edited", "mergedone", "mergedtwo", "deleted", "ledger")
    edited, one, two, deleted, _ = remember(agent, *map(canary, places))
    _, carrier = remember(agent, canary("constitutional"), f"{canary('deleted')} {FILLER}", constitutional=True)
    _, promoted = remember(agent, canary("journal"), canary("promoted"), type_=MemoryType.JOURNAL)
    promote(agent, promoted)
    refinement = _refine(agent, edited, [one, two], deleted, carrier)
    rollback = roll_back(Target.refinement(refinement.id), by=COMMAND_LINE).rollback
    assert rollback is not None
    later = _trip(agent, call("delete_memory", id=deleted, carried_by=carrier))
    _end_badly(agent)
    receive(agent, {"content": canary("waiting")})
    take_in(receive(agent, {"content": canary("broken"), canary("broken"): 1}, canary("broken"), 7))
    _answer_once(agent)
    return Life(agent, refinement, later, rollback.id)


def receive(agent: Agent, *lines: object) -> str:
    """What the web process hands in, but for its checks: JSON Lines, sealed to the master key."""
    with writing():
        return Intake.receive(agent, "\n".join(map(json.dumps, lines)), by=COMMAND_LINE).id


def _answer_once(agent: Agent) -> None:
    """What is kept of a request that may come again."""
    keys = open_keys(agent)
    IdempotencyKey.claim(agent.id, "a word", keys.request_hash(canary("answer").encode()))
    IdempotencyKey.settle(agent.id, "a word", status=201, answer=canary("answer"), keys=keys)


def _refine(agent: Agent, edited: int, merged: list[int], deleted: int, carrier: int) -> Refinement:
    """Two of the changes lose what the memories say: they are asked about, and confirmed in the next reply."""
    update = {"id": edited, "content": canary("edit")}
    merge = {"ids": merged, "content": canary("merge")}
    work = calls(
        ("search_memories", {"query": canary("query")}),
        ("update_memory", update),
        ("consolidate_memories", merge),
        ("delete_memory", {"id": deleted, "carried_by": carrier}),
        ("delete_memory", {"id": canary("refused"), "carried_by": canary("refused")}),
        (canary("refused"), {"id": 1}),
        ("delete_memory", f'{{"{canary("refused")}": 1, "id": "{canary("refused")}"'),
        ("update_memory", {"id": edited, canary("refused"): canary("refused")}),
        ("search_memories", {"query": canary("query"), "since": canary("refused")}),
        text=canary("said"),
    )
    again = calls(
        ("update_memory", update | {"confirm_loss": True}), ("consolidate_memories", merge | {"confirm_loss": True})
    )
    done = call("complete_refinement", summary=canary("summary"))
    with _probed_and_read(agent):
        replies = (say(f"YES. {canary('yes')}"), _ask_itself(agent), work, again, done, _read_again, _recall)
        ended = carry(agent, *replies)
    assert (ended.status, ended.refinement.mutations) == ("completed", 3)
    assert ended.refinement.confirmed_losses == 2
    assert (ended.refinement.probes_asked, ended.refinement.probes_kept) == (1, 1)
    assert len(ended.refinement.flagged_groups) == 1
    return ended.refinement


@contextmanager
def _probed_and_read(agent: Agent) -> Iterator[None]:
    """With one recall probe, and a second reader that the operator set."""
    settings = current_app.extensions["settings"]
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, recall_probes=1)
    current_app.extensions["settings"] = settings.model_copy(update={"second_reader_model": "openai/reader"})
    yield
    current_app.extensions["settings"] = settings
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, recall_probes=0)


def _ask_itself(agent: Agent) -> Reply:
    """One question, about the memory that stays as it is."""
    (number,) = [entry.id for entry in read_entries(agent.id, open_keys(agent)) if entry.content == canary("ledger")]
    probe = {"memory": number, "question": f"What sang? {canary('probed')}", "answer": canary("ledger")}
    return say(json.dumps({"probes": [probe]}))


def _read_again(messages: Sequence[Message]) -> Reply:
    """The first group is lost, all others are kept."""
    count = str(messages[-1]["content"]).count("\nGroup ")
    verdicts = [f"1: lost, {canary('reader')}", *(f"{number}: kept" for number in range(2, count + 1))]
    return say("\n".join(verdicts))


def _recall(_: Sequence[Message]) -> Reply:
    return say(json.dumps({"answers": [canary("ledger")]}))


def _trip(agent: Agent, deletion: Reply) -> Refinement:
    """At a threshold of 1.00 nothing may go."""
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, refinement_threshold="1.00")
    ended = carry(agent, say("YES"), deletion, deletion)
    assert ended.status == "rolled_back"
    return ended.refinement


def _end_badly(agent: Agent) -> None:
    assert carry(agent, say("YES"), say(canary("said")), say(canary("said"))).status == "unfinished"
    assert carry(agent, say("YES"), ModelError(ModelErrorKind.UNAUTHORIZED, "The key was refused.")).status == "failed"

    def broken(_: Sequence[Message]) -> Reply:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        carry(agent, say("YES"), broken)
    assert carry(agent, say(f"NO. {canary('declined')}")).status == "declined"
    done = call("complete_refinement", summary=canary("summary"))
    assert carry(agent, done, trigger=Trigger.AGENT).status == "completed"


def sealed_columns() -> set[str]:
    """Every column that can hold content, by its type: sealed text, or bytes that are named so."""
    columns = [column for table in db.metadata.tables.values() for column in table.columns]
    found = [
        c for c in columns if isinstance(c.type, SealedText) or (isinstance(c.type, LargeBinary) and c.name == "sealed")
    ]
    return {f"{column.table.name}.{column.name}" for column in found} - {"agent_keys.sealed", "notice_channels.sealed"}


def places_by_column() -> dict[str, set[str]]:
    """The canaries that stand in each of these columns, opened with the master key."""
    db.session.rollback()
    found: dict[str, set[str]] = {}
    for agent in db.session.scalars(select(Agent)):
        keys = open_keys(agent)
        for column, texts in READERS.items():
            found.setdefault(column, set()).update(*(places_in(text) for text in texts(agent, keys)))
    return found


def _states(agent: Agent, keys: AgentKeys) -> Iterator[str]:
    mine = select(Memory.id).where(Memory.agent_id == agent.id)
    sealed = texts_of(MemoryText.memory_id.in_(mine))
    for state in db.session.scalars(select(MemoryState).where(MemoryState.memory_id.in_(mine))):
        yield keys.reveal_memory(state.memory_id, sealed[state.memory_id, state.content_digest])


def _words(agent: Agent, keys: AgentKeys) -> Iterator[str]:
    for consent in db.session.scalars(select(Consent).where(Consent.agent_id == agent.id)):
        if consent.words is not None:
            subject = consent.refinement_id or consent.grant_id or consent.settings_request_id or ""
            yield keys.reveal(consent.words, purpose="consent", subject=subject)


def _summaries(agent: Agent, keys: AgentKeys) -> Iterator[str]:
    for refinement in db.session.scalars(select(Refinement).where(Refinement.agent_id == agent.id)):
        if refinement.summary is not None:
            yield keys.reveal(refinement.summary, purpose="summary", subject=refinement.id)


def _reasons(agent: Agent, keys: AgentKeys) -> Iterator[str]:
    for grant in db.session.scalars(select(AccessGrant).where(AccessGrant.agent_id == agent.id)):
        if grant.reason is not None:
            yield keys.reveal(grant.reason, purpose="exception", subject=grant.id)


def _token_reasons(agent: Agent, keys: AgentKeys) -> Iterator[str]:
    for request in db.session.scalars(select(TokenRequest).where(TokenRequest.agent_id == agent.id)):
        if request.reason is not None:
            yield keys.reveal(request.reason, purpose="token-request", subject=request.id)


def _reasons_for_changes(agent: Agent, keys: AgentKeys) -> Iterator[str]:
    for request in db.session.scalars(select(SettingsRequest).where(SettingsRequest.agent_id == agent.id)):
        if request.reason is not None:
            yield keys.reveal(request.reason, purpose="settings_request", subject=request.id)


def _waiting(agent: Agent, _: AgentKeys) -> Iterator[str]:
    master = current_app.extensions["master_key"]
    for intake in db.session.scalars(select(Intake).where(Intake.agent_id == agent.id, Intake.sealed.is_not(None))):
        text = open_intake(intake.sealed or b"", intake_id=intake.id, agent_uuid=agent.uuid, master=master)
        yield " ".join(json.loads(line)["content"] for line in text.text.split("\n"))


def _answers(agent: Agent, keys: AgentKeys) -> Iterator[str]:
    for row in db.session.scalars(select(IdempotencyKey).where(IdempotencyKey.agent_id == agent.id)):
        yield row.reveal(keys)


def _lost(agent: Agent, keys: AgentKeys) -> Iterator[str]:
    for number in db.session.scalars(select(Refinement.id).where(Refinement.agent_id == agent.id)):
        yield from (words for _, named in asked_losses(number, keys) for words in named)


def _probes(agent: Agent, keys: AgentKeys) -> Iterator[Probe]:
    for number in db.session.scalars(select(Refinement.id).where(Refinement.agent_id == agent.id)):
        yield from reveal_probes(number, keys).values()


def _reader_words(agent: Agent, keys: AgentKeys) -> Iterator[str]:
    for refinement in db.session.scalars(select(Refinement).where(Refinement.agent_id == agent.id)):
        yield from (group.words for group in reveal_reader_words(refinement, keys) if group.words)


READERS: dict[str, Callable[[Agent, AgentKeys], Iterator[str]]] = {
    "memory_texts.sealed": _states,
    "consents.words": _words,
    "refinements.summary": _summaries,
    "asked_losses.words": _lost,
    "access_grants.reason": _reasons,
    "token_requests.reason": _token_reasons,
    "settings_requests.reason": _reasons_for_changes,
    "intakes.sealed": _waiting,
    "idempotency_keys.answer": _answers,
    "recall_probes.question": lambda agent, keys: (probe.question for probe in _probes(agent, keys)),
    "recall_probes.answer": lambda agent, keys: (probe.answer for probe in _probes(agent, keys)),
    "second_reading_words.words": _reader_words,
}
"""How each column is read. `access_views.sealed` is left: only the key of one look opens it. So is
`content_keys.sealed`, which holds no text."""
