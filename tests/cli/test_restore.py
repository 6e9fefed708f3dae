"""After a restore from a backup: everything stops, and one command goes on, with what the backup must not undo."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import select

from app.asking.replies import ConsentAnswer
from app.config import Settings
from app.extensions import db, writing
from app.grants.request import decide_grant, request_access, revoke_grant
from app.history.erasing import erase_memory
from app.history.restored import _do_again as do_again
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.provision import provision_keys
from app.keys.shredding import is_due
from app.keys.tokens import revoke_token
from app.models import COMMAND_LINE, AccessGrant, Agent, AgentToken, Memory, MemoryText, Refinement
from app.models.statement import Statement
from app.models.statement_errors import LogBroken
from app.models.user import ADMIN
from app.silo import SealBroken, TokenKey
from app.statements.checkpointing import make_checkpoint
from tests.cli.conftest import Whetstone
from tests.grants.conftest import WISH
from tests.silo.holding import give_token, texts
from tests.support.databases import SERVER
from tests.support.factories import begin, make_agent, make_user, remember, toggle

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


def test_what_had_ended_ends_again(
    app: Flask, agent: Agent, settings: Settings, whetstone: Whetstone, tmp_path: Path
) -> None:
    """An exception, a token and a memory that was constitutional; what had ended before the backup is left."""
    number, (first, _), eve = agent.id, ids(agent), make_agent("eve")
    before, after = give_token(eve), give_token(eve)
    end_token(eve, before)
    ann = make_user("ann@example.org", ADMIN)
    grant_id = request_access(number, WISH, for_user=ann, by=ann.actor).id
    decide_grant(grant_id, ConsentAnswer(granted=True), agent_id=number, by=COMMAND_LINE, keys=None)
    toggle(agent, first)
    run = begin(agent)
    make_checkpoint()
    db.session.rollback()
    back_up(settings, tmp_path / "backup.db")
    run.tool.execute("complete", summary="Fine.")
    revoke_grant(grant_id, by=ann.actor)
    toggle(agent, first, on=False)
    erase_memory(number, first, by=COMMAND_LINE, reason="it was asked for")
    end_token(eve, after)
    make_checkpoint()

    put_back(settings, tmp_path / "backup.db")
    done = whetstone("restore", "accept", "--yes", "--json")

    assert done.status == 0, done.err
    assert done.json["again"] == {"token-ended": 1, "exception-ended": 1, "erasure": 1}
    db.session.rollback()
    ended = db.session.scalars(select(AgentToken).where(AgentToken.public_id == after.public_id)).one()
    assert (ended.revoked_at is not None, ended.rekeyed_at is not None) == (True, True)
    assert db.session.get_one(AccessGrant, grant_id).status == "revoked"
    assert db.session.get_one(Refinement, run.claim.refinement_id).status == "stopped"
    assert texts(db.session.get_one(Agent, number)) == ["Bob likes rum."]
    assert not is_due()
    assert verify().ok, verify().first_problem
    assert make_checkpoint()


def end_token(agent: Agent, token: TokenKey) -> None:
    with writing():
        revoke_token(Agent.lock(agent.id), token.public_id, by=COMMAND_LINE)
    provision_keys(agent.id)


def test_what_was_interrupted_goes_on_when_it_is_run_again(
    app: Flask, agent: Agent, settings: Settings, whetstone: Whetstone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, tokens = agent.id, [give_token(agent), give_token(agent)]
    back_up(settings, tmp_path / "backup.db")
    for each in tokens:
        end_token(agent, each)
    put_back(settings, tmp_path / "backup.db")
    done = list[Statement]()

    def crash_at_the_second(said: Statement) -> None:
        if done:
            raise ZeroDivisionError
        done.append(said)
        do_again(said)

    with monkeypatch.context() as patch:
        patch.setattr("app.history.restored._do_again", crash_at_the_second)
        assert whetstone("restore", "accept", "--yes").status == 1
    assert "2 revocations of a token" in whetstone("restore", "accept").out
    assert whetstone("restore", "accept", "--yes").status == 0

    db.session.rollback()
    rows = db.session.scalars(select(AgentToken).where(AgentToken.agent_id == number))
    assert [row.revoked_at is not None for row in rows] == [True, True]
    assert verify().ok, verify().first_problem
    assert whetstone("restore", "accept").status == 3


def test_a_backup_that_went_on_by_itself_is_no_log_that_goes_on(
    app: Flask, agent: Agent, settings: Settings, whetstone: Whetstone, tmp_path: Path
) -> None:
    """It was put back on a machine that lacked the copy, and others were decided there."""
    back_up(settings, tmp_path / "backup.db")
    give_token(agent)
    put_back(settings, tmp_path / "backup.db")
    seen = settings.statements_dir.rename(tmp_path / "seen")
    app.extensions.pop("statement_log")
    for _ in range(2):
        give_token(db.session.scalars(select(Agent)).one())
    shutil.rmtree(settings.statements_dir)
    seen.rename(settings.statements_dir)
    app.extensions.pop("statement_log")

    assert not verify().ok
    assert whetstone("restore", "accept", "--yes").status == 0
    db.session.rollback()
    assert verify().ok, verify().first_problem


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
