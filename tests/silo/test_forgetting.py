"""Forgetting: the keys are gone from the database and its files, the record stays, and nothing comes back."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from flask import Flask
from sqlalchemy import event, func, select, text, update

from app.asking.calls import Dependencies
from app.config import Settings
from app.errors import Refused
from app.exchange.taking_in import take_in
from app.extensions import db, now, writing
from app.history.verify import verify
from app.keys.agent_keys import make_keys, open_keys
from app.keys.forgetting import forget_agent
from app.keys.provision import ensure_keys, find_unprovisioned, provision_keys
from app.keys.rotation import rotate_agent_key
from app.keys.shredding import TO_SHRED, is_due, shred_files
from app.keys.tokens import issue_token
from app.models import (
    COMMAND_LINE,
    AccessGrant,
    AccessView,
    Action,
    Agent,
    AuditLog,
    Consent,
    GrantStatus,
    InstallationMark,
    Intake,
    IntakeStatus,
    Memory,
    Refinement,
    Status,
    Trigger,
    User,
    record,
)
from app.models.agent import AgentForgotten
from app.models.base import iso
from app.models.declaring import declare
from app.models.key import AgentKey
from app.models.statement import StatementKind
from app.refinement.due import DueMoments, due_by_schedule
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from app.silo import SealBroken, seal_intake
from tests.refinement.driving import call, say
from tests.silo.holding import bytes_on_disk, give_token, hand_in, sealed_keys, texts
from tests.support.clock import FakeClock
from tests.support.databases import SERVER
from tests.support.factories import begin, make_agent, remember
from tests.support.scripted import ScriptedClient, ScriptedClients


def lost(agent: Agent) -> Agent:
    """The agent after it was forgotten."""
    forget_agent(agent.id, by=COMMAND_LINE)
    db.session.rollback()
    return db.session.get_one(Agent, agent.id, populate_existing=True)


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, "Ann likes tea.", "Bob likes rum.", "Cleo likes ink.")
    return made


@pytest.fixture
def careless(app: Flask) -> None:
    """A SQLite that overwrites nothing unless it is told to: its builds differ."""
    if not SERVER:
        db.engine.dispose()
        event.listen(db.engine, "connect", lambda raw, _: raw.execute("PRAGMA secure_delete=OFF"), insert=True)


def test_no_file_of_the_database_holds_its_keys_and_the_others_keep_theirs(careless: None, settings: Settings) -> None:
    agents = [make_agent(f"agent {number}") for number in range(20)]
    for each in agents:
        give_token(each)
    gone, staying = agents[::3], [each for each in agents if each not in agents[::3]]
    hand_in(gone[0], "Ann likes tea. " * 400)
    keys = [key for each in gone for key in sealed_keys(each)]
    handed_in = db.session.scalars(select(Intake.sealed)).one() or b""
    kept = [key for each in staying for key in sealed_keys(each)]
    assert len(keys) == 28
    assert all(key in bytes_on_disk(settings) for key in [*keys, handed_in[:200]])

    for each in gone:
        forget_agent(each.id, by=COMMAND_LINE)
    assert shred_files()

    after = bytes_on_disk(settings)
    assert [key for key in keys if key in after] == []
    assert not any(handed_in[place : place + 40] in after for place in range(0, len(handed_in) - 40, 40))
    assert all(key in after for key in kept)
    assert InstallationMark.read(TO_SHRED) is None


@pytest.mark.skipif(not SERVER, reason="an old snapshot keeps SQLite's WAL, and is waited for")
def test_an_old_snapshot_keeps_no_key_on_the_disk(agent: Agent, settings: Settings) -> None:
    keys = sealed_keys(agent)
    with db.engine.connect().execution_options(isolation_level="REPEATABLE READ") as reader:
        reader.execute(text("SELECT count(*) FROM accounts"))
        forget_agent(agent.id, by=COMMAND_LINE)
        assert shred_files()
        after = bytes_on_disk(settings)
    assert [key for key in keys if key in after] == []


def test_what_can_not_be_cleaned_yet_is_cleaned_later(
    agent: Agent, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = sealed_keys(agent)
    monkeypatch.setattr("app.keys.shredding.PATIENCE_MS", 50)
    with db.engine.connect() as reader:
        reader.execute(text("SELECT count(*) FROM agent_keys"))
        forget_agent(agent.id, by=COMMAND_LINE)
        assert not shred_files()
    assert InstallationMark.read(TO_SHRED) is not None
    assert shred_files()
    assert [key for key in keys if key in bytes_on_disk(settings)] == []


def test_keys_that_are_removed_while_the_disk_is_cleaned_are_cleaned_from_it_next(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_agent(agent.id, by=COMMAND_LINE)
    other = make_agent("eve")

    def clean_while_another_is_forgotten() -> bool:
        monkeypatch.undo()
        forget_agent(other.id, by=COMMAND_LINE)
        return True

    for step in ("_empty_wal", "_move_tables"):
        monkeypatch.setattr(f"app.keys.shredding.{step}", clean_while_another_is_forgotten)
    assert shred_files()
    assert is_due()
    assert shred_files()
    assert not is_due()


def test_nothing_opens_its_memories_any_more(agent: Agent) -> None:
    key, keys = give_token(agent), open_keys(agent)
    assert texts(agent, key) == texts(agent)
    gone = lost(agent)

    for opener in (None, key):
        with pytest.raises(AgentForgotten, match=r"ezra was forgotten on \d{4}-\d\d-\d\d"):
            open_keys(gone, opener)
        with pytest.raises(SealBroken):
            open_keys(agent_as_it_was(gone), opener)
    assert db.session.scalar(select(func.count(AgentKey.id))) == 0
    assert keys.versions == [1]


def agent_as_it_was(agent: Agent) -> Agent:
    """For code that loaded it before."""
    return Agent(id=agent.id, uuid=agent.uuid, name=agent.name)


def test_its_record_stays_and_proves_itself(agent: Agent) -> None:
    give_token(agent)
    hand_in(agent, "Dora likes salt.")
    entries = db.session.scalar(select(func.count(AuditLog.id)).where(AuditLog.agent_id == agent.id)) or 0

    done = forget_agent(agent.id, by=COMMAND_LINE)

    gone = db.session.get_one(Agent, agent.id, populate_existing=True)
    assert (done.keys, done.tokens, done.intakes, done.exceptions, done.memories) == (4, 1, 1, 0, 3)
    assert (gone.active, gone.paused, gone.core_count, gone.core_token_usage) == (False, True, 3, 12)
    assert gone.forgotten_at == now()
    log = db.session.scalars(select(AuditLog).where(AuditLog.agent_id == agent.id).order_by(AuditLog.id)).all()
    added = [str(entry.action) for entry in log[entries:]]
    assert added == ["agent_token_revoke", "agent_settings_update", "agent_pause", "agent_forget"]
    assert log[-1].data == {"keys": 4, "tokens": 1, "intakes": 1, "exceptions": 0, "memories": 3}
    verdict = verify()
    assert (verdict.ok, verdict.first_problem, verdict.forgotten) == (True, None, 1)
    assert verify(gone).forgotten == 1


def test_verify_names_keys_that_somebody_put_back_and_a_forgetting_that_nobody_recorded(agent: Agent) -> None:
    row = db.session.scalars(select(AgentKey)).first()
    assert row is not None
    kept = {name: getattr(row, name) for name in ("agent_id", "purpose", "version", "reader", "sealed")}
    forget_agent(agent.id, by=COMMAND_LINE)
    with writing() as session:
        session.add(AgentKey(**kept))
    assert "but 1 of its keys are there again" in str(verify().first_problem)
    with writing() as session:
        session.execute(text("DELETE FROM agent_keys"))
        session.execute(update(Agent).values(forgotten_at=None))
    assert "forgotten of the agent is not what" in str(verify().first_problem)


def test_a_running_refinement_is_ended_first_and_its_late_call_changes_nothing(agent: Agent) -> None:
    run = begin(agent)
    first = db.session.scalars(Memory.active(agent.id)).first()
    assert first is not None
    assert run.tool.execute("update", id=first.id, content="Ann: tea.")["type"] == "updated"

    forget_agent(agent.id, by=COMMAND_LINE)

    assert run.reload().status == Status.STOPPED
    assert "The agent was forgotten" in (run.reload().reason or "")
    late = run.tool.execute("delete", id=first.id, carried_by=first.id + 1)
    assert late["type"] == "error"
    assert db.session.get_one(Memory, first.id, populate_existing=True).is_active
    assert verify().ok


def test_a_refinement_that_is_forgotten_while_its_model_thinks_ends_and_writes_nothing_more(agent: Agent) -> None:
    refinement = start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE)

    def thinks(_: object) -> object:
        forget_agent(agent.id, by=COMMAND_LINE)
        return say("YES, gladly")

    run_refinement(
        refinement.id, Dependencies(ScriptedClients(ScriptedClient(thinks, call("complete_refinement", summary="x"))))
    )  # type: ignore[arg-type]

    row = db.session.get_one(Refinement, refinement.id, populate_existing=True)
    assert row.status == Status.STOPPED
    assert verify().ok


def exception_of(agent: Agent, status: GrantStatus) -> AccessGrant:
    """An exception as the database holds it, with an answer that was not fetched yet."""
    user = db.session.scalars(select(User)).first()
    assert user is not None
    moment = now()
    with writing() as session:
        locked = Agent.lock(agent.id)
        grant = AccessGrant(
            note=b"signed",
            id=str(uuid.uuid4()),
            account_id=agent.account_id,
            agent_id=agent.id,
            user_id=user.id,
            category="debugging",
            purpose="to see",
            minutes=60,
            status=status,
            requested_by="user:x",
            requested_at=now(),
            decided_at=moment if status == GrantStatus.GRANTED else None,
            expires_at=moment + timedelta(hours=1) if status == GrantStatus.GRANTED else None,
            views=0,
        )
        session.add(grant)
        if status == GrantStatus.GRANTED:
            said = {"granted": True, "database_time": iso(moment), "question": None, "reply": None}
            declare(StatementKind.EXCEPTION_DECIDED, locked, grant.subject, grant.stated() | said)
            whose = {"account_id": agent.account_id, "agent_id": agent.id, "grant_id": grant.id}
            session.add(Consent(**whose, granted=True, asked_at=now(), answered_at=now()))
        record(Action.ACCESS_REQUESTED, actor=COMMAND_LINE, of=locked, subject=grant.subject)
        look = {"id": str(uuid.uuid4()), "grant_id": grant.id, "user_id": user.id, "reader": b"\x00" * 32}
        session.add(AccessView(**look, wanted={}, note=b"signed", sealed=b"sealed to a request", requested_at=now()))
    return grant


def test_exceptions_end_as_revoked_and_an_answer_that_waits_is_emptied(agent: Agent) -> None:
    eve = make_agent("eve")
    mine = [exception_of(agent, status).id for status in (GrantStatus.PENDING, GrantStatus.GRANTED)]
    hers = exception_of(eve, GrantStatus.GRANTED).id

    assert forget_agent(agent.id, by=COMMAND_LINE).exceptions == 2

    db.session.rollback()
    states = dict(db.session.execute(select(AccessGrant.id, AccessGrant.status)).tuples().all())
    assert {states[each] for each in mine} == {"revoked"}
    assert states[hers] == "granted"
    waiting = select(AccessView.grant_id).where(AccessView.sealed.is_not(None))
    assert list(db.session.scalars(waiting)) == [hers]
    assert verify().ok


def test_what_waits_to_be_imported_is_emptied(agent: Agent) -> None:
    intake_id = hand_in(agent, "Dora likes salt.")
    forget_agent(agent.id, by=COMMAND_LINE)
    take_in(intake_id)

    intake = db.session.get_one(Intake, intake_id, populate_existing=True)
    assert (intake.status, intake.sealed) == (IntakeStatus.FAILED, None)
    assert intake.error == "The agent was forgotten before this was taken in."
    assert db.session.scalar(select(func.count(Memory.id))) == 3


def test_what_came_in_at_the_same_moment_is_refused_and_emptied_by_the_worker(agent: Agent) -> None:
    intake_id = hand_in(agent, "Dora likes salt.")
    row = db.session.get_one(Intake, intake_id)
    sealed, reader = row.sealed, row.reader
    forget_agent(agent.id, by=COMMAND_LINE)
    with writing() as session:
        late = {"status": IntakeStatus.WAITING, "sealed": sealed, "reader": reader, "error": None}
        session.execute(update(Intake).where(Intake.id == intake_id).values(late))

    take_in(intake_id)

    intake = db.session.get_one(Intake, intake_id, populate_existing=True)
    assert (intake.status, intake.sealed) == (IntakeStatus.FAILED, None)
    assert "no new ones are ever made for it" in (intake.error or "")
    assert sealed_keys(agent) == []


Act = Callable[[Agent], object]

REFUSED: dict[str, Act] = {
    "a start": lambda agent: start_refinement(agent.id, trigger=Trigger.ADMIN, by=COMMAND_LINE),
    "a start by itself": lambda agent: start_refinement(agent.id, trigger=Trigger.AGENT, by=COMMAND_LINE),
    "a token": lambda agent: _locked(agent, lambda row: issue_token(row, by=COMMAND_LINE)),
    "new keys": lambda agent: _locked(agent, make_keys),
    "keys where there are none": lambda agent: _locked(agent, ensure_keys),
    "an import": lambda agent: hand_in(agent, "Dora likes salt."),
    "a new version of its key": lambda agent: rotate_agent_key(agent.id, by=COMMAND_LINE),
    "resuming": lambda agent: _locked(agent, lambda row: row.resume(by=COMMAND_LINE)),
    "being active": lambda agent: _locked(agent, lambda row: row.change(active=True, by=COMMAND_LINE)),
    "forgetting it once more": lambda agent: forget_agent(agent.id, by=COMMAND_LINE),
}


def _locked(agent: Agent, act: Act) -> None:
    with writing():
        act(Agent.lock(agent.id))


@pytest.mark.parametrize("what", REFUSED)
def test_nothing_begins_again(agent: Agent, what: str) -> None:
    gone = lost(agent)
    before = (gone.audit_head, gone.audit_sequence)

    with pytest.raises(AgentForgotten, match="Nothing was written"):
        REFUSED[what](gone)

    db.session.rollback()
    gone = db.session.get_one(Agent, agent.id, populate_existing=True)
    assert (gone.audit_head, gone.audit_sequence) == before
    assert (gone.active, gone.paused) == (False, True)
    assert sealed_keys(agent) == []


def test_a_worker_that_is_asked_for_its_keys_makes_none(agent: Agent, clock: FakeClock) -> None:
    give_token(agent, provisioned=False)
    forget_agent(agent.id, by=COMMAND_LINE)
    clock.advance(minutes=5)

    assert find_unprovisioned() == []
    provision_keys(agent.id)

    assert sealed_keys(agent) == []


def test_no_sweep_starts_it(agent: Agent, clock: FakeClock) -> None:
    from app.refinement.sweep import sweep_over_budget, sweep_weekly

    clock.advance(days=30)
    assert [each for due in due_by_schedule(DueMoments.of(now())) for each in db.session.scalars(due)] == [agent.id]
    db.session.rollback()
    forget_agent(agent.id, by=COMMAND_LINE)

    assert sweep_weekly(now()) == sweep_over_budget(now()) == []


def test_racing_with_workers_it_ends_without_a_key(app: Flask) -> None:
    for number in range(8):
        agent = make_agent(f"agent {number}")
        give_token(agent, provisioned=False)
        intake_id = hand_in(agent, "Ann likes tea.")
        acts: list[Callable[[], object]] = [
            lambda: forget_agent(agent.id, by=COMMAND_LINE),  # noqa: B023 - joined within the round
            lambda: provision_keys(agent.id),  # noqa: B023
            lambda: take_in(intake_id),  # noqa: B023
            lambda: rotate_agent_key(agent.id, by=COMMAND_LINE),  # noqa: B023
        ]
        failures = at_once(app, acts)
        assert all(isinstance(failure, AgentForgotten) for failure in failures), failures
        assert sealed_keys(agent) == []
        left = db.session.get_one(Intake, intake_id, populate_existing=True)
        assert left.sealed is None
    assert verify().ok


def at_once(app: Flask, acts: list[Callable[[], object]]) -> list[BaseException]:
    """Every act in a thread of its own, begun at the same moment; returns what they raised."""
    gate, failures = threading.Barrier(len(acts)), []  # type: threading.Barrier, list[BaseException]

    def run(act: Callable[[], object]) -> None:
        with app.app_context():
            gate.wait(10)
            try:
                act()
            except Refused as refusal:
                failures.append(refusal)
            finally:
                db.session.remove()

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return failures


def test_an_intake_of_before_opens_for_no_other_agent(app: Flask) -> None:
    ezra, eve = make_agent("ezra"), make_agent("eve")
    intake_id = hand_in(eve, "Eve likes gin.")
    master = app.extensions["master_key"].public
    swapped = seal_intake('{"content": "x"}', b"signed", intake_id=intake_id, agent_uuid=ezra.uuid, master=master)
    with writing() as session:
        session.execute(update(Intake).where(Intake.id == intake_id).values(sealed=swapped))

    take_in(intake_id)

    intake = db.session.get_one(Intake, intake_id, populate_existing=True)
    assert (intake.status, intake.sealed) == (IntakeStatus.FAILED, None)
    assert "does not open" in (intake.error or "")
