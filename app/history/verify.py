"""Verify: proves that the log was not altered and that it explains every memory, flag, setting and total as it stands.

An agent's chain is followed in short reads up to its end, because nothing of an append-only log changes any more; then
one snapshot holds the rest: the entries that came meanwhile, and the replay of all against the tables. So a long log
needs no long transaction, which would keep SQLite's WAL and PostgreSQL's dead rows from being cleaned up. What decides
who may read is compared with the log of statements as well (`statement_proof`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, select

from app.extensions import db, end_reading, is_sqlite
from app.history import replay
from app.history.chain import DAMAGE, Chain, Difference, differences_of, raise_unless_damage
from app.history.heads import Head, check_heads
from app.history.rows import ReplayedRows, check_strayed_rows
from app.history.statement_proof import (
    list_refused,
    prove_agent,
    prove_chain_head,
    prove_checkpoints,
    prove_leaves,
    prove_master_keys,
)
from app.history.states import check_memories, check_strays, check_unexplained
from app.models import Account, Action, Agent, AuditLog
from migrations.triggers import missing_triggers

Owner = TypeVar("Owner", Agent, Account)

Steps = Iterator[AuditLog]
"""A part of the proof: it gives every entry that it has proved, and raises Difference at the first that it can't."""


@dataclass(frozen=True)
class Verdict:
    """`entries` counts what was read; `first_problem` is a sentence that names the first difference, if any.

    `agent_id` and `entry_id` say where it is, as far as it is in one agent and in one entry. `forgotten` counts agents
    whose chain is read here, and whose content nobody can read any more. `warnings` are sentences about what is no
    difference and still to be looked at.
    """

    ok: bool
    entries: int
    first_problem: str | None = None
    agent_id: int | None = None
    entry_id: int | None = None
    forgotten: int = 0
    warnings: Sequence[str] = ()

    def as_json(self) -> dict[str, Any]:
        """The stable form that programs rely on."""
        said = {name: getattr(self, name) for name in ("ok", "entries", "first_problem", "forgotten")}
        return said | {"warnings": list(self.warnings)}


def verify(
    agent: Agent | None = None,
    account: Account | None = None,
    *,
    heads: Sequence[Head] = (),
    checkpoints: Sequence[bytes] = (),
) -> Verdict:
    """Check one agent, one account with its agents, or everything; and that `heads` stand and no trigger is gone.

    Writes nothing to the database. The whole log of statements, and whether it extends `checkpoints` (signed notes),
    only when everything is checked.
    """
    whose = []
    if agent is not None:
        whose = [Agent.id == agent.id]
        parts = [
            _agent_steps(agent.id),
            _statement_steps(agent.id),
            _check_snapshot(partial(check_unexplained, *whose)),
        ]
    elif account is not None:
        whose = [Agent.account_id == account.id]
        parts = [_account_steps(account.id), _check_snapshot(partial(check_unexplained, *whose))]
    else:
        accounts = _read_ids(select(Account.id).order_by(Account.id))
        parts = [*map(_account_steps, accounts), _rest_steps(partial(check_heads, heads), checkpoints)]
    if whose:
        parts.append(_check_snapshot(partial(check_heads, heads), _check_triggers))
    verdict = _make_verdict(chain(*parts))
    return replace(verdict, warnings=_list_warnings(*whose))


def verify_account(account_id: int) -> Verdict:
    """Check what belongs to one account, and nothing else; writes nothing."""
    return _make_verdict(_account_steps(account_id))


def verify_rest() -> Verdict:
    """Check what belongs to no account: rows of nobody, all leaves of the log of statements, the database's triggers.

    Writes nothing to the database.
    """
    return _make_verdict(_rest_steps())


def _list_warnings(*whose: ColumnElement[bool]) -> tuple[str, ...]:
    found = list_refused(*whose)
    end_reading()
    return found


def _rest_steps(more: Callable[[], None] = lambda: None, checkpoints: Sequence[bytes] = ()) -> Steps:
    yield from _check_snapshot(check_strays, check_strayed_rows, more, prove_master_keys)
    prove_leaves()
    prove_checkpoints(*checkpoints)
    yield from _check_snapshot(_check_triggers)


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
    """The log of statements comes last: of what the audit log says too, that names the entry and the column."""
    agent_ids = _read_ids(select(Agent.id).where(Agent.account_id == account_id).order_by(Agent.id))
    for agent_id in agent_ids:
        yield from _agent_steps(agent_id)
    rows = ReplayedRows()
    yield from _chain_steps(Account, account_id, [rows.take], [rows.compare])
    for agent_id in agent_ids:
        yield from _statement_steps(agent_id)


def _agent_steps(agent_id: int) -> Steps:
    settings, undoing, rows = replay.ReplayedSettings(), replay.ReplayedUndoing(), ReplayedRows()
    attention, acts, erasures = replay.ReplayedAttention(), replay.ReplayedActs(), replay.ReplayedErasures()
    checks = [
        settings.compare,
        replay.check_forgotten,
        erasures.compare,
        check_memories,
        replay.check_refinements,
        replay.check_questions,
        replay.check_snapshots,
        replay.check_rollbacks,
        attention.compare,
        acts.compare,
        rows.compare,
        undoing.compare,  # after the rows, which say it plainly when the one undone is gone
    ]
    takes = [reader.take for reader in (settings, undoing, attention, acts, erasures, rows)]
    yield from _chain_steps(Agent, agent_id, takes, checks)


def _statement_steps(agent_id: int) -> Steps:
    with _read_snapshot():
        agent = _load_owner(Agent, agent_id)
        with differences_of(agent):
            prove_agent(agent)
    yield from ()


def _chain_steps(
    model: type[Owner],
    owner_id: int,
    takes: Sequence[Callable[[AuditLog], None]],
    checks: Sequence[Callable[[Owner], None]],
) -> Steps:
    """Everything is given each entry, and checked when no more come."""
    owner = _load_owner(model, owner_id)
    followed = Chain(owner)

    def proved(rest: Callable[[], None]) -> Steps:
        with differences_of(owner):
            for entry in followed.follow(rest):
                for take in takes:
                    take(entry)
                yield entry

    yield from proved(rest=end_reading)
    with _read_snapshot():
        yield from proved(rest=lambda: None)  # between batches too, the snapshot has to last
        owner = _load_owner(model, owner_id)
        with differences_of(owner):
            followed.check_end(owner)
            prove_chain_head(owner)
            for check in checks:
                check(owner)


def _check_snapshot(*checks: Callable[[], None]) -> Steps:
    """A part that reads no entries."""
    with _read_snapshot():
        for check in checks:
            check()
    yield from ()


def _check_triggers() -> None:
    """Last, because a row that was altered says more than the trigger that was removed for it."""
    missing = sorted(missing_triggers(db.session.connection()))
    if missing:
        count = f"{len(missing)} triggers, first" if len(missing) > 1 else "the trigger"
        raise Difference(f"The database lacks {count} {missing[0]}: rows could be altered or removed.")


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
