"""Tokens: who presents one is let in, and whom a revocation keeps out; what it opened is gone with it."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import create_engine, text

from app.config import Settings
from app.errors import Invalid, NotFound, Refused
from app.extensions import BUSY_TIMEOUT_MS, db, writing
from app.history.verify import verify
from app.keys.agent_keys import open_keys, share_with_tokens
from app.keys.bearer import authenticate
from app.keys.forgetting import forget_agent
from app.keys.provision import find_unprovisioned, provision_keys
from app.keys.rotation import rotate_agent_key
from app.keys.shredding import is_due
from app.keys.tokens import issue_token, revoke_token, rotate_token
from app.models import COMMAND_LINE, Action, Agent, AgentToken, AuditLog, Event, Memory
from app.models.agent import AgentForgotten
from app.models.key import live_tokens
from app.silo import SealBroken, parse_token
from app.silo.sealed import version_of_key
from tests.silo.holding import readers
from tests.support.clock import FakeClock
from tests.support.databases import SERVER
from tests.support.factories import make_agent, remember


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent("wren")


def issue(agent: Agent, **given: object) -> str:
    with writing():
        locked = Agent.lock(agent.id)
        token = issue_token(locked, by=COMMAND_LINE, **given)  # type: ignore[arg-type]
        db.session.flush()
        share_with_tokens(locked, open_keys(locked))
    return token


def row_of(token: str) -> AgentToken:
    parsed = parse_token(token)
    assert parsed is not None
    db.session.rollback()
    query = db.select(AgentToken).where(AgentToken.public_id == parsed[0])
    return db.session.scalars(query.execution_options(populate_existing=True)).one()


def revoke(agent: Agent, token: str) -> bool:
    public_id = row_of(token).public_id
    with writing():
        locked = Agent.lock(agent.id)
        return revoke_token(locked, public_id, by=COMMAND_LINE).was_live


def rotate(agent: Agent, token: str) -> str:
    public_id = row_of(token).public_id
    with writing():
        locked = Agent.lock(agent.id)
        return rotate_token(locked, public_id, by=COMMAND_LINE)


def opens(agent: Agent, token: str) -> bool:
    parsed = parse_token(token)
    assert parsed is not None
    try:
        open_keys(agent, parsed[1])
    except SealBroken:
        return False
    return True


def test_an_agent_has_several_each_with_its_name_and_scopes(agent: Agent) -> None:
    first, second = issue(agent), issue(agent, name="laptop", scopes=["decide", "read", "read"])

    assert (row_of(first).name, row_of(first).scopes) == ("first", ["read", "write", "author", "decide"])
    assert (row_of(second).name, row_of(second).scopes) == ("laptop", ["read", "decide"])
    found = [authenticate(token) for token in (first, second)]
    assert [each.agent_id for each in found if each] == [agent.id, agent.id]
    assert opens(agent, first)
    assert opens(agent, second)


@pytest.mark.parametrize("scopes", [[], ["admin"], ["read", "WRITE"], "read", None, [["read"]], [None]])
def test_a_scope_that_is_none_is_refused_and_no_token_made(agent: Agent, scopes: object) -> None:
    with pytest.raises(Invalid, match="read, write, author, decide"):
        issue(agent, scopes=scopes)
    assert live_tokens(agent.id) == []


def test_what_is_no_live_token_of_anybody_is_nobody(agent: Agent) -> None:
    token, other = issue(agent), issue(agent)
    prefix, public_id, secret = token.split("_", 2)
    swapped = f"{prefix}_{public_id}_{other.split('_', 2)[2]}"
    made_up = f"{prefix}_{'0' * 16}_{secret}"
    for bearer in (
        "",
        "x",
        token[:-1],
        token + "A",
        token.upper(),
        f" {token}",
        f"{token}\n",
        swapped,
        made_up,
        "é" * 65,
    ):
        assert authenticate(bearer) is None, bearer
    assert authenticate(token) is not None


def test_a_revoked_one_is_nobody_at_once_and_opens_nothing_any_more(agent: Agent) -> None:
    token, other = issue(agent), issue(agent)
    assert revoke(agent, token)

    assert authenticate(token) is None
    assert not opens(agent, token)
    assert row_of(token).reader not in {reader for _, _, reader in readers(agent)}
    assert opens(agent, other)
    assert is_due()
    (entry,) = db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.TOKEN_REVOKE))
    assert entry.data == {"name": "first", "token": row_of(token).public_id}
    assert verify().ok


def test_one_that_was_revoked_on_a_page_is_nobody_before_a_worker_has_stated_it(agent: Agent, web: Flask) -> None:
    token, number = issue(agent), agent.id
    with web.app_context():
        with writing():
            revoke_token(Agent.lock(number), token.split("_")[1], by=COMMAND_LINE)
        assert authenticate(token) is None
        db.session.remove()
    assert authenticate(token) is None


def test_revoking_twice_is_revoking_once(agent: Agent) -> None:
    token = issue(agent)
    assert revoke(agent, token)
    at = row_of(token).revoked_at
    assert not revoke(agent, token)
    assert row_of(token).revoked_at == at
    assert len(db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.TOKEN_REVOKE)).all()) == 1


def test_no_sweep_seals_keys_to_a_revoked_token_again(agent: Agent, clock: FakeClock) -> None:
    token = issue(agent)
    revoke(agent, token)
    provision_keys(agent.id)
    clock.advance(minutes=5)
    assert find_unprovisioned() == []
    provision_keys(agent.id)
    assert row_of(token).reader not in {reader for _, _, reader in readers(agent)}


def test_a_rotated_one_keeps_name_and_scopes_and_the_old_one_is_nobody(agent: Agent) -> None:
    old = issue(agent, name="laptop", scopes=["read"])
    new = rotate(agent, old)

    assert authenticate(old) is None
    assert (row_of(new).name, row_of(new).scopes) == ("laptop", ["read"])
    assert not opens(agent, new)
    provision_keys(agent.id)
    assert opens(agent, new)
    assert verify().ok


def test_a_revoked_one_can_not_be_rotated(agent: Agent) -> None:
    token = issue(agent)
    revoke(agent, token)
    with pytest.raises(Refused, match="revoked already"):
        rotate(agent, token)
    assert live_tokens(agent.id) == []


def test_another_agent_s_token_is_not_found(agent: Agent) -> None:
    token, other = issue(agent), make_agent("void")
    with pytest.raises(NotFound):
        revoke(other, token)
    assert authenticate(token) is not None


def test_keys_opened_with_it_read_what_a_new_version_sealed_since(agent: Agent) -> None:
    bearer = authenticate(issue(agent))
    assert bearer is not None
    keys = bearer.open_keys()
    for version, said in ((2, "Ann likes tea."), (3, "Bob likes rum.")):
        assert rotate_agent_key(agent.id, by=COMMAND_LINE) == version
        (number,) = remember(agent, said)
        sealed = db.session.get_one(Memory, number).content
        assert (version_of_key(sealed.content_key or b""), keys.versions) == (version, list(range(1, version)))
        assert keys.reveal_memory(number, sealed) == said


def test_keys_opened_with_it_read_nothing_of_a_new_version_once_it_is_revoked(agent: Agent) -> None:
    token = issue(agent)
    bearer = authenticate(token)
    assert bearer is not None
    keys = bearer.open_keys()
    revoke(agent, token)
    rotate_agent_key(agent.id, by=COMMAND_LINE)
    (number,) = remember(agent, "Ann likes tea.")
    with pytest.raises(SealBroken):
        keys.reveal_memory(number, db.session.get_one(Memory, number).content)


def test_a_forgotten_agent_has_no_token_and_gets_none(agent: Agent) -> None:
    token = issue(agent)
    forget_agent(agent.id, by=COMMAND_LINE)
    assert authenticate(token) is None
    with pytest.raises(AgentForgotten):
        issue(agent)


def test_making_and_revoking_are_news_for_the_pages(agent: Agent) -> None:
    token = issue(agent)
    revoke(agent, token)
    events = db.session.scalars(db.select(Event).where(Event.agent_id == agent.id).order_by(Event.id)).all()
    assert [event.kind for event in events] == ["agent.token", "agent.token"]


def test_its_last_use_is_noted_at_most_once_a_minute(agent: Agent, clock: FakeClock) -> None:
    token = issue(agent)
    assert row_of(token).last_used_at is None
    first = clock.now()
    assert authenticate(token) is not None
    clock.advance(seconds=59)
    assert authenticate(token) is not None
    assert row_of(token).last_used_at == first
    clock.advance(seconds=1)
    assert authenticate(token) is not None
    assert row_of(token).last_used_at == clock.now()


def test_a_wrong_secret_leaves_no_mark(agent: Agent) -> None:
    token = issue(agent)
    assert authenticate(token[:-1] + ("A" if token[-1] != "A" else "B")) is None
    assert row_of(token).last_used_at is None


def test_a_busy_database_keeps_nobody_out(agent: Agent, app: Flask, settings: Settings) -> None:
    """Another connection holds the lock that the note would need."""
    token = issue(agent)
    engine = create_engine(settings.sqlalchemy_url)
    with engine.connect() as busy:
        if not SERVER:
            busy.exec_driver_sql("BEGIN IMMEDIATE")
        busy.execute(text("UPDATE agent_tokens SET name = 'held'"))
        assert authenticate(token) is not None
        busy.rollback()
    engine.dispose()
    assert row_of(token).last_used_at is None
    if not SERVER:
        assert db.session.scalar(text("PRAGMA busy_timeout")) == BUSY_TIMEOUT_MS
    assert authenticate(token) is not None
    assert row_of(token).last_used_at is not None
