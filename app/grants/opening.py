"""Opening: the worker answers one look through a live exception, and only that look's own key can read the answer.

The receipt, with every id that is shown, is written in the same transaction as the answer.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, select, update
from sqlalchemy.orm import aliased

from app.errors import Refused
from app.extensions import db, end_reading, now, writing
from app.grants.request import lock_both
from app.keys.agent_keys import open_keys
from app.models import (
    WORKER,
    AccessGrant,
    AccessView,
    Action,
    Agent,
    AuditLog,
    Consent,
    Memory,
    MemoryState,
    MemoryText,
    MemoryType,
    Refinement,
    User,
    announce,
    asked_losses,
    record,
    reveal_probes,
    reveal_reader_words,
)
from app.models.base import database_now, iso, require_row
from app.models.declaring import sign_request
from app.models.grant import NO_LONGER_ADMIN
from app.models.memory import OLDEST_MEMORIES
from app.models.memory_text import texts_of
from app.models.statement_log import current_of
from app.silo import AgentKeys, SealBroken, SealedMemory, ViewKey, seal_view
from app.statements.checkpointing import is_covered, make_checkpoint
from app.statements.checks import settle_agent
from app.statements.signers import is_signed_by_web
from app.values.dates import other_days
from app.write_turns import awaited

PAGE = 50
FRESH = timedelta(seconds=60)
"""A look that nobody answered in time is not answered later: nobody waits for it any more."""


class NotCovered(Refused):
    """No live exception covers this: it was not granted to you, has ended, or is for another scope."""

    code = "not_covered"
    http_status = 403


@dataclass(frozen=True)
class RequestedView:
    """A view that was asked for, and the key that will read its answer."""

    view_id: str
    key: ViewKey = field(repr=False)


def look(grant: AccessGrant, user: User, **wanted: Any) -> RequestedView:
    """Write down what the user wants to see; the caller lets a worker answer. Raises NotCovered: nothing is written."""
    key = ViewKey()
    with writing():
        if not AccessGrant.row_matches(grant.id, AccessGrant.user_id == user.id, AccessGrant.is_live()):
            raise NotCovered
        view = AccessView(id=str(uuid.uuid4()), grant_id=grant.id, user_id=user.id, requested_at=now())
        view.reader, view.wanted = key.public.raw, wanted
        view.note = sign_request(LOOK, view.signed_fields())
        db.session.add(view)
    return RequestedView(view.id, key)


@awaited()
def answer_view(view_id: str) -> None:
    """Check the exception by the database's clock and roles, write the receipt, seal what is wanted. Does it once.

    An exception whose human is no admin here any more ends with it. Before its first look it is put in a checkpoint.
    """
    query = select(AccessView.grant_id).where(AccessView.id == view_id)
    grant_id = require_row(db.session.scalar(query), "There is no such view.")
    with suppress(SealBroken):  # which is met again below, and told there
        _put_in_checkpoint(grant_id)
    with writing():
        agent, grant = lock_both(grant_id)
        view = db.session.get_one(AccessView, view_id, populate_existing=True)
        if view.answered_at is not None:
            return
        view.answered_at = now()
        if grant.end_if_lost(agent, by=WORKER):
            view.refused = f"The exception has ended: {NO_LONGER_ADMIN}."
            return
        is_live = AccessGrant.row_matches(grant.id, AccessGrant.is_live())
        if not is_live or view.user_id != grant.user_id or view.requested_at < now() - FRESH:
            view.refused = "The exception has ended."
            return
        if not is_signed_by_web(LOOK, view.note, view.signed_fields()):
            view.refused = "No web process of this installation has signed this look."
            return
        try:
            keys = open_keys(agent)
            if not is_covered(_decision(grant.id, agent.id, agent.uuid)):
                view.refused = "The exception is in no checkpoint of the log of statements yet; ask again."
                return
            if not _covers_now(grant, agent):
                view.refused = "The exception has ended, or has not begun."
                return
            shown = _read_wanted(grant, agent, view.wanted, keys)
        except SealBroken as error:
            view.refused = f"{error.sentence} Nothing is shown; `./whetstone verify` finds what it was."
            return
        view.seen, grant.views = len(shown["items"]), grant.views + 1
        view.sealed = seal_view(json.dumps(shown), view_id=view.id, reader=view.reader)
        _write_receipt(grant, agent, view, shown)


LOOK = "whetstone-look/1"


def _put_in_checkpoint(grant_id: str) -> None:
    """Nobody can deny later that the agent decided so: what it granted is in a checkpoint before anything is shown."""
    query = select(Agent.id, Agent.uuid).join(AccessGrant, AccessGrant.agent_id == Agent.id)
    agent_id, uuid_ = db.session.execute(query.where(AccessGrant.id == grant_id)).tuples().one()
    is_in_one = is_covered(_decision(grant_id, agent_id, uuid_))
    end_reading()
    if is_in_one or not AccessGrant.row_matches(grant_id, AccessGrant.is_live()):
        return
    settle_agent(agent_id)
    if _decision(grant_id, agent_id, uuid_) is not None:
        make_checkpoint()


def _decision(grant_id: str, agent_id: int, agent: str) -> int | None:
    """Where in the log of statements it stands; None while it does not."""
    decided = current_of(agent_id, agent).exceptions.get(grant_id)
    return decided.position if decided else None


def _covers_now(grant: AccessGrant, agent: Agent) -> bool:
    """Whether both clocks, the worker's and the database's, are between begin and end as the agent granted them."""
    stated = current_of(agent.id, agent.uuid).exceptions[grant.id]
    length = timedelta(minutes=int(stated.body["minutes"]))
    begun = datetime.fromisoformat(stated.body["database_time"])
    by_database = db.session.scalars(select(database_now())).one()
    return begun <= by_database < begun + length and stated.at - CLOCK_SKEW <= now() < stated.at + length


CLOCK_SKEW = timedelta(minutes=5)
"""By how much the clock of the web process, where a token decided, may be before the worker's."""


def withdraw_view(look: RequestedView) -> bool:
    """Nobody waits for it any more, so that no worker writes a receipt of what nobody sees. False: it is answered."""
    grant_id = db.session.scalars(select(AccessView.grant_id).where(AccessView.id == look.view_id)).one()
    with writing():
        lock_both(grant_id)
        view = db.session.get_one(AccessView, look.view_id, populate_existing=True)
        if view.answered_at is not None:
            return False
        view.answered_at, view.refused = now(), "Nobody waited for it any more."
        return True


def fetch_view(look: RequestedView) -> dict[str, Any]:
    """What the worker sealed for this look, which is then gone from the database. Raises NotCovered or SealBroken."""
    with writing():
        view = db.session.get_one(AccessView, look.view_id, populate_existing=True)
        sealed, view.sealed = view.sealed, None
        is_live = AccessGrant.row_matches(view.grant_id, AccessGrant.is_live())
    if sealed is None or not is_live:
        raise NotCovered(view.refused or "")
    shown: dict[str, Any] = json.loads(look.key.open_view(sealed, view_id=look.view_id))
    return shown


def empty_unfetched() -> None:
    """Answers that nobody fetched are emptied: their keys are gone anyway."""
    with writing():
        db.session.execute(
            update(AccessView)
            .where(AccessView.sealed.is_not(None), AccessView.requested_at < now() - FRESH)
            .values(sealed=None)
            .execution_options(synchronize_session=False)
        )


def _read_wanted(grant: AccessGrant, agent: Agent, wanted: dict[str, Any], keys: AgentKeys) -> dict[str, Any]:
    if grant.refinement_id is None:
        return _read_ledger_page(agent, int(wanted.get("after") or 0), keys)
    return _read_history(grant.refinement_id, agent, keys)


def _read_ledger_page(agent: Agent, after: int, keys: AgentKeys) -> dict[str, Any]:
    """One page of the active core memories, oldest first, with their texts."""
    position = OLDEST_MEMORIES.find(after, Memory.agent_id == agent.id)
    memories, last = OLDEST_MEMORIES.load(Memory.active(agent.id, MemoryType.CORE), PAGE, position)
    Memory.hold_contents(memories)
    items = [
        {
            "id": memory.id,
            "origin_at": iso(memory.origin_at),
            "other_days": [day.isoformat() for day in other_days(memory.origin_at, memory.other_dates)],
            "merged_sources": memory.merged_sources,
            "merges": memory.merges,
            "tokens": memory.token_estimate,
            "constitutional": memory.constitutional,
            "tags": memory.tags,
            "content": keys.reveal_memory(memory.id, memory.content),
        }
        for memory in memories
    ]
    return {"part": "ledger", "items": items, "next_after": last.id if last else None}


def _read_history(refinement_id: str, agent: Agent, keys: AgentKeys) -> dict[str, Any]:
    """Every change of one refinement but to memories that were erased, before and after, and what was said of it."""
    before, after = aliased(MemoryState), aliased(MemoryState)
    mine = (AuditLog.refinement_id == refinement_id, AuditLog.agent_id == agent.id)
    rows = db.session.execute(
        select(AuditLog.id, AuditLog.action, AuditLog.at, after, before)
        .join(after, after.entry_id == AuditLog.id)
        .join(Memory, and_(Memory.id == after.memory_id, Memory.erased_at.is_(None)))
        .outerjoin(before, (before.memory_id == after.memory_id) & (before.entry_id == after.previous_entry_id))
        .where(*mine)
        .order_by(AuditLog.id, after.memory_id)
    ).tuples()
    changed = select(MemoryState.memory_id).where(MemoryState.entry_id.in_(select(AuditLog.id).where(*mine)))
    texts = _Texts(texts_of(MemoryText.memory_id.in_(changed)), keys)
    items = [_describe_change(entry_id, action, iso(at), new, old, texts) for entry_id, action, at, new, old in rows]
    return {
        "part": "history",
        "items": items,
        "said": _read_agent_words(refinement_id, keys),
        "asked": _read_questions(refinement_id, keys),
        "reader_words": _read_reader_words(refinement_id, keys),
        "recall": _read_recall(refinement_id, keys),
    }


@dataclass(frozen=True)
class _Texts:
    """What states say, revealed one by one."""

    sealed: Mapping[tuple[int, bytes], SealedMemory]
    keys: AgentKeys

    def of(self, state: MemoryState) -> str:
        place = state.memory_id, state.content_digest
        missing = SealedMemory(None, None, None, state.content_digest)
        return self.keys.reveal_memory(state.memory_id, self.sealed.get(place, missing))


def _describe_change(
    entry_id: int, action: str, at: str | None, new: MemoryState, old: MemoryState | None, texts: _Texts
) -> dict[str, Any]:
    return {
        "entry": entry_id,
        "action": str(action),
        "at": at,
        "id": new.memory_id,
        "type": str(new.type),
        "before": None if old is None else texts.of(old),
        "after": texts.of(new),
        "discarded": new.discarded_at is not None,
        "constitutional": new.constitutional,
        "merged_sources": new.merged_sources,
        "merges": new.merges,
    }


def _read_questions(refinement_id: str, keys: AgentKeys) -> list[dict[str, Any]]:
    """What calls would have lost of memories that were not erased, and what became of that."""
    return [
        {
            "id": row.memory_id,
            "at": iso(row.asked_at),
            "action": row.action,
            "missing": words,
            "restored": row.restored,
            "confirmed": row.confirmed,
        }
        for row, words in asked_losses(refinement_id, keys)
        if words
    ]


def _read_reader_words(refinement_id: str, keys: AgentKeys) -> list[dict[str, Any]]:
    """What a second reader said of groups of changes, where it said something and no memory was erased."""
    refinement = db.session.get_one(Refinement, refinement_id)
    return [
        {"ids": group.memory_ids, "kept": group.kept, "words": group.words}
        for group in reveal_reader_words(refinement, keys)
        if group.words is not None
    ]


def _read_recall(refinement_id: str, keys: AgentKeys) -> list[dict[str, Any]]:
    """What the agent asked itself about memories that were not erased."""
    return [
        {"id": probe.memory_id, "question": probe.question, "answer": probe.answer, "kept": probe.kept}
        for probe in reveal_probes(refinement_id, keys).values()
    ]


def _read_agent_words(refinement_id: str, keys: AgentKeys) -> dict[str, str]:
    """The agent's own words about the refinement: its answer, and its summary."""
    words = db.session.scalar(select(Consent.words).where(Consent.refinement_id == refinement_id))
    sealed = {"consent": words, "summary": db.session.get_one(Refinement, refinement_id).summary}
    said = {name: text for name, text in sealed.items() if text is not None}
    return {name: keys.reveal(text, purpose=name, subject=refinement_id) for name, text in said.items()}


def _write_receipt(grant: AccessGrant, agent: Agent, view: AccessView, shown: dict[str, Any]) -> None:
    user = db.session.get_one(User, view.user_id)
    ids = sorted(_ids_of(shown))
    data = {"exception": grant.id, "view": view.id, "part": shown["part"], "ids": ids, "count": len(ids)}
    record(Action.ACCESS_VIEWED, actor=user.actor, of=agent, subject=grant.subject, data=data)
    announce("exception.viewed", *agent.audited_as, exception=grant.id, seen=len(ids))


def _ids_of(shown: Mapping[str, Any]) -> set[int]:
    """Of every memory that the answer names."""
    single = (*shown["items"], *shown.get("asked", ()), *shown.get("recall", ()))
    return {item["id"] for item in single}.union(*(group["ids"] for group in shown.get("reader_words", ())))
