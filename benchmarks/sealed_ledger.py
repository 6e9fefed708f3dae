"""A ledger of any length for benchmarks: memories that open with the agent's keys, written past the rules in bulk.

One memory is saved by the product; the others copy its rows, each with a text and a key of its own. The totals follow;
no entry tells of them, so that `verify` would not like them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import text

from app.extensions import WRITES, db
from app.models import Agent, Memory, MemoryState
from app.models.memory_text import ContentKey, MemoryText
from app.silo import AgentKeys
from benchmarks.bulk import aside, set_sequence
from benchmarks.scratch import is_sqlite
from tests.support.factories import remember

AT_ONCE = 10_000
TABLES = (Memory, MemoryText, ContentKey, MemoryState)


def text_of(number: int) -> str:
    """All of one length, so that all weigh the same."""
    return f"Memory number {number:08}: we spoke about the harbour and the price of tin on that day."


def write_ledger(agent: Agent, keys: AgentKeys, memories: int) -> list[int]:
    """Returns the ids, of which the first is the product's own."""
    (first,) = remember(agent, text_of(0))
    ids = range(first + 1, first + memories)
    for start in range(0, len(ids), AT_ONCE):
        rows = list(_sealed(keys, first, ids[start : start + AT_ONCE]))
        for model in TABLES:
            with aside(model.__tablename__), db.engine.execution_options(**WRITES).begin() as connection:
                connection.execute(text(_copy(model)), rows)
    tokens = db.session.get_one(Memory, first).token_estimate
    with db.engine.execution_options(**WRITES).begin() as connection:
        connection.execute(text(_TOTALS), {"count": len(ids), "tokens": tokens * len(ids), "agent": agent.id})
    set_sequence("memories")
    db.session.rollback()
    db.session.expire_all()
    return [first, *ids]


def _sealed(keys: AgentKeys, first: int, ids: Sequence[int]) -> Iterator[dict[str, Any]]:
    for number in ids:
        sealed = keys.seal_memory(number, text_of(number - first))
        whole, content_hash, content_key = sealed.check_whole()
        said = {"id": number, "digest": sealed.digest, "sealed": whole.at_rest, "hash": content_hash}
        yield said | {"key": content_key, "first": first}


def _copy(model: type[Any]) -> str:
    names = [column.name for column in model.__table__.columns]
    own = {"content_digest": ":digest", "content_hash": ":hash", "sealed": ":sealed", "memory_id": ":id"}
    if model is ContentKey:
        own["sealed"] = ":key"
    if model is Memory:
        own["id"] = ":id"
    values = ", ".join(_typed(own[name]) if name in own else name for name in names)
    key = "id" if model is Memory else "memory_id"
    table = model.__tablename__
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} WHERE {key} = :first"


def _typed(name: str) -> str:
    """PostgreSQL has to know what a parameter in a SELECT is."""
    if is_sqlite():
        return name
    return f"CAST({name} AS {'bigint' if name == ':id' else 'bytea'})"


_TOTALS = (
    "UPDATE agents SET core_count = core_count + :count, core_token_usage = core_token_usage + :tokens"
    " WHERE id = :agent"
)
