"""Rotation of the master key: everything is sealed anew, nothing is rewritten, and it may be killed anywhere."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from flask import Flask
from sqlalchemy import select, text

from app.asking.calls import Dependencies
from app.config import ROOT, Settings
from app.errors import Refused
from app.exchange.taking_in import take_in
from app.extensions import db, writing
from app.history.verify import verify
from app.keys.agent_keys import make_keys, open_keys
from app.keys.rotation import prepare_master_rotation, rotate_agent_key, rotate_master_key, unfinished_rotation
from app.keys.tokens import revoke_token
from app.models import (
    COMMAND_LINE,
    Account,
    Agent,
    AgentToken,
    AuditLog,
    ContentKey,
    Intake,
    IntakeStatus,
    MasterKeyRow,
    Memory,
    MemoryText,
    Refinement,
    Status,
    Trigger,
    master_key,
)
from app.models.key import AgentKey
from app.models.statement_log import master_public_key
from app.refinement.process import run_refinement
from app.refinement.start import start_refinement
from app.setup import load_master_key
from app.silo import KeyFileError, KeyRing, MasterKey, SealBroken, Sealed
from app.silo.sealed import version_of_key
from tests.refinement.driving import call, say
from tests.silo.holding import give_token, hand_in, readers, texts
from tests.support.databases import SERVER
from tests.support.factories import Running, begin, make_agent, remember
from tests.support.processes import wait_for
from tests.support.scripted import ScriptedClient, ScriptedClients
from tests.support.workers import environment_of

DATA, DEDUP = ("data", 1), ("dedup", 1)


def ring_of(settings: Settings) -> KeyRing:
    return KeyRing(settings.master_key_path)


def masters() -> dict[str, bool]:
    """Every master key that the database knows, and whether it is retired; the oldest first."""
    db.session.rollback()
    rows = db.session.scalars(select(MasterKeyRow).order_by(MasterKeyRow.id).execution_options(populate_existing=True))
    return {row.fingerprint: row.retired_at is not None for row in rows}


def sealed_rows() -> list[tuple[int, Sealed, bytes]]:
    db.session.rollback()
    texts = select(MemoryText.memory_id, MemoryText.sealed, MemoryText.content_hash).order_by(MemoryText.memory_id)
    return list(db.session.execute(texts).tuples())


def test_everything_is_sealed_to_the_new_key_and_no_memory_is_rewritten(app: Flask, settings: Settings) -> None:
    ezra, eve = make_agent("ezra"), make_agent("eve")
    remember(ezra, "Ann likes tea.", "Bob likes rum.")
    remember(eve, "Eve likes gin.")
    key, intake_id, old = give_token(ezra), hand_in(eve, "Eve likes salt."), master_key().fingerprint
    before = sealed_rows()

    done = rotate_master_key(by=COMMAND_LINE)

    assert (done.finished, done.resumed, done.keys, done.intakes, done.problems) == (True, False, 4, 1, {})
    assert masters() == {old: True, done.fingerprint: False}
    assert readers(eve) == [(*DATA, done.fingerprint), (*DEDUP, done.fingerprint)]
    assert {reader for _, _, reader in readers(ezra)} == {done.fingerprint, key.fingerprint}
    assert sealed_rows() == before
    assert texts(ezra) == texts(ezra, key) == ["Ann likes tea.", "Bob likes rum."]
    take_in(intake_id)
    assert texts(eve) == ["Eve likes gin.", "Eve likes salt."]
    with pytest.raises(SealBroken):
        open_keys(ezra, MasterKey.load(ring_of(settings).kept_path(old)))
    assert unfinished_rotation() == []
    assert verify().ok


def test_the_new_key_takes_the_files_place_and_the_old_one_stays_beside_it(app: Flask, settings: Settings) -> None:
    ring, old = ring_of(settings), master_key()

    new = rotate_master_key(by=COMMAND_LINE).fingerprint

    assert MasterKey.load(ring.path).fingerprint == new == load_master_key(settings).fingerprint
    assert ring.kept() == [ring.kept_path(old.fingerprint)]
    assert MasterKey.load(ring.kept()[0]).fingerprint == old.fingerprint
    for path in (ring.path, *ring.kept()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(path.name for path in ring.path.parent.iterdir() if "master" in path.name) == [
        "master.key",
        f"master.key.{old.fingerprint}",
    ]


def test_every_accounts_log_says_when_it_began_and_ended(app: Flask) -> None:
    old = master_key().fingerprint
    make_agent("ezra")
    with writing():
        other = Account.create("Next door").id
    new = rotate_master_key(by=COMMAND_LINE).fingerprint

    for account_id, agents in ((1, 1), (other, 0)):
        entries = db.session.scalars(
            select(AuditLog).where(AuditLog.account_id == account_id, AuditLog.action == "master_key_rotate")
        ).all()
        begun, ended = sorted(entries, key=lambda entry: entry.sequence)
        assert (begun.subject, begun.data) == ("master_key", {"step": "begun", "from": old, "to": new})
        assert ended.data == {"step": "done", "from": [old], "to": new, "agents": agents}


def test_a_second_rotation_follows_the_first(app: Flask, settings: Settings) -> None:
    ezra = make_agent("ezra")
    remember(ezra, "Ann likes tea.")
    first = master_key().fingerprint
    second = rotate_master_key(by=COMMAND_LINE).fingerprint
    third = rotate_master_key(by=COMMAND_LINE).fingerprint

    assert masters() == {first: True, second: True, third: False}
    assert {path.suffix[1:] for path in ring_of(settings).kept()} == {first, second}
    assert texts(ezra) == ["Ann likes tea."]
    for path in ring_of(settings).kept():
        path.unlink()
    assert texts(ezra) == ["Ann likes tea."]


class Scene:
    """An agent in mid-run, another in the queue, a third with an import that waits, when a rotation begins."""

    def __init__(self) -> None:
        self.running, self.queued, self.third = make_agent("running"), make_agent("queued"), make_agent("third")
        self.first, self.second = remember(self.running, "Ann likes tea.", "Ann likes tea a lot.")
        self.other, *_ = remember(self.queued, "Bob likes rum.", "Bob likes rum a lot.")
        self.token = give_token(self.queued)
        self.run: Running = begin(self.running)
        self.refinement = start_refinement(self.queued.id, trigger=Trigger.ADMIN, by=COMMAND_LINE).id
        self.intake = hand_in(self.third, "Cleo likes ink.")
        self.before = sealed_rows()
        self.old = master_key().fingerprint
        db.session.rollback()

    def nothing_is_lost(self) -> None:
        """Whatever holds the old key, as a running worker does, still opens everything."""
        self.look_again()
        assert texts(self.running) == ["Ann likes tea.", "Ann likes tea a lot."]
        assert texts(self.queued) == texts(self.queued, self.token) == ["Bob likes rum.", "Bob likes rum a lot."]
        assert sealed_rows() == self.before

    def look_again(self) -> None:
        """Verify has put all rows out of the session."""
        for agent in (self.running, self.queued, self.third):
            if agent not in db.session:
                db.session.add(agent)

    def goes_on(self) -> None:
        """The work that was waiting and the work that was running are done as if nothing had happened."""
        assert self.run.tool.execute("update", id=self.first, content="Ann: tea.")["type"] == "updated"
        assert self.run.tool.execute("complete", summary="Tightened one.")["type"] == "refinement_complete"
        work = call("update_memory", id=self.other, content="Bob: rum.")
        client = ScriptedClient(say("YES"), work, call("complete_refinement", summary="Done."))
        run_refinement(self.refinement, Dependencies(ScriptedClients(client)))
        take_in(self.intake)
        db.session.rollback()
        for number in (self.run.claim.refinement_id, self.refinement):
            row = db.session.get_one(Refinement, number, populate_existing=True)
            assert (row.status, row.mutations) == (Status.COMPLETED, 1)
        assert db.session.get_one(Intake, self.intake, populate_existing=True).status == IntakeStatus.TAKEN
        assert texts(self.running)[0] == "Ann: tea."
        assert texts(self.queued)[0] == texts(self.queued, self.token)[0] == "Bob: rum."
        assert texts(self.third) == ["Cleo likes ink."]


STEPS = ["made", "registered", "taken", "agent 1", "agent 2", "agent 3", "intake", "looked for what is left"]


@pytest.mark.slow
@pytest.mark.parametrize("last", range(1, len(STEPS) + 1), ids=STEPS)
def test_killed_after_any_step_it_goes_on_where_it_was_and_nothing_is_lost(
    app: Flask, settings: Settings, last: int
) -> None:
    scene = Scene()
    killed = subprocess.run(
        [sys.executable, "-m", "tests.silo.dying", str(last)],
        cwd=ROOT,
        env=environment_of(settings),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert killed.returncode == -9, killed.stderr
    said = killed.stdout.splitlines()
    assert [line.split()[0] for line in said] == [step.split()[0] for step in STEPS[:last]]

    scene.nothing_is_lost()
    assert load_master_key(settings).fingerprint == list(masters())[-1]
    assert verify().ok
    is_over = last == len(STEPS)
    assert unfinished_rotation() == ([scene.old] if 1 < last < len(STEPS) else [])

    done = rotate_master_key(by=COMMAND_LINE)

    assert (done.finished, done.resumed, done.problems) == (True, 1 < last < len(STEPS), {})
    assert len(masters()) == (3 if is_over else 2)
    assert list(masters().values())[-1] is False
    assert all(list(masters().values())[:-1])
    scene.nothing_is_lost()
    assert {reader for _, _, reader in readers(scene.running)} == {done.fingerprint}
    assert not ring_of(settings).next_path.exists()
    assert MasterKey.load(settings.master_key_path).fingerprint == done.fingerprint
    assert ring_of(settings).kept_path(scene.old).exists()
    scene.goes_on()
    assert verify().ok


def test_the_files_change_places_wherever_that_was_cut_off(tmp_path: Path) -> None:
    old, new = MasterKey.generate(), MasterKey.generate()
    ring = KeyRing(tmp_path / "keys" / "master.key")
    for number, there in enumerate(
        [
            {ring.path: old, ring.next_path: new},
            {ring.path: old, ring.next_path: new, ring.kept_path(old.fingerprint): old},
            {ring.path: new, ring.next_path: new, ring.kept_path(old.fingerprint): old},
            {ring.path: new, ring.kept_path(old.fingerprint): old},
        ]
    ):
        for path in ring.path.parent.glob("*"):
            path.unlink()
        for path, key in there.items():
            key.save(path)
        ring.path.with_name(".master.key.0123abcd.draft").write_text("half of a k")
        assert ring.find(new.fingerprint).fingerprint == new.fingerprint, number
        with ring.held():
            ring.take(new)
        names = {path.name: MasterKey.load(path).fingerprint for path in ring.path.parent.iterdir()}
        assert names == {"master.key": new.fingerprint, f"master.key.{old.fingerprint}": old.fingerprint}, number


def test_a_file_under_the_old_keys_name_that_is_another_is_never_written_over(tmp_path: Path) -> None:
    old, new, strange = (MasterKey.generate() for _ in range(3))
    ring = KeyRing(tmp_path / "master.key")
    old.save(ring.path)
    strange.save(ring.kept_path(old.fingerprint))
    with pytest.raises(KeyFileError, match="is not the key that its name says"):
        ring.take(new)
    assert MasterKey.load(ring.path).fingerprint == old.fingerprint
    assert MasterKey.load(ring.kept_path(old.fingerprint)).fingerprint == strange.fingerprint


def test_only_one_rotation_at_a_time_changes_the_files(app: Flask, settings: Settings) -> None:
    before = masters()
    with ring_of(settings).held():
        for act in (lambda: rotate_master_key(by=COMMAND_LINE), prepare_master_rotation):
            with pytest.raises(Refused, match="Another rotation is at work"):
                act()
    assert masters() == before
    assert not ring_of(settings).next_path.exists()


def test_two_machines_that_rotate_at_once_make_one_new_key(app: Flask, settings: Settings, tmp_path: Path) -> None:
    """The second one has files of its own, so that only the database can tell it."""
    elsewhere = settings.model_copy(update={"master_key_file": tmp_path / "elsewhere" / "master.key"})
    master_key().save(elsewhere.master_key_path)

    def other_machine(step: str) -> None:
        if step == "made":
            app.extensions["settings"] = settings
            rotate_master_key(by=COMMAND_LINE)
            app.extensions["settings"] = elsewhere

    app.extensions["settings"] = elsewhere
    with pytest.raises(Refused, match="Another machine rotates"):
        rotate_master_key(by=COMMAND_LINE, told=other_machine)
    assert len(masters()) == 2
    assert verify().ok


def test_a_key_that_does_not_open_is_named_and_keeps_the_old_master_key_in_use(app: Flask) -> None:
    ezra, eve = make_agent("ezra"), make_agent("eve")
    remember(ezra, "Ann likes tea.")
    remember(eve, "Eve likes gin.")
    old = master_key().fingerprint
    row = db.session.scalars(select(AgentKey).where(AgentKey.agent_id == ezra.id, AgentKey.purpose == "data")).one()
    number, right = row.id, row.sealed
    _set_sealed(number, right[:-1] + bytes([right[-1] ^ 1]))

    done = rotate_master_key(by=COMMAND_LINE)

    assert (done.finished, list(done.problems)) == (False, [f"agent {ezra.id}"])
    assert "not those that were signed" in done.problems[f"agent {ezra.id}"]
    assert masters() == {old: False, done.fingerprint: False}
    assert {reader for _, _, reader in readers(ezra)} == {old}
    assert texts(eve) == ["Eve likes gin."]

    _set_sealed(number, right)
    again = rotate_master_key(by=COMMAND_LINE)
    assert (again.finished, again.resumed, again.fingerprint) == (True, True, done.fingerprint)
    assert texts(ezra) == ["Ann likes tea."]


def _set_sealed(number: int, sealed: bytes) -> None:
    with writing() as session:
        session.get_one(AgentKey, number, populate_existing=True).sealed = sealed


def test_a_prepared_key_is_the_one_that_is_taken(app: Flask, settings: Settings) -> None:
    before = masters()
    new = prepare_master_rotation()
    assert prepare_master_rotation().fingerprint == new.fingerprint
    assert masters() == before
    assert MasterKey.load(settings.master_key_path).fingerprint == next(iter(before))
    assert rotate_master_key(by=COMMAND_LINE).fingerprint == new.fingerprint


def test_a_next_key_that_was_in_use_already_is_refused(app: Flask, settings: Settings) -> None:
    master_key().save(ring_of(settings).next_path)
    before = masters()
    with pytest.raises(KeyFileError, match="knows already"):
        rotate_master_key(by=COMMAND_LINE)
    assert masters() == before


def test_new_agents_and_imports_are_sealed_to_the_new_key_at_once(app: Flask) -> None:
    old, made = master_key().fingerprint, []

    def in_between(step: str) -> None:
        if step == "registered":
            made.append(make_agent("in between"))
            made.append(db.session.get_one(Intake, hand_in(make_agent("third"), "Cleo likes ink.")).reader)

    new = rotate_master_key(by=COMMAND_LINE, told=in_between).fingerprint

    assert {reader for _, _, reader in readers(made[0])} == {new} != {old}
    assert made[1] == new


def test_it_does_not_end_while_an_import_waits_that_was_sealed_to_the_old_key(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who had read the old key hands it in when all others were sealed anew already."""
    ezra = make_agent("ezra")
    first, old, late = hand_in(ezra, "Ann likes tea."), master_key().public, []  # type: str, MasterPublicKey, list[str]

    def too_late(step: str) -> None:
        if step == f"intake {first}":
            with monkeypatch.context() as patch:
                patch.setattr("app.models.intake.master_public_key", lambda: old)
                late.append(hand_in(ezra, "Bob likes rum."))

    done = rotate_master_key(by=COMMAND_LINE, told=too_late)

    assert (done.finished, done.intakes) == (True, 2)
    found = db.session.get_one(Intake, late[0], populate_existing=True)
    assert found.reader == done.fingerprint != old.fingerprint
    for number in (first, late[0]):
        take_in(number)
    assert texts(ezra) == ["Ann likes tea.", "Bob likes rum."]


@pytest.mark.skipif(not SERVER, reason="SQLite has one writer: none can be about to seal to the old key")
def test_it_does_not_end_before_who_is_about_to_seal_to_the_old_key_has_done_so(app: Flask) -> None:
    old = master_key().fingerprint
    with writing():
        Account.lock(1)
        late = Agent.create(1, name="late", model_id="whetstone/offline", by=COMMAND_LINE)
    has_read, may_commit, steps = threading.Event(), threading.Event(), []  # type: threading.Event, threading.Event, list[str]

    def seal_slowly() -> None:
        with app.app_context():
            with writing():
                make_keys(Agent.lock(late.id))
                has_read.set()
                assert may_commit.wait(30)
            db.session.remove()

    thread = threading.Thread(target=seal_slowly)

    def told(step: str) -> None:
        steps.append(step)
        if step == "made":
            thread.start()
            assert has_read.wait(30)
        if step == "taken":
            threading.Thread(target=_release_when_waited_for, args=(app, may_commit)).start()

    done = rotate_master_key(by=COMMAND_LINE, told=told)
    thread.join(30)

    assert (done.finished, done.keys) == (True, 2)
    assert steps.count("looked for what is left") == 2
    assert {reader for _, _, reader in readers(late)} == {done.fingerprint} != {old}


def _release_when_waited_for(app: Flask, may_commit: threading.Event) -> None:
    waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    with app.app_context(), db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        wait_for(lambda: connection.scalar(waiting))
    may_commit.set()


def test_the_web_seals_to_the_newest_key_that_is_not_retired(app: Flask) -> None:
    new = rotate_master_key(by=COMMAND_LINE).fingerprint
    assert master_public_key().fingerprint == new
    db.session.rollback()


def test_an_agents_new_version_seals_new_writes_and_rewrites_nothing(app: Flask) -> None:
    ezra = make_agent("ezra")
    remember(ezra, "Ann likes tea.")
    key, gone = give_token(ezra), give_token(ezra)
    with writing() as session:
        locked = Agent.lock(ezra.id)
        revoked = session.scalars(select(AgentToken).where(AgentToken.public_key == gone.public.raw)).one()
        revoke_token(locked, revoked.public_id, by=COMMAND_LINE)
    before = sealed_rows()

    assert rotate_agent_key(ezra.id, by=COMMAND_LINE) == 2

    remember(ezra, "Bob likes rum.")
    keys = db.session.scalars(
        select(ContentKey.sealed).where(ContentKey.agent_id == ezra.id).order_by(ContentKey.memory_id)
    )
    versions = [version_of_key(each) for each in keys]
    assert versions == [2, 2]
    assert sealed_rows()[:1] == before
    assert texts(ezra) == texts(ezra, key) == ["Ann likes tea.", "Bob likes rum."]
    with pytest.raises(SealBroken, match="No keys of agent"):
        texts(ezra, gone)
    hashes = {memory.content.content_hash for memory in db.session.scalars(Memory.active(ezra.id))}
    assert open_keys(ezra).content_hash("Ann likes tea. ") in hashes
    assert rotate_agent_key(ezra.id, by=COMMAND_LINE) == 3
    entries = db.session.scalars(
        select(AuditLog).where(AuditLog.action == "agent_key_rotate").order_by(AuditLog.id)
    ).all()
    assert [entry.data for entry in entries] == [
        {"version": 2, "readers": 2, "rewrapped": 1, "revoked": [entries[0].data["revoked"][0]]},
        {"version": 3, "readers": 2, "rewrapped": 2},
    ]
    assert verify().ok


def test_a_running_refinement_goes_on_with_its_keys_and_reads_what_was_sealed_since(app: Flask) -> None:
    ezra = make_agent("ezra")
    (first,) = remember(ezra, "Ann likes tea.")
    run = begin(ezra)
    rotate_agent_key(ezra.id, by=COMMAND_LINE)
    remember(ezra, "Bob likes rum.")

    found = run.tool.execute("search", query="likes")
    assert found["count"] == 2
    assert run.tool.execute("update", id=first, content="Ann: tea.")["type"] == "updated"
    assert run.tool.execute("complete", summary="One tightened.")["type"] == "refinement_complete"

    assert sorted(texts(ezra))[:2] == ["Ann: tea.", "Bob likes rum."]
    assert verify().ok


def test_an_agents_new_version_in_the_middle_of_a_rotation_is_sealed_to_the_new_key_whole(app: Flask) -> None:
    ezra = make_agent("ezra")
    remember(ezra, "Ann likes tea.")

    def in_between(step: str) -> None:
        if step == "taken":
            rotate_agent_key(ezra.id, by=COMMAND_LINE)
            assert texts(ezra) == ["Ann likes tea."]

    done = rotate_master_key(by=COMMAND_LINE, told=in_between)

    assert done.finished
    assert readers(ezra) == [(purpose, version, done.fingerprint) for purpose, version in (DATA, ("data", 2), DEDUP)]
    remember(ezra, "Bob likes rum.")
    assert texts(ezra) == ["Ann likes tea.", "Bob likes rum."]
