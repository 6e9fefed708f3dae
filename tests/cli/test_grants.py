"""`whetstone grants`: what is asked, answered and taken back; and that no command prints what a memory says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask

from app.extensions import db, writing
from app.grants import opening
from app.grants.endings import find_endings_to_tell
from app.keys.agent_keys import open_keys
from app.llm.client import ModelError, ModelErrorKind
from app.models import AccessGrant, Account, Action, Agent, AuditLog, Memory, MemoryType, User
from app.models.user import ADMIN, AUDITOR
from tests.cli.conftest import Said, Whetstone
from tests.support.clock import FakeClock
from tests.support.factories import begin, make_agent, make_user, remember
from tests.support.model_server import ModelServer, text
from tests.support.processes import wait_for
from tests.support.scripted import Scripted, ScriptedClient, ScriptedClients, say
from tests.support.workers import Worker, broker_of

CANARY = "The canary sang at dawn, and the whole street woke up and listened to it."
ANN = "ann@example.org"
WISH = ("--as", ANN, "--category", "debugging", "--purpose", "She repeats herself", "--minutes", "15")


@pytest.fixture
def clock() -> FakeClock:
    """The command goes by the system's clock; so does the test."""
    return FakeClock(datetime.now(UTC))


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("wren")
    remember(made, *(f"{CANARY} {number}" for number in range(3)))
    make_user(ANN, ADMIN)
    return made


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedClient]:
    """What the agent's model replies, in place of what LiteLLM would reach."""

    def script(*replies: Scripted) -> ScriptedClient:
        client = ScriptedClient(*replies)
        monkeypatch.setattr("app.cli.grant_acts.LiteLLMClients", lambda: ScriptedClients(client))
        return client

    return script


def the_grant() -> AccessGrant:
    db.session.rollback()
    return db.session.scalars(db.select(AccessGrant)).one()


def requested(whetstone: Whetstone, *options: str) -> Said:
    return whetstone("grants", "request", "wren", *WISH, *options, "--json")


def test_without_a_worker_it_asks_the_agent_itself(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    asked = model(say(f"YES. {CANARY}\nTo admins: look at the third one."))

    said = requested(whetstone, "--wait")

    assert said.status == 0
    assert said.json["status"] == "granted"
    assert said.json["note_to_admins"] == "look at the third one."
    until = datetime.fromisoformat(said.json["expires_at"])
    assert abs(until - datetime.now(UTC) - timedelta(minutes=15)) < timedelta(minutes=1)
    assert (said.json["id"], said.json["agent"], said.json["user"]) == (the_grant().id, "wren", ANN)
    assert '"She repeats herself"' in str(asked.asked[0].messages[1]["content"])
    assert CANARY not in said.out + said.err
    entry = db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.ACCESS_REQUESTED)).one()
    assert (entry.actor, entry.data["for"]) == ("system:command line", ANN)


@pytest.mark.parametrize(("reply", "status", "exit_status"), [("NO.", "denied", 3), ("Perhaps.", "denied", 3)])
def test_whatever_is_no_yes_exits_with_3(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient], reply: str, status: str, exit_status: int
) -> None:
    model(say(reply))
    said = requested(whetstone, "--wait")

    assert (said.status, said.json["status"], said.json["expires_at"]) == (exit_status, status, None)
    again = requested(whetstone, "--wait")
    assert (again.status, again.error["code"]) == (3, "asked_recently")


def test_a_model_that_can_not_be_reached_exits_with_1(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    model(ModelError(ModelErrorKind.UNAUTHORIZED, "The model refused the key."))
    said = requested(whetstone, "--wait")

    assert (said.status, said.json["status"]) == (1, "failed")


def test_without_wait_the_question_waits_for_a_worker(agent: Agent, whetstone: Whetstone) -> None:
    said = requested(whetstone)

    assert (said.status, said.json["status"], said.json["expires_at"]) == (0, "pending", None)
    assert "The task queue did not accept it" in said.err
    again = requested(whetstone)
    assert (again.status, again.error["code"]) == (3, "already_asked")


def test_people_are_told_what_it_means_and_what_comes_next(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    model(say(f"YES {CANARY}"))
    said = whetstone("grants", "request", "wren", *WISH, "--wait")
    number = the_grant().id

    assert "wren said YES: until " in said.out
    assert f"on the dashboard only: /exceptions/{number}" in said.out
    assert f"grants revoke {number[:8]}" in said.out
    listed = whetstone("grants", "list").out
    assert all(part in listed for part in (number[:8], "wren", ANN, "granted", "ledger"))
    assert CANARY not in said.out + said.err + listed


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--minutes", "14", "from 15 to 480"),
        ("--minutes", "481", "from 15 to 480"),
        ("--minutes", "1_5", "from 15 to 480"),
        ("--category", "curiosity", "one of debugging"),
        ("--purpose", " ", "1 to 500 characters"),
        ("--purpose", "x" * 501, "1 to 500 characters"),
    ],
)
def test_what_can_not_be_asked_so_is_wrong_usage(
    agent: Agent, whetstone: Whetstone, option: str, value: str, words: str
) -> None:
    said = requested(whetstone, option, value)

    assert said.status == 2
    assert words in said.error["message"]
    assert db.session.scalars(db.select(AccessGrant)).all() == []


def test_only_an_admin_of_the_agent_s_account_can_be_given_one(agent: Agent, whetstone: Whetstone) -> None:
    make_user("aud@example.org", AUDITOR)
    with writing():
        elsewhere = Account.create("Elsewhere").id
    make_user("far@example.org", ADMIN, account_id=elsewhere)

    auditor = requested(whetstone, "--as", "aud@example.org")
    stranger = requested(whetstone, "--as", "far@example.org")
    nobody = requested(whetstone, "--as", "nobody@example.org")

    assert (auditor.status, auditor.error["code"]) == (3, "refused")
    assert (stranger.status, stranger.error["code"]) == (1, "not_found")
    assert "far@example.org" not in stranger.error["message"].partition("There are:")[2]
    assert ANN in nobody.error["message"]
    assert db.session.scalars(db.select(AccessGrant)).all() == []


def test_a_refinement_as_scope_is_named_by_the_beginning_of_its_id(agent: Agent, whetstone: Whetstone) -> None:
    number = begin(agent).refinement.id
    crumb = make_agent("crumb")
    remember(crumb, CANARY)
    other = begin(crumb).refinement.id

    said = requested(whetstone, "--scope", number[:8])
    foreign = requested(whetstone, "--scope", other)
    nowhere = requested(whetstone, "--scope", "abcdef12")

    assert said.json["scope"] == number
    assert (foreign.status, foreign.error["code"]) == (1, "not_found")
    assert (nowhere.status, nowhere.error["code"]) == (1, "not_found")


def test_revoked_it_shows_nothing_more_and_the_agent_is_told(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    model(say("YES"))
    number = requested(whetstone, "--wait").json["id"]
    ann = db.session.scalars(db.select(User).where(User.email == ANN)).one()
    look = opening.look(the_grant(), ann)
    opening.answer_view(look.view_id)

    said = whetstone("grants", "revoke", number[:8], "--json")

    assert (said.status, said.json["id"], said.json["status"], said.json["views"]) == (0, number, "revoked", 1)
    assert said.json["ended_by"] == "system:command line"
    with pytest.raises(opening.NotCovered):
        opening.fetch_view(look)
    assert find_endings_to_tell() == []
    assert "taken back" in journal(agent)
    again = whetstone("grants", "revoke", number)
    assert (again.status, "It had ended already (revoked)" in again.out) == (0, True)
    assert requested(whetstone).json["status"] == "pending"


def journal(agent: Agent) -> str:
    keys = open_keys(agent)
    db.session.rollback()
    memories = db.session.scalars(Memory.active(agent.id, MemoryType.JOURNAL))
    return "\n".join(keys.reveal_memory(memory.id, memory.content) for memory in memories)


def test_a_question_that_nobody_answered_yet_can_be_taken_back(agent: Agent, whetstone: Whetstone) -> None:
    number = requested(whetstone).json["id"]

    assert "Taken back" in whetstone("grants", "revoke", number).out
    assert the_grant().status == "revoked"
    assert journal(agent) == ""


def test_the_list_holds_what_is_open_or_all_newest_first(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient], clock: FakeClock
) -> None:
    assert "None is live" in whetstone("grants", "list").out
    assert whetstone("grants", "list", "--all", "--json").json == []
    model(say("YES"))
    first = requested(whetstone, "--wait").json["id"]
    whetstone("grants", "revoke", first)
    second = requested(whetstone).json["id"]

    assert [each["id"] for each in whetstone("grants", "list", "--json").json] == [second]
    everything = whetstone("grants", "list", "--all", "--agent", "wren", "--json").json
    assert [(each["id"], each["status"]) for each in everything] == [(second, "pending"), (first, "revoked")]
    make_agent("crumb")
    assert whetstone("grants", "list", "--all", "--agent", "crumb", "--json").json == []


def test_what_has_run_out_is_listed_as_expired(
    agent: Agent, whetstone: Whetstone, model: Callable[..., ScriptedClient]
) -> None:
    model(say("YES"))
    number = requested(whetstone, "--wait").json["id"]
    with writing():
        grant = AccessGrant.lock(number)
        assert grant.expires_at is not None
        grant.expires_at -= timedelta(minutes=16)

    assert whetstone("grants", "list", "--json").json == []
    assert whetstone("grants", "list", "--all", "--json").json[0]["status"] == "expired"


@pytest.mark.parametrize("number", ["00000000", "%", "abc", ""])
def test_an_exception_that_is_not_there_is_not_found(whetstone: Whetstone, number: str) -> None:
    said = whetstone("grants", "revoke", number, "--json")
    assert (said.status, said.error["code"]) == (1, "not_found")


@pytest.mark.slow
class TestWithAWorker:
    """Beside a real broker, a real worker process and a model over HTTP."""

    @pytest.fixture
    def worker(self, app: Flask, whetstone: Whetstone) -> Iterator[Worker]:
        from tasks.refinement import worker_answers

        settings = app.extensions["settings"]
        with broker_of(settings), Worker(settings, ("--concurrency", "2"), {"A_KEY": "x"}) as started:
            wait_for(lambda: worker_answers(0.5), seconds=60)
            yield started

    def test_the_worker_asks_and_the_command_waits_for_the_answer(
        self, agent: Agent, whetstone: Whetstone, worker: Worker
    ) -> None:
        with ModelServer() as server:
            server.script(text(f"YES. {CANARY}"))
            with writing():
                Agent.lock(agent.id).change(
                    by=the_owner().actor, model_id="openai/scripted", api_base=server.base_url, api_key_env="A_KEY"
                )
            said = requested(whetstone, "--wait")

        assert (said.status, said.json["status"]) == (0, "granted")
        assert len(server.requests) == 1
        assert CANARY not in said.out + said.err + worker.said()


def the_owner() -> User:
    return db.session.get_one(User, 1)
