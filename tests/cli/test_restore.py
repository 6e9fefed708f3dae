"""After a restore from a backup: everything stops, and one command goes on, with what the backup must not undo."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import select

from app.config import Settings
from app.extensions import db, writing
from app.history.erasing import erase_memory
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.tokens import revoke_token
from app.models import COMMAND_LINE, Agent, AgentToken, Memory, MemoryText
from app.models.statement_log import LogBroken
from app.silo import SealBroken
from tests.cli.conftest import Whetstone
from tests.silo.holding import give_token, texts
from tests.support.databases import SERVER
from tests.support.factories import make_agent, remember

pytestmark = pytest.mark.skipif(bool(SERVER), reason="a file is put back; what is done then is the same on a server")


def back_up(settings: Settings, to: Path) -> None:
    with sqlite3.connect(settings.data / "whetstone.db") as database:
        database.execute("VACUUM INTO ?", (str(to),))


def put_back(settings: Settings, backup: Path) -> None:
    db.session.remove()
    db.engine.dispose()
    for suffix in ("", "-wal", "-shm"):
        (settings.data / f"whetstone.db{suffix}").unlink(missing_ok=True)
    shutil.copyfile(backup, settings.data / "whetstone.db")


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, "Ann likes tea.", "Bob likes rum.")
    return made


def test_without_a_restore_there_is_nothing_to_accept(agent: Agent, whetstone: Whetstone) -> None:
    said = whetstone("restore", "accept", "--yes")
    assert (said.status, "Nothing was changed" in said.err) == (3, True)


def test_a_restored_backup_opens_nothing_until_it_is_accepted(
    app: Flask, agent: Agent, settings: Settings, whetstone: Whetstone, tmp_path: Path
) -> None:
    token, (_, second), number = give_token(agent), ids(agent), agent.id
    back_up(settings, tmp_path / "backup.db")
    with writing():
        revoke_token(Agent.lock(number), token.public_id, by=COMMAND_LINE)
    erase_memory(number, second, by=COMMAND_LINE, reason="it was asked for")
    give_token(db.session.get_one(Agent, number))

    put_back(settings, tmp_path / "backup.db")
    with pytest.raises(LogBroken, match="restore accept"):
        open_keys(db.session.get_one(Agent, number))
    told = whetstone("restore", "accept")
    assert (told.status, "Nothing was changed yet" in told.out) == (0, True)
    with pytest.raises(LogBroken):
        open_keys(db.session.get_one(Agent, number))

    done = whetstone("restore", "accept", "--yes", "--json")

    assert (done.status, done.json["accepted"]) == (0, True)
    assert done.json["again"] == {"token-ended": 1, "exception-ended": 0, "erasure": 1}
    db.session.rollback()
    row = db.session.scalars(select(AgentToken).where(AgentToken.public_id == token.public_id)).one()
    assert row.revoked_at is not None
    erased = db.session.get_one(Memory, second, populate_existing=True)
    assert erased.erased_at is not None
    assert db.session.scalar(select(MemoryText).where(MemoryText.memory_id == second)) is None
    assert "Ann likes tea." in texts(db.session.get_one(Agent, number))
    with pytest.raises(SealBroken):
        open_keys(db.session.get_one(Agent, number), token)
    assert verify().ok, verify().first_problem
    assert whetstone("restore", "accept").status == 3


def test_who_holds_the_log_meanwhile_goes_on_with_the_accepted_one(
    app: Flask, agent: Agent, settings: Settings, whetstone: Whetstone, tmp_path: Path
) -> None:
    """A worker that ran all the time: it stops, then goes on without a restart."""
    number = agent.id
    back_up(settings, tmp_path / "backup.db")
    give_token(agent)
    put_back(settings, tmp_path / "backup.db")
    with pytest.raises(LogBroken):
        texts(db.session.get_one(Agent, number))
    assert whetstone("restore", "accept", "--yes").status == 0
    db.session.rollback()
    assert texts(db.session.get_one(Agent, number)) == ["Ann likes tea.", "Bob likes rum."]


def ids(agent: Agent) -> list[int]:
    found = list(db.session.scalars(select(Memory.id).where(Memory.agent_id == agent.id).order_by(Memory.id)))
    db.session.rollback()
    return found
