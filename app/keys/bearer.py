"""Who presents a token: decides whether a bearer secret is a live one, and notes that it was used."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection, and_, bindparam, or_, select, text, update
from sqlalchemy.exc import OperationalError

from app.errors import DiskFull, Unavailable
from app.extensions import WRITES, db, end_reading, now
from app.keys.agent_keys import check_wrapped, open_keys
from app.models.agent import Agent
from app.models.key import AgentKey, AgentToken
from app.models.log_leaves import SIZE_OF_LOG
from app.models.statement_log import current_of
from app.prepared import Prepared
from app.silo import AgentKeys, TokenKey, WrappedKey, hash_token, open_agent_keys, parse_token

USED_EVERY = timedelta(minutes=1)
"""`last_used_at` is true to this; a write for each request would be one too many."""

PATIENCE_MS = 100
"""How long a request waits to note that its token was used. Where the database is busy or has no room,
the next one notes it."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Bearer:
    """A live token as it was presented: whose it is, what it may, and the agent's keys as they are sealed to it.

    `digests` are those keys by the log. `is_stated`: whether a worker has put the token into the log.
    """

    id: int
    agent_id: int
    agent_uuid: str
    public_id: str
    name: str
    scopes: list[str]
    last_used_at: datetime | None
    opener: TokenKey = field(repr=False)
    wrapped: Sequence[WrappedKey] = field(repr=False)
    digests: Mapping[tuple[str, int], str] = field(repr=False)
    is_stated: bool = True

    def open_keys(self) -> AgentKeys:
        """The agent's keys. Raises SealBroken where none are sealed to it yet, AgentStopped where others are."""
        if self.wrapped:
            check_wrapped(self.wrapped, self.digests, self.agent_id)
        return open_agent_keys(self.agent_uuid, self.wrapped, self.opener, renew=self._open_anew)

    def is_live(self) -> bool:
        """Whether it still opens anything: it was not revoked meanwhile, nor its agent forgotten."""
        live = select(AgentToken.id).join(Agent, Agent.id == AgentToken.agent_id)
        live = live.where(AgentToken.id == self.id, AgentToken.revoked_at.is_(None), Agent.forgotten_at.is_(None))
        return db.session.scalar(live) is not None

    def _open_anew(self) -> AgentKeys:
        return open_keys(db.session.get_one(Agent, self.agent_id), self.opener)


def authenticate(bearer: str) -> Bearer | None:
    """The live token that this secret is, or None: malformed, unknown, revoked, or of a forgotten agent.

    Not to be called inside a transaction: it ends the session's own, and notes the use in a short one beside it.
    """
    parsed = parse_token(bearer)
    if parsed is None:
        return None
    public_id, opener = parsed
    reader = opener.public.hex
    rows = _FIND.fetch(db.session.connection(), {"public_id": public_id, "reader": reader})
    if not rows or not hmac.compare_digest(rows[0][0], hash_token(bearer)):
        return None
    (_, token_id, agent_id, name, last_used_at, uuid, size, *_), moment = rows[0], now()
    current = current_of(agent_id, uuid, size)
    if public_id in current.ended_tokens:
        return None
    stated = current.tokens.get(public_id)
    if last_used_at is None or last_used_at <= moment - USED_EVERY:
        _note_use(token_id, public_id, moment)
    wrapped = [WrappedKey(purpose, version, reader, sealed) for *_, purpose, version, sealed in rows if purpose]
    return Bearer(
        id=token_id,
        agent_id=agent_id,
        agent_uuid=uuid,
        public_id=public_id,
        name=name,
        scopes=list(stated.body["scopes"]) if stated else [],
        last_used_at=last_used_at,
        opener=opener,
        wrapped=wrapped,
        digests=current.digests(reader),
        is_stated=stated is not None,
    )


_FIND = Prepared(
    select(
        *(AgentToken.token_hash, AgentToken.id, AgentToken.agent_id, AgentToken.name, AgentToken.last_used_at),
        *(Agent.uuid, SIZE_OF_LOG.scalar_subquery(), AgentKey.purpose, AgentKey.version, AgentKey.sealed),
    )
    .join(Agent, Agent.id == AgentToken.agent_id)
    .outerjoin(AgentKey, and_(AgentKey.agent_id == AgentToken.agent_id, AgentKey.reader == bindparam("reader")))
    .where(
        AgentToken.public_id == bindparam("public_id"), AgentToken.revoked_at.is_(None), Agent.forgotten_at.is_(None)
    )
)
"""One row for each key that is sealed to the token, or one without a key."""


def _note_use(token_id: int, public_id: str, moment: datetime) -> None:
    """Once a minute, whoever else notes it at the same moment. It never fails a request."""
    end_reading()
    is_old = or_(AgentToken.last_used_at.is_(None), AgentToken.last_used_at <= moment - USED_EVERY)
    try:
        with _patient_for_a_moment() as connection:
            connection.execute(update(AgentToken).where(AgentToken.id == token_id, is_old).values(last_used_at=moment))
    except (OperationalError, DiskFull, Unavailable) as error:
        log.info("use of a token not noted", token=public_id, error=type(error).__name__)


@contextmanager
def _patient_for_a_moment() -> Iterator[Connection]:
    """A transaction that gives up where somebody else holds for longer what is to be written."""
    options = {**WRITES, "whetstone_patience_ms": PATIENCE_MS}
    with db.engine.connect().execution_options(**options) as connection, connection.begin():
        if connection.dialect.name != "sqlite":
            connection.execute(text(f"SET LOCAL lock_timeout = {PATIENCE_MS}"))
        yield connection
