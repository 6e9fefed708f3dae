"""What a worker makes a statement of: each rule refuses what it is there for, whoever has signed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from app.asking.replies import ConsentAnswer
from app.extensions import db, now, writing
from app.grants.request import decide_grant, request_access
from app.keys.agent_keys import open_keys
from app.keys.bearer import Bearer
from app.keys.provision import provision_keys
from app.keys.rotation import rotate_master_key
from app.keys.tokens import revoke_token
from app.models import COMMAND_LINE, Action, Agent, AgentToken, SignedRequest, StatementKind, record
from app.models.appending import Whose, append_leaf, append_note, compose_statement
from app.models.base import iso
from app.models.declaring import declare, hash_words, web_key
from app.models.key import MintedToken, TokenOrigin
from app.models.statement import LeafKind, statement_of
from app.models.statement_errors import AgentStopped, LogBroken
from app.models.statement_log import StatementLog, current_of, statement_log
from app.models.user import ADMIN
from app.silo.notes import NoteBroken, SigningKey, sign_note
from app.silo.statements import REQUEST, STATEMENT, compose_text
from app.statements.settling import has_had_memories, settle_requests
from app.statements.signers import is_signed_by_agent
from app.tokens.request import WantedToken, decide_token_request, request_token
from tests.adversaries.forging import without_statements
from tests.adversaries.scene import KnownAgent
from tests.grants.conftest import WISH
from tests.silo.holding import hand_in
from tests.support.clock import FakeClock
from tests.support.factories import HOME, make_agent, make_user, remember
from tests.support.tampering import rows, tamper
from tests.tokens.conftest import held

NO = ConsentAnswer(granted=False)


@dataclass
class Scene:
    """An agent with memories, three tokens and one that is `gone`; questions that wait and that it said NO to."""

    agent: KnownAgent
    other: KnownAgent
    home: Bearer
    reader: Bearer
    decider: Bearer
    gone: Bearer
    waiting: str
    asked: dict[str, Any]
    denied: str
    wanted: str
    refused: str


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("wren", model_id="openai/gpt-5")
    remember(made, "Ann likes tea.")
    return made


@pytest.fixture
def scene(agent: Agent) -> Scene:
    ann, bob = make_user("ann@example.org", ADMIN), make_user("bob@example.org", ADMIN)
    tokens = [held(agent)[1], held(agent, "read")[1], held(agent, "decide")[1], held(agent)[1]]
    revoke(agent, tokens[-1])
    waiting, denied = [request_access(agent.id, WISH, for_user=user, by=user.actor) for user in (ann, bob)]
    laptop = WantedToken("laptop", ["read"])
    wanted, refused = [request_token(agent.id, laptop, for_user=user, by=user.actor)[0] for user in (ann, bob)]
    decide_grant(denied.id, NO, agent_id=agent.id, by=agent.as_actor, keys=None)
    decide_token_request(refused.id, NO, agent_id=agent.id, by=agent.as_actor, keys=None)
    exceptions = f"exception:{waiting.id}", waiting.stated(), f"exception:{denied.id}"
    agents = KnownAgent.of(agent), KnownAgent.of(make_agent("crow"))
    return Scene(*agents, *tokens, *exceptions, wanted.subject, refused.subject)


def key_of(bearer: Bearer) -> SigningKey:
    return bearer.opener.signing_key(statement_log().installation)


def ask_for(
    agent: KnownAgent,
    kind: StatementKind,
    subject: str,
    signer: Bearer | None = None,
    *,
    whose: KnownAgent | None = None,
    **body: Any,
) -> str | None:
    """Lay down what a token, or else the web process, has signed; returns why it was refused, if it was."""
    of = whose or agent
    said = compose_statement(kind, subject, body, Whose(HOME, of.id, of.uuid))
    text = compose_text(REQUEST if signer is None else STATEMENT, said)
    note = sign_note(text, web_key() if signer is None else key_of(signer))
    with writing():
        request = SignedRequest(agent_id=agent.id, kind=kind, subject=subject, note=note, created_at=now())
        db.session.add(request)
        db.session.flush()
        settle_requests(Agent.lock(agent.id))
    assert request.settled_at is not None
    return request.refused


def lay_token(agent: KnownAgent, **values: Any) -> tuple[str, dict[str, Any]]:
    """The row of a token that nobody has stated: its subject, and what it says."""
    said: dict[str, Any] = {"name": "new", "scopes": ["decide"], "how": TokenOrigin.AGENT, "shown_to": "agent"} | values
    with without_statements(), writing():
        row = AgentToken.add(Agent.lock(agent.id), MintedToken.mint().kept, by=COMMAND_LINE, **said)
    return f"token:{row.public_id}", row.stated()


def test_what_may_not_be_stated_is_refused(scene: Scene) -> None:
    agent, home, reader, decider, gone = scene.agent, scene.home, scene.reader, scene.decider, scene.gone
    Kind, own = StatementKind, f"agent:{agent.uuid}"
    live, ended = f"token:{home.public_id}", f"token:{decider.public_id}"
    first, said_of_first = lay_token(agent, how=TokenOrigin.FIRST)
    said_of_gone = db.session.get_one(AgentToken, gone.id).stated()
    another, said_of_another = lay_token(agent, by_token=home.public_id)
    tamper("UPDATE agent_tokens SET revoked_at = created_at WHERE public_id = :id", id=decider.public_id)
    answer, ending = {"granted": True, "database_time": iso(now())}, {"by": "x", "why": ""}

    told = [
        ask_for(agent, Kind.TOKEN_ENDED, live, whose=scene.other, **ending),
        ask_for(agent, Kind.TOKEN_MADE, first, **said_of_first),
        ask_for(agent, Kind.TOKEN_MADE, another, decider, **said_of_another),
        ask_for(agent, Kind.TOKEN_MADE, f"token:{gone.public_id}", home, **said_of_gone),
        ask_for(agent, Kind.TOKEN_ENDED, live, **ending),
        ask_for(agent, Kind.TOKEN_ENDED, ended, reader, **ending),
        ask_for(agent, Kind.EXCEPTION_DECIDED, scene.waiting, **answer, **scene.asked),
        ask_for(agent, Kind.EXCEPTION_DECIDED, scene.denied, home, **answer),
        ask_for(agent, Kind.EXCEPTION_ENDED, scene.waiting, reader, **ending),
        ask_for(agent, Kind.OWN_REQUEST, "refinement:1", mode="full"),
        ask_for(agent, Kind.CONSENT, "refinement:1", home, granted=True),
        ask_for(agent, Kind.CONSENT, scene.wanted, granted=True),
        ask_for(agent, Kind.CONSENT, scene.wanted, home, granted=True, about={}),
        ask_for(agent, Kind.CONSENT, scene.refused, home, granted=True),
        ask_for(agent, Kind.MODEL, own, model_id="openai/other"),
        ask_for(agent, Kind.MODEL, own, home, prompts={}, model_id="openai/other"),
        ask_for(agent, Kind.MODEL, own, reader, prompts={"system_prompt": "Obey."}),
        ask_for(agent, Kind.ERASURE, "memory:1", home),
        ask_for(agent, Kind.WRAPPED_KEYS, "keys:ab", home, keys=[]),
    ]

    assert told == [
        "It is about another agent.",
        "The agent has had a token, memories or something to take in before.",
        "The row names another decision.",
        "The token was stated before.",
        "The token's row is not revoked.",
        "The token that signed it may not decide.",
        "Only the agent decides on an exception.",
        "The exception was decided before.",
        "The token that signed it may not decide.",
        "Only the agent asks for a refinement of its own.",
        "A refinement's consent is the model's.",
        "Only the agent decides.",
        "It answers what no web process has signed.",
        "It was decided before.",
        "The agent has had memories: its own model is asked.",
        "A token changes prompts and the second reader, and nothing else of what is asked and where.",
        "The token that signed it may not write settings.",
        "No such memory was erased.",
        "Only the worker states that.",
    ]


@pytest.mark.parametrize("has", ["nothing", "a token", "memories", "something to take in"])
def test_a_first_token_is_that_of_an_agent_that_nothing_could_be_read_of(app: Flask, has: str) -> None:
    made = make_agent("crumb")
    if has == "a token":
        revoke(made, held(made)[1])
    elif has == "memories":
        remember(made, "Crumb likes rain.")
    elif has == "something to take in":
        hand_in(made, "Crumb likes rain.")
    agent = KnownAgent.of(made)
    subject, said = lay_token(agent, how=TokenOrigin.FIRST)

    refused = ask_for(agent, StatementKind.TOKEN_MADE, subject, **said)

    assert (refused is None) == (has == "nothing"), refused


def revoke(agent: Agent, bearer: Bearer) -> None:
    with writing():
        revoke_token(Agent.lock(agent.id), bearer.public_id, by=COMMAND_LINE)
    provision_keys(agent.id)


@pytest.mark.parametrize("action", [Action.CREATE, Action.IMPORT])
def test_memories_whose_rows_are_gone_were_had(app: Flask, action: Action) -> None:
    agent = make_agent("crumb")
    assert not has_had_memories(agent)
    with writing():
        locked = Agent.lock(agent.id)
        record(action, actor=COMMAND_LINE, of=locked, subject=locked.subject)
    assert has_had_memories(agent)


def test_a_model_that_a_web_process_signed_is_stated_once(app: Flask, clock: FakeClock) -> None:
    """Of an agent without memories, which need not be asked: an old one does not come back with its signature."""
    agent = KnownAgent.of(make_agent("crumb", model_id="openai/gpt-5"))
    assert ask_for(agent, StatementKind.MODEL, f"agent:{agent.uuid}", model_id="openai/first") is None
    clock.advance(minutes=1)
    with writing() as session:
        request = session.scalars(select(SignedRequest)).one()
        request.settled_at = None
        settle_requests(Agent.lock(agent.id))
    assert request.refused == "It was stated before."


def test_a_signature_counts_for_what_was_signed_by_a_token_of_that_scope(scene: Scene) -> None:
    agent, other = (db.session.get_one(Agent, each.id) for each in (scene.agent, scene.other))
    said = {"value": "You are Wren."}
    note = sign_note(compose_text("whetstone-test/1", said), key_of(scene.reader))

    assert is_signed_by_agent("whetstone-test/1", note, said, agent)
    assert is_signed_by_agent("whetstone-test/1", note, said, agent, "read")
    assert not is_signed_by_agent("whetstone-test/1", note, said, agent, "author")
    assert not is_signed_by_agent("whetstone-test/1", note, {"value": "Obey."}, agent)
    assert not is_signed_by_agent("whetstone-test/2", note, said, agent)
    assert not is_signed_by_agent("whetstone-test/1", note, said, other)


def test_a_live_token_s_keys_can_not_be_taken_away(scene: Scene) -> None:
    reader = scene.home.opener.public.hex
    assert tamper("DELETE FROM agent_keys WHERE reader = :reader", reader=reader)
    with pytest.raises(AgentStopped, match="are not those that were signed"), writing():
        open_keys(Agent.lock(scene.agent.id))


# The log that statements are appended to


def say_no(agent: Agent, subject: str) -> None:
    declare(StatementKind.CONSENT, Agent.lock(agent.id), subject, {"granted": False})


def test_what_was_rolled_back_is_stated_by_no_later_transaction(agent: Agent) -> None:
    size = statement_log().copy.size
    with pytest.raises(ZeroDivisionError), writing():
        say_no(agent, "change:one")
        assert [each.subject for each in current_of(agent.id, agent.uuid).answers] == ["change:one"]
        raise ZeroDivisionError
    assert current_of(agent.id, agent.uuid).answers == []
    with writing():
        say_no(agent, "change:two")

    stated = current_of(agent.id, agent.uuid)
    assert (list(stated.consents), len(stated.answers)) == (["change:two"], 1)
    assert statement_log().copy.size == size + 1


def test_a_statement_is_signed_by_the_key_in_force_at_its_place(agent: Agent, tmp_path: Path) -> None:
    """A rotation of the master key came between its signature and the end of its transaction."""
    log, before = statement_log(), statement_log().keys.signing_key()
    rotate_master_key(by=COMMAND_LINE)
    said = compose_statement(StatementKind.CONSENT, "change:one", {"granted": False}, Whose(HOME, agent.id, agent.uuid))
    with writing():
        Agent.lock(agent.id)
        append_note(sign_note(compose_text(STATEMENT, said), before), statement_of(said, log.installation), agent.id)

    assert log.keys.verifier != before.verifier
    StatementLog(tmp_path / "elsewhere", log.keys.verifier.public).catch_up()


def test_what_this_process_signed_itself_is_signed_anew_only_behind_a_rotation(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, before = statement_log(), statement_log().keys.signing_key()
    signed, real = list[str](), SigningKey.sign
    monkeypatch.setattr(SigningKey, "sign", lambda key, said: (signed.append(said), real(key, said))[1])
    with writing():
        say_no(agent, "change:one")
        append_leaf(LeafKind.TIME, "time", b'{"time":"2026-11-23T09:00:00Z"}')
    assert len(signed) == 2

    rotate_master_key(by=COMMAND_LINE)
    signed.clear()
    with writing(), monkeypatch.context() as patch:
        patch.setattr(log.keys, "signing_key", lambda: before)
        say_no(agent, "change:two")
        append_leaf(LeafKind.TIME, "time", b'{"time":"2026-11-23T10:00:00Z"}')
    assert len(signed) == 4
    StatementLog(tmp_path / "elsewhere", log.keys.verifier.public).catch_up()


def test_a_statement_of_another_installation_is_none_here(app: Flask) -> None:
    said = compose_statement(StatementKind.CONSENT, "change:one", {}, Whose(1, None, None))
    assert statement_of(said, said["installation"]).subject == "change:one"
    with pytest.raises(NoteBroken, match="another installation"):
        statement_of(said, "00000000-0000-4000-8000-000000000000")


def test_what_was_said_can_not_be_guessed_from_its_hash(agent: Agent) -> None:
    one, other = open_keys(agent), open_keys(make_agent("crow"))
    said = hash_words(one, "change:one", "May I?", "NO")
    assert said == hash_words(one, "change:one", "May I?", "NO")
    for guess in (hash_words(other, "change:one", "May I?", "NO"), hash_words(one, "change:two", "May I?", "NO")):
        assert set(guess.values()).isdisjoint(said.values())


def test_a_machine_that_only_reads_the_log_keeps_what_a_backup_must_not_undo(agent: Agent, tmp_path: Path) -> None:
    revoke(agent, held(agent)[1])
    known = statement_log()

    elsewhere = StatementLog(tmp_path / "elsewhere", known.keys.verifier.public)
    elsewhere.catch_up()

    assert elsewhere.checked.kept.read() == known.checked.kept.read()
    assert len(known.checked.kept.read()) == 1


def test_a_machine_that_reads_it_for_the_first_time_sees_that_a_leaf_is_missing(agent: Agent, tmp_path: Path) -> None:
    known = statement_log()
    assert tamper("DELETE FROM log_leaves WHERE position = 1")
    with pytest.raises(LogBroken, match="leaf 1 is missing"):
        StatementLog(tmp_path / "elsewhere", known.keys.verifier.public).catch_up()


@pytest.mark.parametrize("kind", list(LeafKind))
def test_a_leaf_that_is_no_statement_counts_as_it_was_signed_only(agent: Agent, kind: LeafKind) -> None:
    with writing():
        append_leaf(kind, "time", b'{"time":"2026-11-23T09:00:00Z"}')
    last = "position = (SELECT max(position) FROM log_leaves)"
    tamper("CREATE TABLE kept AS SELECT * FROM log_leaves WHERE " + last)
    place = rows("SELECT position FROM kept")[0][0] + 1
    for change in ("signature = NULL", "signature = :other", "leaf = :other", "kind = 'model'"):
        tamper(f"UPDATE kept SET position = {place}, {change}", **({"other": b"{}"} if ":other" in change else {}))
        tamper("INSERT INTO log_leaves SELECT * FROM kept")
        with pytest.raises(LogBroken, match=f"leaf {place} is none of this installation's"):
            statement_log().catch_up()
        tamper(f"DELETE FROM log_leaves WHERE position = {place}")
        tamper("DELETE FROM kept")
        tamper("INSERT INTO kept SELECT * FROM log_leaves WHERE " + last)
    tamper("DROP TABLE kept")
    statement_log().catch_up()
