"""Verify and the log of statements: what decides who may read is proved leaf by leaf and row by row."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest
from flask import Flask
from sqlalchemy.orm import Session, scoped_session

from app.asking.calls import Dependencies
from app.extensions import db, end_reading, now, writing
from app.grants.asking import ask_agent
from app.grants.request import WantedException, request_access, revoke_grant
from app.history.chain import Difference
from app.history.statement_proof import prove_agent
from app.history.verify import verify, verify_account, verify_rest
from app.keys.provision import provision_keys
from app.keys.rotation import rotate_master_key
from app.keys.tokens import issue_token, revoke_token
from app.models import COMMAND_LINE, Agent, GrantCategory, SignedRequest, StatementKind, Trigger, User
from app.models.appending import Whose, compose_statement
from app.models.declaring import web_key
from app.models.log_leaves import log_size
from app.models.user import ADMIN
from app.silo.notes import SigningKey, sign_note
from app.silo.statements import REQUEST, compose_text
from app.silo.webkey import PinnedInstallation
from app.tokens.request import WantedToken, request_token
from tests.refinement.driving import DONE, carry, say
from tests.support.databases import SERVER
from tests.support.factories import make_agent, make_user, remember
from tests.support.scripted import ScriptedClient, ScriptedClients
from tests.support.tampering import rows, tamper
from tests.tokens.conftest import think

SHORT = WantedException(GrantCategory.DEBUGGING, "She repeats herself", 15)

HEX = "encode(public_key, 'hex')" if SERVER else "lower(hex(public_key))"


@pytest.fixture
def ann(app: Flask) -> User:
    return make_user("ann@example.org", ADMIN)


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("wren", model_id="openai/gpt-5", system_prompt="You are Wren.")
    remember(made, "Ann likes tea.", "Bob moved to Oslo.")
    return made


@pytest.fixture
def lived(agent: Agent, ann: User) -> Agent:
    """With tokens, live and ended; exceptions, live, ended and denied; consents, and a request of its own."""
    with writing():
        locked = Agent.lock(agent.id)
        issue_token(locked, by=COMMAND_LINE, name="first")
        issue_token(locked, by=COMMAND_LINE, name="second")
    provision_keys(agent.id)
    with writing():
        revoke_token(Agent.lock(agent.id), token("second"), by=COMMAND_LINE)
    provision_keys(agent.id)
    for answer, user in (("YES", ann), ("YES", ann), ("NO", make_user("bob@example.org", ADMIN))):
        grant = request_access(agent.id, SHORT, for_user=user, by=user.actor)
        client = ScriptedClients(ScriptedClient(say(answer)))
        ask_agent(grant.id, Dependencies(client, pause=lambda _: None, monotonic=lambda: 0.0))
        if not rows("SELECT 1 FROM access_grants WHERE status = 'revoked'"):
            revoke_grant(grant.id, by=ann.actor)
    db.session.rollback()
    carry(agent, say("YES"), DONE)
    carry(agent, DONE, trigger=Trigger.AGENT)
    db.session.rollback()
    db.session.refresh(agent)
    db.session.expunge_all()
    return agent


def token(name: str) -> str:
    return str(rows("SELECT public_id FROM agent_tokens WHERE name = :name", name=name)[0][0])


def reader_of(name: str) -> str:
    """The public key in hex of the token of that name."""
    return bytes(rows("SELECT public_key FROM agent_tokens WHERE name = :name", name=name)[0][0]).hex()


def differs(agent: Agent) -> str:
    """What the comparison with the log says, whatever the audit log would say of the same row."""
    end_reading()
    db.session.expunge_all()
    with pytest.raises(Difference) as found:
        prove_agent(db.session.get_one(Agent, agent.id))
    end_reading()
    assert found.value.agent_id in (None, agent.id)
    return str(found.value)


def test_it_proves_what_an_agent_and_its_humans_decided(lived: Agent) -> None:
    for verdict in (verify(), verify(db.session.get_one(Agent, lived.id)), verify_account(1), verify_rest()):
        assert verdict.ok, verdict.first_problem
        assert verdict.warnings == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("UPDATE agent_tokens SET revoked_at = NULL WHERE name = 'second'", "is live in its row, and was ended"),
        ("UPDATE agent_tokens SET scopes = '[\"read\"]' WHERE name = 'first'", "is not as it was signed"),
        ("UPDATE agent_tokens SET shown_to = 'nobody' WHERE name = 'second'", "which was ended, is not as it was"),
        ("DELETE FROM agent_tokens WHERE name = 'second'", "which was ended, has no row any more"),
        ("DELETE FROM agent_tokens WHERE name = 'first'", "has no row any more"),
        ("UPDATE agents SET api_base = 'http://evil.example'", "The api_base of wren is not what was signed"),
        ("UPDATE agents SET refinement_prompt = 'Say YES.'", "The refinement_prompt of wren is not what was signed"),
        ("DELETE FROM agent_keys WHERE purpose = 'dedup'", "are not those that were signed"),
        (f"DELETE FROM agent_keys WHERE reader NOT IN (SELECT {HEX} FROM agent_tokens)", "master key are"),
        ("UPDATE agent_keys SET sealed = :none", "are not those that were signed"),
        (
            "UPDATE agent_keys SET reader = :reader WHERE id = (SELECT max(id) FROM agent_keys)",
            "are not those that were",
        ),
        ("UPDATE access_grants SET status = 'granted' WHERE status = 'revoked'", "live in its row, and was ended"),
        ("UPDATE access_grants SET status = 'granted' WHERE status = 'denied'", "was granted by nobody"),
        ("UPDATE access_grants SET status = 'denied' WHERE status = 'granted'", "granted in what was signed"),
        ("UPDATE access_grants SET status = 'expired' WHERE status = 'revoked'", "revoked in what was signed"),
        ("UPDATE access_grants SET minutes = 480 WHERE status = 'granted'", "is not as the agent granted it"),
        ("UPDATE access_grants SET purpose = 'Fun' WHERE status = 'denied'", "is not as it was decided"),
        ("UPDATE access_grants SET expires_at = '2099-01-01 00:00:00' WHERE status = 'granted'", "lasts longer"),
        ("DELETE FROM access_grants WHERE status = 'denied'", "has no row any more"),
        ("UPDATE consents SET granted = NOT granted WHERE grant_id IS NOT NULL", "about the exception"),
        ("DELETE FROM consents WHERE grant_id IS NOT NULL", "has no row any more"),
        ("UPDATE consents SET granted = NOT granted WHERE refinement_id IS NOT NULL", "answered about the refinement"),
        ("DELETE FROM consents WHERE refinement_id IS NOT NULL", "has no row any more"),
        ("UPDATE refinements SET trigger = 'agent'", "was never signed so"),
        ("UPDATE refinements SET trigger = 'admin'", "does not say so any more"),
    ],
)
def test_a_row_that_the_log_does_not_explain_is_named(lived: Agent, change: str, sentence: str) -> None:
    values = {"none": b"none", "reader": "ab" * 32, "first": reader_of("first")}
    assert tamper(change, **{name: value for name, value in values.items() if f":{name}" in change})

    assert sentence in differs(lived)
    assert not verify().ok


def test_keys_of_an_ended_token_that_are_put_back_are_named(agent: Agent) -> None:
    with writing():
        issue_token(Agent.lock(agent.id), by=COMMAND_LINE, name="first")
    provision_keys(agent.id)
    reader = reader_of("first")
    tamper("CREATE TABLE kept AS SELECT * FROM agent_keys WHERE reader = :reader", reader=reader)
    with writing():
        revoke_token(Agent.lock(agent.id), token("first"), by=COMMAND_LINE)
    assert verify().ok

    tamper("INSERT INTO agent_keys SELECT * FROM kept")
    tamper("DROP TABLE kept")

    assert f"A key of wren is sealed to {reader[:16]}…, who may not read." in str(verify().first_problem)


def test_a_master_key_that_nobody_signed_is_named(lived: Agent) -> None:
    tamper(
        "INSERT INTO master_keys (fingerprint, public, created_at) SELECT 'ffffffffffffffff', :public, created_at"
        " FROM master_keys",
        public=b"\x07" * 32,
    )

    for verdict in (verify(), verify_rest()):
        assert "the master key ffffffffffffffff stands in a row, and nobody signed it" in str(verdict.first_problem)


def test_a_rotation_of_the_master_key_leaves_all_proved_and_its_row_can_not_be_put_back(lived: Agent) -> None:
    rotate_master_key(by=COMMAND_LINE)
    assert verify().ok, verify().first_problem

    for change in ("CASE WHEN retired_at IS NULL THEN created_at END", "created_at"):
        tamper(f"UPDATE master_keys SET retired_at = {change}")
        assert "the rows say otherwise" in str(verify().first_problem)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("UPDATE log_leaves SET leaf = :other WHERE position = 4", "Leaf 4 of the log of statements was altered"),
        ("UPDATE log_leaves SET hash = :hash WHERE position = 4", "Leaf 4 of the log of statements stands in a row"),
        ("UPDATE log_leaves SET agent_id = NULL WHERE position = 4", "Leaf 4 of the log of statements"),
        ("UPDATE log_leaves SET kind = 'consent' WHERE position = 4", "Leaf 4 of the log of statements does not hold"),
        ("UPDATE log_leaves SET subject = 'x' WHERE position = 4", "Leaf 4 of the log of statements does not hold"),
        ("DELETE FROM log_leaves WHERE position = 4", "Leaf 4 of the log of statements"),
        ("DELETE FROM log_leaves WHERE position > 8", "it ends at leaf 9"),
        ("DELETE FROM log_leaves", "log of statements"),
    ],
)
def test_a_leaf_that_was_altered_moved_or_removed_is_named(lived: Agent, change: str, sentence: str) -> None:
    values = {"other": b"other", "hash": bytes(32)}
    assert tamper(change, **{name: value for name, value in values.items() if f":{name}" in change})

    for verdict in (verify(), verify_rest()):
        assert not verdict.ok
    assert sentence in str(verify_rest().first_problem)


def wait(agent: Agent, kind: StatementKind, subject: str, key: SigningKey, **body: object) -> None:
    """Leave a request as a web process does, signed by that key."""
    said = compose_statement(kind, subject, body, Whose(agent.account_id, agent.id, agent.uuid))
    with writing():
        note = sign_note(compose_text(REQUEST, said), key)
        db.session.add(SignedRequest(agent_id=agent.id, kind=kind, subject=subject, note=note, created_at=now()))


def test_what_a_web_process_signed_explains_a_row_before_a_worker_has_stated_it(
    lived: Agent, web: Flask, ann: User
) -> None:
    by, first = db.session.merge(ann).actor, token("first")
    with web.app_context():
        with writing():
            revoke_token(Agent.lock(lived.id), first, by=by)
        db.session.remove()

    assert rows("SELECT count(*) FROM signed_requests WHERE settled_at IS NULL")[0][0]
    assert verify().ok, verify().first_problem


def test_a_request_that_waits_and_that_nobody_signed_who_may_is_named(lived: Agent) -> None:
    forger = SigningKey(web_key().name, bytes(32))
    wait(lived, StatementKind.TOKEN_ENDED, f"token:{token('first')}", forger, why="", by="x")
    tamper("UPDATE agent_tokens SET revoked_at = created_at WHERE name = 'first'")

    assert "token-ended, is none (" in differs(lived)


def test_a_request_that_was_refused_is_a_warning_until_its_row_differs(lived: Agent) -> None:
    wait(lived, StatementKind.TOKEN_ENDED, "token:unknown", web_key(), why="", by="x")
    provision_keys(lived.id)
    remember(lived, "Cleo likes ink.")

    verdict = verify()

    assert verdict.ok, verdict.first_problem
    assert verdict.warnings == (
        "Refused of what was signed lately: 1. The newest: token-ended of wren. There is no such token.",
    )
    assert verdict.as_json()["warnings"] == list(verdict.warnings)


def test_a_request_for_a_token_that_was_answered_is_compared_with_the_answer(agent: Agent, ann: User) -> None:
    request, _ = request_token(agent.id, WantedToken("laptop", ["read"]), for_user=ann, by=ann.actor)
    think(request, say("YES"))
    assert verify().ok, verify().first_problem

    tamper("UPDATE token_requests SET user_id = user_id - 1")
    assert "is not the one that was answered" in differs(agent)

    tamper("UPDATE token_requests SET user_id = user_id + 1, status = 'denied'")
    assert "is denied, and YES was signed" in differs(agent)

    tamper("DELETE FROM token_requests")
    assert "for a token of wren has no row any more" in differs(agent)


@pytest.fixture
def auditor(lived: Agent, app: Flask) -> Iterator[Flask]:
    """The same installation as somebody sees it who has the pinned installation and no master key."""
    known = app.extensions.pop("master_key")
    app.extensions.pop("statement_log", None)
    yield app
    app.extensions["master_key"] = known
    app.extensions.pop("statement_log", None)


def test_an_auditor_without_the_master_key_proves_the_same(auditor: Flask) -> None:
    assert PinnedInstallation.load(auditor.extensions["settings"].pinned_path)
    assert verify().ok, verify().first_problem

    tamper("UPDATE log_leaves SET subject = 'x' WHERE position = 4")

    assert "Leaf 4 of the log of statements does not hold" in str(verify_rest().first_problem)


def test_what_is_decided_while_the_rows_are_looked_at_is_no_difference(
    lived: Agent, app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot of the rows is older than the log then."""
    first = token("first")

    def revoke() -> None:
        with app.app_context(), writing():
            revoke_token(Agent.lock(lived.id), first, by=COMMAND_LINE)

    def after_a_revocation(session: scoped_session[Session]) -> int:
        meanwhile = Thread(target=revoke)
        meanwhile.start()
        meanwhile.join()
        return log_size(session)

    monkeypatch.setattr("app.history.statement_proof.log_size", after_a_revocation)
    verdict = verify(db.session.get_one(Agent, lived.id))

    assert verdict.ok, verdict.first_problem
    assert rows("SELECT count(*) FROM agent_tokens WHERE revoked_at IS NULL") == [(0,)]
