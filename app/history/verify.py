"""Verify: proves that the log was not altered and that it explains every memory, flag, setting and total as it stands.

An agent's chain is followed in short reads up to its end, because nothing of an append-only log changes any more; then
one snapshot holds the rest: the entries that came meanwhile, and the replay of all against the tables. So a long log
needs no long transaction, which would keep SQLite's WAL and PostgreSQL's dead rows from being cleaned up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, select

from app.extensions import db, end_reading, is_sqlite
from app.history.acts import Acts
from app.history.attention import ReplayedAttention
from app.history.chain import DAMAGE, Chain, raise_unless_damage
from app.history.difference import Difference
from app.history.heads import Head, check_heads
from app.history.outcomes import Undone, check_refinements, check_rollbacks, check_snapshots
from app.history.replay import ReplayedSettings, check_forgotten
from app.history.rows import ReplayedRows, check_strayed_rows
from app.history.states import check_memories
from app.history.strays import check_strays, check_unexplained
from app.models import Account, Action, Agent, AuditLog
from migrations.triggers import missing_triggers

Owner = TypeVar("Owner", Agent, Account)

Steps = Iterator[AuditLog]
"""A part of the proof: it gives every entry that it has proved, and raises Difference at the first that it can't."""


@dataclass(frozen=True)
class Verdict:
    """`entries` counts what was read; `first_problem` is a sentence that names the first difference, if any.

    `agent_id` and `entry_id` say where it is, as far as it is in one agent and in one entry. `forgotten` counts agents
    whose chain is read here, and whose content nobody can read any more.
    """

    ok: bool
    entries: int
    first_problem: str | None = None
    agent_id: int | None = None
    entry_id: int | None = None
    forgotten: int = 0

    def as_json(self) -> dict[str, Any]:
        """The stable form that programs rely on."""
        return {
            "ok": self.ok,
            "entries": self.entries,
            "first_problem": self.first_problem,
            "forgotten": self.forgotten,
        }


def verify(agent: Agent | None = None, account: Account | None = None, *, heads: Sequence[Head] = ()) -> Verdict:
    """Check one agent, one account with its agents, or everything; and that `heads` stand and no trigger is gone.

    Writes nothing.
    """
    if agent is not None:
        parts = [_agent_steps(agent.id), _unexplained_steps(Agent.id == agent.id)]
    elif account is not None:
        parts = [_account_steps(account.id), _unexplained_steps(Agent.account_id == account.id)]
    else:
        parts = [*map(_account_steps, _read_ids(select(Account.id).order_by(Account.id))), _stray_steps()]
    return _make_verdict(chain(*parts, _head_steps(heads), _trigger_steps()))


def verify_account(account_id: int) -> Verdict:
    """Check what belongs to one account, and nothing else; writes nothing."""
    return _make_verdict(_account_steps(account_id))


def verify_rest() -> Verdict:
    """Check what belongs to no account: rows of nobody, and the database's triggers; writes nothing."""
    return _make_verdict(chain(_stray_steps(), _trigger_steps()))


def _make_verdict(steps: Steps) -> Verdict:
    entries = forgotten = 0
    try:
        for entry in steps:
            entries += 1
            forgotten += entry.action == Action.AGENT_FORGET
    except Difference as found:
        return Verdict(False, entries, str(found), found.agent_id, found.entry_id, forgotten)
    finally:
        db.session.expunge_all()
        end_reading()
    return Verdict(True, entries, forgotten=forgotten)


def _account_steps(account_id: int) -> Steps:
    for agent_id in _read_ids(select(Agent.id).where(Agent.account_id == account_id).order_by(Agent.id)):
        yield from _agent_steps(agent_id)
    followed, rows = Chain(_load_owner(Account, account_id)), ReplayedRows()

    def proved(rest: Callable[[], None]) -> Steps:
        for entry in followed.follow(rest):
            rows.take(entry)
            yield entry

    yield from proved(rest=end_reading)
    with _read_snapshot():
        yield from proved(rest=_keep_snapshot)
        account = _load_owner(Account, account_id)
        followed.check_end(account)
        rows.compare(account)


def _agent_steps(agent_id: int) -> Steps:
    agent = _load_owner(Agent, agent_id)
    followed, settings, undone = Chain(agent), ReplayedSettings(agent), Undone()
    calls, acts, rows = ReplayedAttention(agent), Acts(agent), ReplayedRows()

    def proved(rest: Callable[[], None]) -> Steps:
        for entry in followed.follow(rest):
            for reader in (settings, undone, calls, acts, rows):
                reader.take(entry)
            yield entry

    yield from proved(rest=end_reading)
    with _read_snapshot():
        yield from proved(rest=_keep_snapshot)
        agent = _load_owner(Agent, agent_id)
        followed.check_end(agent)
        settings.compare(agent)
        check_forgotten(agent)
        check_memories(agent)
        check_refinements(agent)
        check_snapshots(agent)
        check_rollbacks(agent)
        calls.compare(agent)
        acts.compare(agent)
        rows.compare(agent)
        undone.compare(agent)  # after the rows, which say it plainly when the one undone is gone


def _stray_steps() -> Steps:
    with _read_snapshot():
        check_strays()
        check_strayed_rows()
    yield from ()


def _unexplained_steps(whose: ColumnElement[bool]) -> Steps:
    with _read_snapshot():
        check_unexplained(whose)
    yield from ()


def _head_steps(heads: Sequence[Head]) -> Steps:
    check_heads(heads)
    yield from ()


def _trigger_steps() -> Steps:
    """Last, because a row that was altered says more than the trigger that was taken away for it."""
    missing = sorted(missing_triggers(db.session.connection()))
    if missing:
        count = f"{len(missing)} triggers, first" if len(missing) > 1 else "the trigger"
        raise Difference(f"The database lacks {count} {missing[0]}: rows could be altered or removed.")
    yield from ()


@contextmanager
def _read_snapshot() -> Iterator[None]:
    """What is read in it is of one moment. It blocks no writer."""
    end_reading()
    if not is_sqlite(db.session()):
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        db.session.connection(execution_options=options)
    try:
        yield
    finally:
        db.session.expunge_all()
        end_reading()


def _keep_snapshot() -> None:
    """Between batches, where the snapshot has to last."""


def _read_ids(query: Select[tuple[int]]) -> list[int]:
    found = list(db.session.scalars(query))
    end_reading()
    return found


def _load_owner(model: type[Owner], number: int) -> Owner:
    try:
        return db.session.get_one(model, number, populate_existing=True)
    except DAMAGE as error:
        raise_unless_damage(error)
        raise Difference(f"The row of {model.__name__.lower()} {number} can't be read: it was damaged.") from None
