"""Heads: the last hash of every chain, to be kept where nobody who can change the database can change them too.

Whoever owns the database can cut the end of a log off, or write it anew with hashes that fit. A head that was exported
before tells: the entry of its number must still be there, with its hash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, select

from app.errors import Invalid, WhetstoneError
from app.extensions import db, reading
from app.history.chain import Difference, chain_of, numbered_entry
from app.models import Account, Agent, AuditLog
from app.models.base import iso

_CHAIN = re.compile(r"agent:[0-9a-f-]{36}|account:[1-9][0-9]{0,17}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
_HIGHEST = 2**63 - 1


class HeadsDiffer(WhetstoneError):
    """A log does not end as the row of its owner says. Run `./whetstone verify`; no heads were exported."""

    code = "heads_differ"


@dataclass(frozen=True)
class Head:
    """The last entry of a chain. `hash` in hex, `at` ISO 8601; the names of agent and account are there for people."""

    chain: str
    sequence: int
    hash: str
    at: str | None = None
    agent: str | None = None
    account: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def export_heads(account_id: int | None = None) -> list[Head]:
    """The heads of an account and its agents, or of all. Raises HeadsDiffer for a log that ends otherwise."""
    with reading():
        return [*_heads_of(Account, account_id), *_heads_of(Agent, account_id)]


def parse_heads(lines: Iterable[str]) -> list[Head]:
    """What `./whetstone audit heads --json` printed, maybe on several days. Raises Invalid and names the line."""
    heads = [_parse_head(line, count) for count, line in enumerate(lines, 1) if line.strip()]
    if not heads:
        raise Invalid("There are no heads in it; `./whetstone audit heads --json` prints them.")
    return sorted(heads, key=lambda head: (head.chain, head.sequence))


def check_heads(heads: Iterable[Head]) -> None:
    """Of heads as `parse_heads` orders them: raises Difference for the first that the log does not hold any more."""
    last_matching_head: Head | None = None
    for head in heads:
        _check_head(head, last_matching_head if last_matching_head and last_matching_head.chain == head.chain else None)
        last_matching_head = head


def _heads_of(model: type[Agent | Account], account_id: int | None) -> Iterator[Head]:
    is_head = and_(AuditLog.chain == chain_of(model), AuditLog.sequence == model.audit_sequence)
    rows = (
        select(chain_of(model), model.audit_sequence, model.audit_head, AuditLog.hash, AuditLog.at, model.name)
        .add_columns(Account.name)
        .outerjoin(AuditLog, is_head)
        .where(model.audit_sequence > 0)
        .order_by(model.id)
    )
    if model is Agent:
        rows = rows.join(Account, Account.id == Agent.account_id)
    if account_id is not None:
        rows = rows.where(Account.id == account_id)
    for chain, sequence, head, found, at, name, account in db.session.execute(rows.execution_options(yield_per=500)):
        if found != head:
            raise HeadsDiffer(f"{name} ({chain}): the log does not end as its row says. {HeadsDiffer.__doc__}")
        yield Head(chain, sequence, head.hex(), iso(at), name if model is Agent else None, account)


def _parse_head(line: str, count: int) -> Head:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Invalid(f"Line {count} is not a head: `./whetstone audit heads --json` prints one JSON object a line.")
    chain, sequence, hash_, at = (said.get(name) for name in ("chain", "sequence", "hash", "at"))
    if not isinstance(chain, str) or not _CHAIN.fullmatch(chain):
        raise Invalid(f"Line {count} names no chain, such as account:1 or agent:UUID.")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 1 <= sequence <= _HIGHEST:
        raise Invalid(f"Line {count} has no sequence, a whole number from 1 on.")
    if not isinstance(hash_, str) or not _HASH.fullmatch(hash_):
        raise Invalid(f"Line {count} has no hash, 64 hexadecimal digits.")
    return Head(chain, sequence, hash_, at if isinstance(at, str) and _MOMENT.fullmatch(at) else None)


def _check_head(head: Head, last_matching_head: Head | None) -> None:
    found = _last_entry(head.chain, AuditLog.sequence == head.sequence)
    if found is not None and found[2] == bytes.fromhex(head.hash):
        return
    if found is not None:
        since = f"after entry {last_matching_head.sequence}" if last_matching_head else "at it or before it"
        entry = numbered_entry(found[1], found[0])
        sentence = f"{entry} has another hash than its exported head: {since}, the log was rewritten."
    elif (last := _last_entry(head.chain)) is not None:
        end = numbered_entry(last[1], last[0])
        sentence = f"entry {head.sequence} is missing, whose head was exported: the log ends at {end}."
    else:
        sentence = f"the whole chain is missing, of which entry {head.sequence} was exported."
    raise _chain_difference(head.chain, sentence, found[0] if found else None)


def _last_entry(chain: str, *conditions: ColumnElement[bool]) -> tuple[int, int, bytes] | None:
    """Id, sequence and hash of the last entry of a chain that meets the conditions."""
    query = select(AuditLog.id, AuditLog.sequence, AuditLog.hash).where(AuditLog.chain == chain, *conditions)
    return db.session.execute(query.order_by(AuditLog.sequence.desc()).limit(1)).tuples().first()


def _chain_difference(chain: str, sentence: str, entry_id: int | None) -> Difference:
    agent = select(Agent.id, Agent.name).where(Agent.uuid == chain.removeprefix("agent:"))
    for agent_id, name in db.session.execute(agent).tuples():
        return Difference(f"{name} ({chain}): {sentence}", agent_id=agent_id, entry_id=entry_id)
    return Difference(f"{chain}: {sentence}", entry_id=entry_id)
