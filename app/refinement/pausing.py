"""Pausing and resuming many agents by one act, and taking back exactly what that act changed.

Each entry of the audit log names its act, so that nothing else has to be kept of it: whom it changed, and whether
somebody paused or resumed one of them since, is read there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from sqlalchemy import func, select

from app.errors import NotFound
from app.extensions import db, now, writing
from app.models import Action, Actor, Agent, AuditLog
from app.models.base import lock_row

BATCH = 500
"""Agents that one transaction changes at most: others write in between."""

UNDO_WITHIN = timedelta(hours=24)

_ACTIONS = (Action.AGENT_PAUSE, Action.AGENT_RESUME)


class UndonePausing(NamedTuple):
    """`paused`: what those taken back are now. `left` were paused or resumed by somebody since."""

    paused: bool
    changed: int
    left: int


def set_paused(account_id: int, ids: Sequence[int], paused: bool, *, by: Actor, act: str) -> int:
    """Pause or resume those of the account that are not so already, `BATCH` a transaction; returns how many changed.

    `act` names what these changes have in common. Forgotten agents are left out.
    """
    return sum(_change_batch(account_id, batch, paused, by=by, act=act) for batch in _batches(sorted(ids)))


def undo_pausing(account_id: int, act: str, *, by: Actor, new_act: str) -> UndonePausing:
    """Give back to each agent that the act changed what it was before, unless it was paused or resumed since.

    Raises NotFound for an act of which the account's log of the last day knows nothing.
    """
    entries = _entries_of(account_id, act)
    if not entries:
        raise NotFound("There is no such act of the last 24 hours in this account.", "Nothing was changed.")
    paused = {action for action, _ in entries.values()} == {Action.AGENT_RESUME}
    newest = {agent_id: entry_id for agent_id, (_, entry_id) in entries.items()}
    changed = sum(
        _change_batch(account_id, batch, paused, by=by, act=new_act, newest=newest) for batch in _batches(newest)
    )
    return UndonePausing(paused, changed, len(newest) - changed)


def _entries_of(account_id: int, act: str) -> dict[int, tuple[Action, int]]:
    """By agent, in the order of their ids: what the act did, and the id of its entry."""
    lately = (AuditLog.action.in_(_ACTIONS), AuditLog.at >= now() - UNDO_WITHIN)
    query = select(AuditLog.agent_id, AuditLog.action, AuditLog.id).where(AuditLog.account_id == account_id, *lately)
    of_act = query.where(AuditLog.data["act"].as_string() == act).order_by(AuditLog.agent_id, AuditLog.id)
    found = db.session.execute(of_act).tuples()
    return {agent_id: (action, entry_id) for agent_id, action, entry_id in found if agent_id is not None}


def _change_batch(
    account_id: int, batch: list[int], paused: bool, *, by: Actor, act: str, newest: Mapping[int, int] | None = None
) -> int:
    """In one transaction. With `newest` only those whose newest pause or resumption is still that entry."""
    wanted = (Agent.account_id == account_id, Agent.paused.is_(not paused), Agent.forgotten_at.is_(None))
    query = select(Agent).where(Agent.id.in_(batch), *wanted).order_by(Agent.id)
    with writing() as session:
        agents = session.scalars(lock_row(query)).all()
        moved = _moved_since(batch, newest) if newest else set[int]()
        changed = [agent for agent in agents if agent.id not in moved]
        Agent.set_paused(account_id, changed, paused, by=by, act=act)
    return len(changed)


def _moved_since(batch: Sequence[int], newest: Mapping[int, int]) -> set[int]:
    """Those of which a later entry says that somebody paused or resumed them."""
    since = AuditLog.at >= now() - UNDO_WITHIN
    query = select(AuditLog.agent_id, func.max(AuditLog.id)).where(AuditLog.agent_id.in_(batch), since)
    last = db.session.execute(query.where(AuditLog.action.in_(_ACTIONS)).group_by(AuditLog.agent_id)).tuples()
    return {agent_id for agent_id, entry_id in last if agent_id is not None and entry_id > newest[agent_id]}


def _batches(ids: Iterable[int]) -> Iterator[list[int]]:
    left = iter(ids)
    while batch := list(islice(left, BATCH)):
        yield batch
