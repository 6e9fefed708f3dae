"""The replay of an agent: what the entries, taken in order, say of its settings and of what was undone, called for
attention or is to be told, against the rows as they stand; and its refinements and rollbacks, each against its entry.

A reader is given every entry of the chain in order (`take`), then the agent (`compare`). All of it raises Difference.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import and_, exists, func, select
from sqlalchemy.orm import load_only

from app.extensions import db
from app.history.chain import Difference, as_dict, entry_difference, entry_name, stream_rows
from app.models import (
    Action,
    Agent,
    AgentKey,
    AskedLoss,
    AttentionItem,
    AttentionKind,
    AuditLog,
    ContentKey,
    HumanAct,
    Memory,
    MemoryText,
    Refinement,
    Rollback,
    Status,
)
from app.models.asked_loss import digest_of_questions
from app.models.attention import SETTLED_BY, attention_kinds_for, facts_called_for
from app.models.audit import is_human_act
from app.values.mass_story import NOUNS


class ReplayedSettings:
    """What the entries say of an agent's settings: the newest word on each, and the entry that said it."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[object, str, int]] = {}

    def take(self, entry: AuditLog) -> None:
        match entry.action:
            case Action.AGENT_CREATE:
                made = as_dict(entry.data.get("settings"))
                self._record_settings(entry, {"paused": False, "forgotten": False, **made})
            case Action.AGENT_SETTINGS_UPDATE:
                self._check_before(entry, as_dict(entry.data.get("before")))
                self._record_settings(entry, as_dict(entry.data.get("after")))
            case Action.AGENT_PAUSE | Action.AGENT_RESUME:
                self._record_settings(entry, {"paused": entry.action == Action.AGENT_PAUSE})
            case Action.AGENT_FORGET:
                self._record_settings(entry, {"forgotten": True})

    def compare(self, agent: Agent) -> None:
        rows = {"paused": agent.paused, "forgotten": agent.forgotten_at is not None, **agent.configuration()}
        for name, (value, by, entry_id) in self._said.items():
            if name in rows and rows[name] != value:
                raise Difference(f"{name} of the agent is not what {by} says.", entry_id)

    def _record_settings(self, entry: AuditLog, settings: dict[str, Any]) -> None:
        self._said |= {name: (value, entry_name(entry), entry.id) for name, value in settings.items()}

    def _check_before(self, entry: AuditLog, before: dict[str, Any]) -> None:
        for name, value in before.items():
            if name in self._said and self._said[name][0] != value:
                raise entry_difference(entry, f"changes {name} from what {self._said[name][1]} did not say.")


class ReplayedUndoing:
    """What the entries say is undone: by the id of a refinement or rollback, the rollback that stands against it."""

    def __init__(self) -> None:
        self._by: dict[str, tuple[str, str, int]] = {}

    def take(self, entry: AuditLog) -> None:
        if entry.action != Action.ROLLBACK:
            return
        for undone in _listed_ids(entry, "undid"):
            self._by[undone] = str(entry.data.get("rollback")), entry_name(entry), entry.id
        for redone in _listed_ids(entry, "redid"):
            self._by.pop(redone, None)

    def compare(self, agent: Agent) -> None:
        left = dict(self._by)
        for model in (Refinement, Rollback):
            rows = select(model.id, model.undone_by).where(model.agent_id == agent.id, model.undone_by.is_not(None))
            for number, undone_by in db.session.execute(rows.order_by(model.id)).tuples():
                said, entry, entry_id = left.pop(number, ("", "no entry", None))
                if undone_by != said:
                    what = f"{model.__name__.lower()} {number}"
                    raise Difference(f"{what} counts as undone, but {entry} undid it so.", entry_id)
        for number, (_, entry, entry_id) in left.items():
            raise Difference(f"{entry} undid {number}, but its row does not say so.", entry_id)


class ReplayedAttention:
    """By entry and kind what called for attention, and by item who has seen it."""

    def __init__(self) -> None:
        self._called: dict[tuple[int, str], dict[str, Any]] = {}
        self._seen: dict[int, tuple[str, datetime]] = {}

    def take(self, entry: AuditLog) -> None:
        try:
            if entry.action == Action.ATTENTION_SEEN:
                self._seen[int(entry.data["item"])] = entry.actor, entry.at
            elif entry.action == Action.ATTENTION_UNSEEN:
                self._seen.pop(int(entry.data["item"]), None)
            elif entry.action == Action.REFINEMENT_END:
                self._settle(entry)
            self._called |= {(entry.id, kind): facts_called_for(entry) for kind in attention_kinds_for(entry)}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise entry_difference(entry, "does not say what an entry of its kind says.") from None

    def _settle(self, entry: AuditLog) -> None:
        """What earlier ends called for, and this one answers."""
        status = Status(entry.data["status"])
        for (_, kind), facts in self._called.items():
            if facts["settled_by"] is None and status in SETTLED_BY.get(AttentionKind(kind), ()):
                facts["settled_by"] = entry.refinement_id

    def compare(self, agent: Agent) -> None:
        left, unseen = dict(self._called), dict(self._seen)
        rows = select(AttentionItem).where(AttentionItem.agent_id == agent.id).order_by(AttentionItem.id)
        with stream_rows(rows) as found:
            for (item,) in found:
                named, entry_id = f"attention item {item.id}", item.entry_id
                called = left.pop((entry_id, item.kind), None)
                if called is None:
                    raise Difference(f"{named} is called for by no entry.", entry_id)
                for name, said in called.items():
                    if getattr(item, name) != said:
                        raise Difference(f"{name} of {named} is not what entry id {entry_id} says.", entry_id)
                if unseen.pop(item.id, (None, None)) != (item.seen_by, item.seen_at):
                    raise Difference(f"who has seen {named} is not what the log says.", entry_id)
        for entry_id, kind in left:
            raise Difference(f"entry id {entry_id} calls for attention ({kind}), but its row is gone.", entry_id)


class ReplayedActs:
    """By entry: which human acted on memories and when, and when the agent was told of it."""

    def __init__(self) -> None:
        self._acts: dict[int, tuple[str, datetime]] = {}
        self._told: dict[int, datetime] = {}

    def take(self, entry: AuditLog) -> None:
        if is_human_act(entry):
            self._acts[entry.id] = entry.actor, entry.at
        if entry.action != Action.AGENT_TOLD:
            return
        told = entry.data.get("entries", [])
        if not isinstance(told, list) or not set(told) <= set(self._acts):
            raise entry_difference(entry, "tells of what no human did.")
        self._told |= dict.fromkeys(told, entry.at)

    def compare(self, agent: Agent) -> None:
        left = dict(self._acts)
        with stream_rows(select(HumanAct).where(HumanAct.agent_id == agent.id).order_by(HumanAct.entry_id)) as found:
            for (act,) in found:
                named = f"entry id {act.entry_id}"
                if left.pop(act.entry_id, None) != (act.actor, act.at):
                    raise Difference(f"the human act of {named} is not what the log says.", act.entry_id)
                if act.told_at != self._told.get(act.entry_id):
                    raise Difference(f"when the agent was told of {named} is not what the log says.", act.entry_id)
        for entry_id in left:
            raise Difference(f"of entry id {entry_id} the agent would never be told: its row is gone.", entry_id)


class ReplayedErasures:
    """By memory: when it was erased, and by which entry."""

    def __init__(self) -> None:
        self._erased: dict[int, tuple[datetime, str, int]] = {}

    def take(self, entry: AuditLog) -> None:
        if entry.action == Action.ERASE:
            number = entry.data.get("id")
            if not isinstance(number, int):
                raise entry_difference(entry, "does not say what an entry of its kind says.")
            self._erased[number] = entry.at, entry_name(entry), entry.id

    def compare(self, agent: Agent) -> None:
        left = dict(self._erased)
        erased = (Memory.agent_id == agent.id, Memory.erased_at.is_not(None))
        rows = select(Memory.id, Memory.erased_at).where(*erased).order_by(Memory.id)
        for number, at in db.session.execute(rows).tuples():
            said, entry, entry_id = left.pop(number, (None, "no entry", None))
            if at != said:
                raise Difference(f"erased_at of memory {number} is not what {entry} says.", entry_id)
        for number, (_, entry, entry_id) in left.items():
            raise Difference(f"{entry} erased memory {number}, but its row does not say so.", entry_id)
        for owner in (MemoryText.memory_id, ContentKey.memory_id):
            there = select(owner).where(owner.in_(select(Memory.id).where(*erased))).order_by(owner).limit(1)
            for number in db.session.scalars(there):
                raise Difference(f"memory {number} was erased, but its text or its key is there again.")


def check_forgotten(agent: Agent) -> None:
    """Raises Difference when there are keys for an agent that was forgotten: somebody put them back."""
    if agent.forgotten_at is None:
        return
    mine = (each.agent_id == agent.id for each in (AgentKey, ContentKey))
    count = sum(db.session.scalar(select(func.count()).where(condition)) or 0 for condition in mine)
    if count:
        raise Difference(f"the agent was forgotten, but {count} of its keys are there again.")


def check_refinements(agent: Agent) -> None:
    """What is open was ended by no entry, and what ended did so as its entry says. Raises Difference."""
    ended_by = and_(AuditLog.refinement_id == Refinement.id, AuditLog.action == Action.REFINEMENT_END)
    rows = (
        select(Refinement, AuditLog)
        .options(load_only(Refinement.status, *_COUNTS))
        .outerjoin(AuditLog, ended_by)
        .where(Refinement.agent_id == agent.id)
        .order_by(Refinement.requested_at, Refinement.id)
    )
    asked: list[tuple[str, AuditLog]] = []
    with stream_rows(rows) as found:
        for refinement, entry in found:
            what = f"refinement {refinement.id}"
            if entry is None:
                if not refinement.is_open:
                    raise Difference(f"{what} is {refinement.status}, but no entry ended it.")
                continue
            if refinement.status != entry.data.get("status"):
                raise Difference(
                    f"{what} is {refinement.status}, but {entry_name(entry)} ended it otherwise.", entry.id
                )
            if (refinement.stats, refinement.calls) != (entry.data.get("stats"), entry.data.get("calls")):
                raise Difference(f"the counts of {what} are not what {entry_name(entry)} says.", entry.id)
            if "questions" in entry.data:
                asked.append((refinement.id, entry))
    for refinement_id, entry in asked:
        if entry.data["questions"] != digest_of_questions(refinement_id):
            raise Difference(
                f"what refinement {refinement_id} was asked is not what {entry_name(entry)} says.", entry.id
            )


def check_questions(agent: Agent) -> None:
    """Questions are of refinements that asked some, and quote their memory until it is erased. Raises Difference."""
    mine = AskedLoss.agent_id == agent.id
    asked = select(AskedLoss.refinement_id).where(mine).join(Refinement, Refinement.id == AskedLoss.refinement_id)
    for refinement_id in db.session.scalars(asked.where(Refinement.specifics_missing == 0).limit(1)):
        raise Difference(f"refinement {refinement_id} asked about no loss, but a question of it is there.")
    emptied = select(AskedLoss.memory_id).where(mine, AskedLoss.words.is_(None))
    emptied = emptied.join(Memory, Memory.id == AskedLoss.memory_id).where(Memory.erased_at.is_(None))
    for number in db.session.scalars(emptied.limit(1)):
        raise Difference(f"the words of a question about memory {number} were removed, but it was not erased.")
    quoted = select(AskedLoss.memory_id).where(mine, AskedLoss.words.is_not(None))
    quoted = quoted.join(Memory, Memory.id == AskedLoss.memory_id).where(Memory.erased_at.is_not(None))
    for number in db.session.scalars(quoted.limit(1)):
        raise Difference(f"memory {number} was erased, but the words of a question about it are there again.")


def check_snapshots(agent: Agent) -> None:
    """Each names the entry of its snapshot, if it came so far. Raises Difference."""
    taken = and_(AuditLog.refinement_id == Refinement.id, AuditLog.action == Action.REFINEMENT_SNAPSHOT)
    wrong = select(Refinement.id).outerjoin(AuditLog, taken).where(Refinement.agent_id == agent.id)
    wrong = wrong.where(Refinement.snapshot_entry_id.is_distinct_from(AuditLog.id)).order_by(Refinement.id).limit(1)
    for refinement_id in db.session.scalars(wrong):
        raise Difference(f"snapshot_entry_id of refinement {refinement_id} is not the entry of its snapshot.")


def check_rollbacks(agent: Agent) -> None:
    """Each has its entry, each entry of the Time Machine its row, and both say the same. Raises Difference."""
    rows = select(Rollback, AuditLog).outerjoin(AuditLog, AuditLog.id == Rollback.entry_id)
    with stream_rows(rows.where(Rollback.agent_id == agent.id).order_by(Rollback.entry_id)) as found:
        for rollback, entry in found:
            if entry is None or entry.action != Action.ROLLBACK or entry.chain != agent.chain:
                raise Difference(f"rollback {rollback.id} has no entry in the log.", rollback.entry_id)
            if not _is_as_said(rollback, entry):
                raise Difference(f"rollback {rollback.id} is not what {entry_name(entry)} says.", entry.id)
    lone = select(AuditLog).where(AuditLog.chain == agent.chain, AuditLog.action == Action.ROLLBACK)
    its_own = exists().where(Rollback.entry_id == AuditLog.id, Rollback.agent_id == agent.id)
    for entry in db.session.scalars(lone.where(~its_own).limit(1)):
        raise entry_difference(entry, "is a rollback whose row is gone.")


_COUNTS = [
    getattr(Refinement, name)
    for name in (
        *(*NOUNS, "memories_merged", "memories_before", "memories_after", "refused", "calls"),
        *("specifics_checked", "specifics_missing", "specifics_restored", "specifics_confirmed"),
    )
]


def _is_as_said(rollback: Rollback, entry: AuditLog) -> bool:
    data, by = entry.data, rollback.requested_by
    row = rollback.said(reversed=rollback.reversed, account=rollback.account_id, at=rollback.at, by=by)
    counted = sum(data.get(name, 0) for name in ("restored", "removed"))
    written = {"reversed": counted, "account": entry.account_id, "at": entry.at, "by": entry.actor}
    return row == {name: data.get(name) for name in row} | written


def _listed_ids(entry: AuditLog, name: str) -> list[str]:
    found = entry.data.get(name)
    return [str(each) for each in found] if isinstance(found, list) else []
