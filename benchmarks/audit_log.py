"""An audit log of any length for benchmarks, by bulk insert: agents that are refined side by side, people in between.

The rows have the shape of the product's own; their hashes are random bytes, so that `verify` would not like them.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, select, text

from app.extensions import db, end_reading, writing
from app.models import COMMAND_LINE, Account, Agent, AuditLog, Refinement, Role, User
from app.models.user import OWNER
from benchmarks.bulk import multiply_row, set_sequence
from benchmarks.scratch import is_sqlite

AGENTS = 1_000
OPEN_AT_ONCE = 8
"""Refinements that run side by side, so that their entries stand mixed in the log."""

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=11)
EVERY = {"sign_in": 40, "memory_constitutional_toggle": 150, "rare person": 20_000, "agent_token_revoke": 25_000}
"""One entry of a kind among so many of all."""

WRITTEN = 200_000
"""So many entries are written one by one; a longer log repeats them, later and with refinements of their own."""

OFTEN, RARE = "often@example.org", "rare@example.org"
STEPS = (
    ("memory_refinement_start", "system", "beat"),
    ("memory_dedup", "system", "worker"),
    ("memory_refinement_consent", "agent", ""),
    ("memory_refinement_snapshot", "system", "worker"),
    ("memory_refinement_consolidate", "agent", ""),
    ("memory_refinement_update", "agent", ""),
    ("memory_refinement_update", "agent", ""),
    ("memory_refinement_delete", "agent", ""),
    ("memory_refinement_consolidate", "agent", ""),
    ("memory_refinement_protect", "agent", ""),
    ("memory_refinement_complete", "agent", ""),
    ("memory_refinement_end", "system", "worker"),
)

_REFINEMENT = (
    *("id", "account_id", "agent_id", "trigger", "started_by", "mode", "status", "model_id", "threshold", "cap"),
    *("mutations", "consolidated", "updated", "deleted", "protected", "deduplicated", "deduplicated_tokens", "turns"),
    *("calls", "refused"),
    *("prompt_tokens", "completion_tokens", "cost_usd", "mass_before", "kept_mass", "mass_after"),
    *("memories_merged", "specifics_checked", "specifics_missing", "specifics_restored", "specifics_confirmed"),
    *("confirmed_losses", "max_confirmed_losses", "requested_at", "ended_at"),
)
_ENTRY = (
    *("id", "chain", "sequence", "account_id", "agent_id", "actor_kind", "actor", "user_id", "action", "subject"),
    *("refinement_id", "data", "at", "previous_hash", "hash"),
)

Values = Sequence[Any]


def write_log(entries: int, *, account_id: int = 1) -> str:
    """Returns the id of some refinement in its middle. The clock must stand before `BEGAN`."""
    agents = _agents(account_id)
    people = {email: _user(account_id, email) for email in (OFTEN, RARE)}
    made, same = (_Writer(account_id, agents, people) for _ in range(2))
    written = min(entries, WRITTEN)
    for _ in made.rows(written):
        pass  # only to know the refinements: their rows must be there first
    _insert("refinements", _REFINEMENT, made.refinements)
    _insert("audit_log", _ENTRY, same.rows(written))
    end_reading()
    if entries > written:
        _repeat(written, round(entries / written) - 1)
    set_sequence("audit_log")
    if db.engine.dialect.name == "postgresql":
        with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE audit_log"))  # as autovacuum does by itself, a minute later
    return str(made.refinements[len(made.refinements) // 2][0])


def _repeat(written: int, times: int) -> None:
    """By one statement a table: the whole log once more, so many times, each behind the one before."""
    sqlite = is_sqlite()
    number = "printf('%08x', n)" if sqlite else "lpad(to_hex(n), 8, '0')"
    seconds = int(STEP.total_seconds()) * written
    later = (
        f"strftime('%Y-%m-%d %H:%M:%f000', t.at, '+' || (n * {seconds}) || ' seconds')"
        if sqlite
        else f"t.at + n * interval '{seconds} seconds'"
    )
    own_id = f"{number} || substr(t.{{}}, 9)"
    multiply_row(Refinement, "true", times, {"id": own_id.format("id")})
    moved = {name: f"t.{name} + n * {written}" for name in ("id", "sequence")}
    moved |= {"at": later, "refinement_id": own_id.format("refinement_id")}
    multiply_row(AuditLog, "chain = 'bulk'", times, moved)


class _Writer:
    """Entries in the order of time."""

    def __init__(self, account_id: int, agents: Sequence[tuple[int, str]], people: dict[str, int]) -> None:
        self._account_id, self._agents, self._people = account_id, agents, people
        self._random = random.Random(7)
        self._first = db.session.scalar(select(func.max(AuditLog.id))) or 0
        self._head = b""
        self.refinements: list[Values] = []

    def rows(self, count: int) -> Iterator[Values]:
        running = [self._refinement() for _ in range(OPEN_AT_ONCE)]
        for number in range(1, count + 1):
            at = BEGAN + STEP * number
            special = next((name for name, every in EVERY.items() if number % every == 0), "")
            if special:
                yield self._by_a_person(number, at, special)
                continue
            which = self._random.randrange(OPEN_AT_ONCE)
            refinement_id, agent, step = running[which]
            yield self._of_a_refinement(number, at, refinement_id, agent, step)
            running[which] = (refinement_id, agent, step + 1) if step + 1 < len(STEPS) else self._refinement()

    def _refinement(self) -> tuple[str, tuple[int, str], int]:
        agent, number = self._random.choice(self._agents), str(uuid.UUID(int=self._random.getrandbits(128), version=4))
        who = (number, self._account_id, agent[0], "weekly", "system:beat", "full", "completed", "m")
        counts = (7500, 10, 5, 2, 2, 1, 1, 1, 40, 5, 9, "{}", 9000, 900, 0, 900, 800, 810)
        self.refinements.append((*who, *counts, 2, 9, 0, 0, 0, 0, 3, BEGAN, BEGAN))
        return number, agent, 0

    def _of_a_refinement(
        self, number: int, at: datetime, refinement_id: str, agent: tuple[int, str], step: int
    ) -> Values:
        action, kind, name = STEPS[step]
        data = {"id": number, "tokens": [40, 31], "retention": "0.9312"}
        actor = f"{kind}:{name or agent[1]}"
        return self._entry(number, at, agent[0], kind, actor, None, action, f"memory:{number}", refinement_id, data)

    def _by_a_person(self, number: int, at: datetime, special: str) -> Values:
        email = RARE if special == "rare person" else OFTEN
        action = "sign_in" if special == "rare person" else special
        agent_id = None if action == "sign_in" else self._random.choice(self._agents)[0]
        data = {"address": "127.0.0.1"}
        by = ("user", f"user:{email}", self._people[email])
        return self._entry(number, at, agent_id, *by, action, f"user:{self._people[email]}", None, data)

    def _entry(self, number: int, at: datetime, agent_id: int | None, *rest: Any) -> Values:
        *said, data = rest
        previous, self._head = self._head, self._random.randbytes(32)
        return (
            *(self._first + number, "bulk", number, self._account_id, agent_id, *said, json.dumps(data)),
            *(at, previous, self._head),
        )


def _agents(account_id: int) -> list[tuple[int, str]]:
    with writing():
        Account.lock(account_id)
        made = [
            Agent.create(account_id, name=f"agent-{number}", model_id="whetstone/offline", by=COMMAND_LINE)
            for number in range(1, AGENTS + 1)
        ]
    return [(agent.id, agent.name) for agent in made]


def _user(account_id: int, email: str) -> int:
    with writing() as session:
        user = User(email=email, password="none", active=True, fs_uniquifier=email, account_id=account_id)
        user.roles = [session.scalar(select(Role).where(Role.name == OWNER)) or Role(name=OWNER)]
        session.add(user)
    return user.id


def _insert(table: str, columns: Sequence[str], rows: Iterable[Values]) -> None:
    """SQLite takes many rows a statement, PostgreSQL a COPY."""
    connection = db.engine.raw_connection()
    cursor = connection.cursor()
    names = ", ".join(columns)
    if db.engine.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        cursor.execute("BEGIN IMMEDIATE")
        cursor.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", map(_for_sqlite, rows))
        cursor.execute("COMMIT")
    else:
        with cursor.copy(f"COPY {table} ({names}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        connection.commit()
    connection.close()


def _for_sqlite(row: Values) -> Values:
    """Times as SQLAlchemy stores them."""
    return [f"{value:%Y-%m-%d %H:%M:%S.%f}" if isinstance(value, datetime) else value for value in row]
