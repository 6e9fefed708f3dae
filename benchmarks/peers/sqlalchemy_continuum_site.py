"""Runs in the peer's environment: SQLAlchemy-Continuum's versioned update of one text row, one commit each."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.orm import Session, configure_mappers, declarative_base
from sqlalchemy_continuum import make_versioned

make_versioned(user_cls=None)
Base = declarative_base()


class Memory(Base):
    """As many columns as a memory of the product has."""

    __tablename__ = "memories"
    __versioned__ = {}  # noqa: RUF012 - as its documentation has it

    id = sa.Column(sa.Integer, primary_key=True)
    agent_id = sa.Column(sa.Integer, nullable=False, index=True)
    type = sa.Column(sa.String(8), nullable=False)
    content = sa.Column(sa.Text, nullable=False)
    token_estimate = sa.Column(sa.Integer, nullable=False)
    constitutional = sa.Column(sa.Boolean, nullable=False)
    immutable = sa.Column(sa.Boolean, nullable=False)
    tags = sa.Column(sa.JSON, nullable=False)
    origin_at = sa.Column(sa.DateTime, nullable=False)
    other_dates = sa.Column(sa.JSON, nullable=False)
    source = sa.Column(sa.String(100), nullable=False)
    created_at = sa.Column(sa.DateTime, nullable=False)
    updated_at = sa.Column(sa.DateTime, nullable=False)
    discarded_at = sa.Column(sa.DateTime)


configure_mappers()


def main() -> None:
    engine = sa.create_engine(sys.argv[1])
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda connection, _: connection.executescript(sys.argv[2]))
    Base.metadata.create_all(engine)
    session = Session(engine)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_fill(session, asked) if asked["do"] == "fill" else _update(session, asked)), flush=True)


def _fill(session: Session, asked: dict) -> dict:
    at = datetime.now(UTC).replace(tzinfo=None)
    for number, content in enumerate(asked["contents"], 1):
        row = {"agent_id": 1, "type": "core", "content": content, "token_estimate": len(content) // 4}
        row |= {"constitutional": False, "immutable": False, "tags": [], "other_dates": [], "source": "agent"}
        session.add(Memory(id=number, origin_at=at, created_at=at, updated_at=at, **row))
    session.commit()
    return {"rows": len(asked["contents"])}


def _update(session: Session, asked: dict) -> dict:
    """Milliseconds of each: loaded, changed, committed."""
    spent, clock = [], getattr(time, asked["clock"])
    for number, content in asked["changes"]:
        began = clock()
        memory = session.get(Memory, number)
        memory.content, memory.token_estimate = content, len(content) // 4
        memory.updated_at = datetime.now(UTC).replace(tzinfo=None)
        session.commit()
        spent.append((clock() - began) * 1000)
    kept = session.scalar(sa.text("SELECT count(*) FROM memories_version"))
    session.rollback()
    return {"ms": spent, "versions": kept}


main()
