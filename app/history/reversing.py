"""A guard's reversal of one whole refinement: recorded, told to the agent in its journal, and final.

The latch and the erosion guard do it after a change. So does a second reading that is set to: after the last change, or
where something else ends the refinement before its changes were read. A guard whose reader can't be asked has not been
told that anything was kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, select

from app.extensions import db, now, writing
from app.history.telling import tell_agent
from app.history.trace import Entries, MemoryReversal
from app.history.undo_rules import plan_undo
from app.models import (
    WORKER,
    Action,
    Actor,
    Agent,
    AuditLog,
    InstallationMark,
    Memory,
    MemoryType,
    Refinement,
    Source,
    Status,
    record,
)
from app.models.base import require_row
from app.models.restoring import restore_states
from app.models.second_reading import ReadingOutcome
from app.silo import AgentKeys
from app.values.plural import count_nouns

RETENTION_GUARD = "retention guard"
SECOND_READING = "second reading"

_ALL_BUT_DEDUP = select(AuditLog.id).where(
    AuditLog.refinement_id == bindparam("refinement"), AuditLog.action != Action.DEDUP
)

_UNTOLD = "reversal:"
"""Marks of refinements that were reversed by a process without the agent's keys: a worker writes the journal note."""


def reverse_changes(
    refinement: Refinement, agent: Agent, guard: str, reason: str, *, data: Mapping[str, Any], keys: AgentKeys | None
) -> None:
    """Take back all that it did but the removal of exact duplicates, and end it, in the caller's transaction.

    The caller holds the locks of both rows. `guard` is who does it, `data` what the entry says of it. Without `keys`
    the agent is told by a worker, as soon as one looks.
    """
    db.session.flush()
    findings = plan_undo(Entries(_ALL_BUT_DEDUP, {"refinement": refinement.id}), agent.id, lock=True)
    text, notes = _journal_text(refinement, guard, reason), list[Memory]()
    if keys is None:
        InstallationMark.write(f"{_UNTOLD}{refinement.id}", guard)
    else:
        notes = [Memory.write(agent, text, keys=keys, source=Source.REFINEMENT, type_=MemoryType.JOURNAL)]
    db.session.flush()
    give_back(
        findings.changes,
        agent,
        Action.REFINEMENT_ROLLBACK,
        by=agent.as_actor,
        subject=refinement.subject,
        refinement_id=refinement.id,
        data={
            **data,
            **({"journal": notes[0].id} if notes else {}),
            "restored": findings.restored,
            "removed": findings.removed,
        },
        memories=notes,
    )
    refinement.end_now(agent, Status.ROLLED_BACK, reason=reason)


def end_read(refinement: Refinement, agent: Agent, keys: AgentKeys | None, by: Actor = WORKER) -> None:
    """End one that has come to its end (`ending`) and was read: reversed where it is set to and not all was called
    kept, else as it came to it. For a caller like that of `reverse_changes`."""
    if refinement.ending is None:
        raise RuntimeError("it has not come to its end")
    if refinement.reverses and refinement.flagged_groups:
        about = {"stats": refinement.stats, "mass_before": refinement.mass_before, "kept_mass": refinement.kept_mass}
        about["second_reading"] = refinement.second_reading
        reverse_changes(refinement, agent, SECOND_READING, _reading_reason(refinement), data=about, keys=keys)
        return
    said = {"reason": refinement.reason, "failure": refinement.failure}
    refinement.end_now(agent, refinement.ending, by=by, **said)


def end_unread(
    refinement: Refinement,
    agent: Agent,
    status: Status,
    reason: str,
    *,
    failure: str | None = None,
    by: Actor = WORKER,
    keys: AgentKeys | None = None,
) -> None:
    """End one from outside, or after a breakdown: what was not read until then is not called kept.

    One that has come to its end already keeps that one. For a caller like that of `reverse_changes`; does nothing when
    it has ended.
    """
    if not refinement.is_open:
        return
    if refinement.ending is None and not refinement.awaits_reading:
        refinement.end_now(agent, status, reason=reason, failure=failure, by=by)
        return
    if refinement.ending is None:
        refinement.ending, refinement.reason, refinement.failure = status, reason, failure
    if refinement.awaits_reading:
        refinement.book_reading(agent, ReadingOutcome.NOT_READ)
    end_read(refinement, agent, keys, by)


def find_untold_reversals() -> list[str]:
    """Ids of refinements that were reversed, and of which the agent's journal says nothing yet."""
    marks = select(InstallationMark.name).where(InstallationMark.name.startswith(_UNTOLD))
    return [name.removeprefix(_UNTOLD) for name in db.session.scalars(marks.order_by(InstallationMark.at).limit(100))]


def tell_reversal(refinement_id: str) -> None:
    """Write that note, by a worker. Does nothing when another one was first, or the agent is forgotten."""
    with writing():
        agent_id = db.session.scalar(select(Refinement.agent_id).where(Refinement.id == refinement_id))
        agent = Agent.lock(require_row(agent_id, "There is no such refinement."))
        guard = InstallationMark.read(f"{_UNTOLD}{refinement_id}")
        if guard is None:
            return
        InstallationMark.drop(f"{_UNTOLD}{refinement_id}")
        if agent.forgotten_at is None:
            refinement = db.session.get_one(Refinement, refinement_id)
            text = _journal_text(refinement, guard, refinement.reason or "")
            tell_agent(agent, text, about={"refinement": refinement_id})


def _reading_reason(refinement: Refinement) -> str:
    said = refinement.second_reading or {}
    if said.get("outcome") == ReadingOutcome.READ:
        return f"The second reader called {said['kept']:,} of {count_nouns(said['groups'], 'group')} of changes kept."
    return _WHY_NOT_KEPT[ReadingOutcome(said["outcome"])]


_WHY_NOT_KEPT = {
    ReadingOutcome.UNUSABLE: "The second reader's answer could not be used, so it called no change kept.",
    ReadingOutcome.UNREACHABLE: "The second reader gave no answer, so it called no change kept.",
    ReadingOutcome.NOT_READ: "It ended before a second reader could read its changes, so none was called kept.",
}


def _journal_text(refinement: Refinement, guard: str, reason: str) -> str:
    counts = ", ".join(f"{n} {name}" for name, n in refinement.counts.items() if n and name != "deduplicated")
    cut = f"{(refinement.mass_before or 0) - (refinement.kept_mass or 0):,} tokens would have been cut. "
    return (
        f"My refinement was rolled back by the system's {guard} and ended. {reason} {cut}"
        f"What had been done ({counts or 'nothing'}) was reversed: my core memories are as they were before it. "
        "Exact duplicates that were removed before it began stay removed."
    )


def give_back(
    changes: Sequence[MemoryReversal], agent: Agent, action: Action, *, by: Actor, **of_entry: Any
) -> AuditLog:
    """Carry out changes as a set, with one entry, for which `of_entry` has the rest of what `record` takes.

    The caller holds the locks, and what it changed itself is flushed.
    """
    moment = now()
    ways = [change.restoration(moment) for change in changes]
    memories = [change.memory for change in changes]
    agent.weigh(removed=memories, added=[change.state for change in changes if change.state])
    entry = record(action, actor=by, of=agent, restored=ways, **of_entry)
    changed_flags = {
        memory.id: immutable
        for memory, state, _ in changes
        if state is not None and (immutable := agent.is_immutable(state.tags)) != memory.immutable
    }
    are_protected = any(memory.constitutional for memory in memories)
    restore_states(entry.id, ways, are_protected=are_protected, immutable=changed_flags)
    return entry
