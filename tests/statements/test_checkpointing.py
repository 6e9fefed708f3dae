"""Checkpoints: what is signed of the log every hour, kept outside the database, sent on, and held to."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from flask import Flask

from app.asking.replies import ConsentAnswer
from app.config import Settings
from app.extensions import db, writing
from app.grants import opening
from app.grants.request import decide_grant, request_access
from app.history.verify import verify, verify_account
from app.keys.escrow import back_up
from app.keys.rotation import rotate_master_key
from app.models import COMMAND_LINE, AccessGrant, Account, Agent, InstallationMark, LogLeaf
from app.models.base import iso
from app.models.statement import LeafKind
from app.models.statement_errors import LogBroken
from app.models.statement_log import statement_log
from app.models.user import ADMIN
from app.silo.checkpoints import open_checkpoint
from app.silo.notes import SigningKey, installation_name, sign_note
from app.statements.checkpointing import (
    CHECKPOINT,
    CheckpointTimer,
    checkpoint_file,
    checkpoint_if_due,
    is_covered,
    make_checkpoint,
    overdue_words,
    signed_checkpoint,
    unsent_words,
)
from tests.history.test_verify_statements import SHORT
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, make_user, remember
from tests.support.tampering import hash_anew, rows, tamper


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("wren")
    remember(made, "Ann likes tea.", "Bob moved to Oslo.")
    return made


def heads() -> list[tuple[str, int]]:
    """Chains and entries that leaves of the log name, in their order."""
    leaves = db.session.scalars(
        db.select(LogLeaf.leaf).where(LogLeaf.kind == LeafKind.CHAIN).order_by(LogLeaf.position)
    )
    said = [json.loads(leaf) for leaf in leaves]
    db.session.rollback()
    return [(each["chain"], each["sequence"]) for each in said]


def first_problem() -> str:
    db.session.expunge_all()
    return str(verify().first_problem)


def test_it_is_signed_by_the_installation_of_the_whole_log_and_stands_in_a_private_file(agent: Agent) -> None:
    note = make_checkpoint()

    log = statement_log()
    signed = open_checkpoint(note, installation_name(log.installation), log.keys.verifier)
    assert (signed.size, signed.root) == (log.copy.size, log.copy.root())
    assert checkpoint_file().read() == [note]
    assert stat.S_IMODE(checkpoint_file().path.stat().st_mode) == 0o600
    assert InstallationMark.read(CHECKPOINT) == note.decode()


def test_every_chain_that_moved_has_its_end_in_the_log_once(agent: Agent) -> None:
    make_checkpoint()
    account = db.session.get_one(Account, 1)
    assert heads() == [("account:1", account.audit_sequence), (agent.chain, 2)]

    remember(agent, "Cleo likes ink.")
    make_checkpoint()
    make_checkpoint()

    assert heads()[2:] == [(agent.chain, 3)]
    assert verify().ok, first_problem()
    assert verify_account(1).ok


def test_a_chain_whose_end_was_cut_off_is_found_without_any_exported_head(agent: Agent) -> None:
    make_checkpoint()
    tamper("DELETE FROM memory_states WHERE entry_id = (SELECT max(id) FROM audit_log)")
    tamper("DELETE FROM content_keys")
    tamper("DELETE FROM memory_texts")
    tamper("DELETE FROM memories")
    tamper("DELETE FROM audit_log WHERE id = (SELECT max(id) FROM audit_log)")
    first = rows("SELECT hash FROM audit_log WHERE agent_id = 1")[0][0]
    totals = "core_count = 0, core_token_usage = 0"
    tamper(f"UPDATE agents SET audit_sequence = 1, audit_head = :head, {totals} WHERE id = 1", head=bytes(first))

    assert "entry 2 is missing, whose hash the log of statements holds" in first_problem()
    assert "entry 2 is missing" in str(verify_account(1).first_problem)


def test_a_chain_that_was_written_anew_is_found(agent: Agent) -> None:
    make_checkpoint()
    tamper("UPDATE audit_log SET actor = 'user:nobody' WHERE agent_id = 1 AND sequence = 2")
    hash_anew(db.session.get_one(Agent, 1, populate_existing=True))

    assert "has another hash than the log of statements holds: it was rewritten" in first_problem()


def test_a_row_that_hides_its_chain_from_checkpoints_is_found(agent: Agent) -> None:
    remember(agent, "Cleo likes ink.")
    tamper("UPDATE agents SET logged_sequence = audit_sequence")
    make_checkpoint()

    assert "its row says that the log of statements holds entry 3, and that is entry 0" in first_problem()


def test_the_end_of_a_chain_is_the_one_that_was_seen(agent: Agent) -> None:
    """Whoever writes a chain anew would write its end in the log anew, too."""
    make_checkpoint()
    chain, entry = agent.chain, "SELECT hash FROM audit_log WHERE agent_id = 1 AND sequence = 2"
    was = bytes(rows(entry)[0][0]).hex()
    tamper("UPDATE audit_log SET actor = 'user:nobody' WHERE agent_id = 1 AND sequence = 2")
    hash_anew(db.session.get_one(Agent, 1, populate_existing=True))
    leaf = bytes(rows("SELECT leaf FROM log_leaves WHERE kind = 'chain' AND subject = :chain", chain=chain)[0][0])
    other = leaf.replace(was.encode(), bytes(rows(entry)[0][0]).hex().encode())
    assert other != leaf
    tamper("UPDATE log_leaves SET leaf = :other WHERE kind = 'chain' AND subject = :chain", other=other, chain=chain)

    problem = str(verify(db.session.get_one(Agent, 1, populate_existing=True)).first_problem)
    assert "which names its end, was altered" in problem


def test_checkpoints_of_both_keys_are_proved_after_a_rotation(agent: Agent) -> None:
    make_checkpoint()
    rotate_master_key(by=COMMAND_LINE)
    make_checkpoint()

    assert verify().ok, first_problem()
    assert len(checkpoint_file().read()) == 2


@pytest.mark.parametrize("how", ["foreign", "altered", "shorter", "forked"])
def test_a_file_of_checkpoints_that_does_not_hold_is_found(agent: Agent, how: str) -> None:
    first, log = make_checkpoint(), statement_log()
    second = make_checkpoint()
    origin, size = installation_name(log.installation), log.copy.size
    text = second.partition(b"\n\n")[0].decode() + "\n"
    bad = {
        "foreign": sign_note(text, SigningKey(origin, bytes(32))),
        "altered": second.replace(f"\n{size}\n".encode(), f"\n{size - 1}\n".encode()),
        "shorter": first,
        "forked": sign_note(text.replace(f"\n{size}\n", f"\n{size - 1}\n"), log.keys.signing_key()),
    }[how]
    checkpoint_file().append([bad])

    assert "checkpoint" in first_problem()


def test_none_is_signed_that_does_not_extend_the_last(agent: Agent) -> None:
    log = statement_log()
    size = make_checkpoint().decode().split("\n")[1]
    text = f"{installation_name(log.installation)}\n{size}\n{'A' * 43}=\n"
    checkpoint_file().append([sign_note(text, log.keys.signing_key())])

    with pytest.raises(LogBroken, match="does not begin with"):
        make_checkpoint()
    assert len(checkpoint_file().read()) == 2


def test_a_kept_checkpoint_is_held_against_the_log(agent: Agent) -> None:
    kept, log = make_checkpoint(), statement_log()
    remember(agent, "Cleo likes ink.")
    make_checkpoint()
    origin = installation_name(log.installation)
    forked = sign_note(f"{origin}\n3\n{'A' * 43}=\n", log.keys.signing_key())
    ahead = sign_note(f"{origin}\n999\n{'A' * 43}=\n", log.keys.signing_key())

    assert verify(checkpoints=[kept]).ok
    assert "does not begin with the 3 leaves" in str(verify(checkpoints=[forked]).first_problem)
    assert "a checkpoint of 999 leaves was signed" in str(verify(checkpoints=[ahead]).first_problem)
    assert "none of this installation's" in str(verify(checkpoints=[b"mine"]).first_problem)


def test_one_is_due_every_hour_and_an_alarm_after_two(agent: Agent, clock: FakeClock) -> None:
    assert checkpoint_if_due()
    clock.advance(minutes=59)
    assert not checkpoint_if_due()
    clock.advance(minutes=1)
    assert checkpoint_if_due()
    clock.advance(hours=2)
    assert overdue_words() is None
    clock.advance(seconds=1)
    assert "No checkpoint of the log of statements was made since 2026-11-16 05:00 UTC" in str(overdue_words())
    assert checkpoint_if_due()
    assert overdue_words() is None


def test_a_clock_that_was_ahead_and_is_set_back_does_not_stop_them(agent: Agent, clock: FakeClock) -> None:
    clock.advance(days=2)
    checkpoint_if_due()
    clock.advance(days=-2)

    assert overdue_words() is not None
    assert checkpoint_if_due()
    assert overdue_words() is None


def test_a_time_that_was_altered_hides_no_missing_checkpoint(agent: Agent, clock: FakeClock) -> None:
    begun = statement_log().begun_at()
    assert begun is not None
    clock.at = begun
    make_checkpoint()
    clock.advance(hours=3)
    later = json.dumps({"time": iso(clock.at)}).encode()
    assert tamper("UPDATE log_leaves SET leaf = :later WHERE kind = 'time'", later=later)

    assert overdue_words() is not None
    assert checkpoint_if_due()


def test_without_any_the_alarm_begins_two_hours_after_the_log(agent: Agent, clock: FakeClock) -> None:
    begun = statement_log().begun_at()
    assert begun is not None
    clock.at = begun
    assert overdue_words() is None
    clock.advance(hours=2, seconds=1)
    assert "was made yet" in str(overdue_words())


def test_the_web_process_believes_only_a_genuine_one(agent: Agent, web: Flask) -> None:
    note = make_checkpoint().decode()
    checkpoint_file().path.unlink()  # as on a host where none is made
    with web.app_context():
        assert signed_checkpoint() is not None
        with writing():
            InstallationMark.write(CHECKPOINT, note.replace("\n", "\n9", 1))
        assert signed_checkpoint() is None
        db.session.remove()


def test_a_backup_of_the_key_makes_one(agent: Agent, settings: Settings) -> None:
    back_up(settings.data / "backup.pem", "a long enough passphrase", by=COMMAND_LINE)

    assert len(checkpoint_file().read()) == 1


def test_an_exception_is_in_a_checkpoint_before_its_first_look_and_no_second_one_is_made_for_it(agent: Agent) -> None:
    ann = make_user("ann@example.org", ADMIN)
    grant = request_access(agent.id, SHORT, for_user=ann, by=ann.actor)
    decide_grant(grant.id, ConsentAnswer(True, "Yes."), agent_id=agent.id, by=agent.as_actor, keys=None)
    grant = db.session.get_one(AccessGrant, grant.id)
    decided = rows("SELECT max(position) FROM log_leaves")[0][0]
    make_first = is_covered(decided)

    for _ in range(2):
        look = opening.look(grant, ann)
        opening.answer_view(look.view_id)
        assert opening.fetch_view(look)["items"]

    assert not make_first
    assert is_covered(decided)
    assert len(checkpoint_file().read()) == 1


def test_the_timer_makes_one_by_itself_and_goes_on_after_a_failure(agent: Agent, app: Flask) -> None:
    timer = CheckpointTimer(app, interval=0.01)
    made = threading.Event()
    append = checkpoint_file().__class__.append

    def failing_first(self: object, notes: list[bytes]) -> None:
        if not made.is_set():
            made.set()
            raise LogBroken("it is only a test")
        append(self, notes)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.silo.notefile.NoteFile.append", failing_first)
        timer.start()
        for _ in range(2000):
            if checkpoint_file().read():
                break
            threading.Event().wait(0.01)
        timer.stop()
    assert len(checkpoint_file().read()) == 1


class Witness(HTTPServer):
    """Keeps what it is sent; answers as it is told."""

    def __init__(self) -> None:
        self.status, self.taken, self.kinds = 204, list[bytes](), list[str]()
        witness = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if witness.status == 204:
                    witness.taken.append(body)  # before it answers: whoever reads the answer looks here next
                    witness.kinds.append(self.headers["Content-Type"])
                self.send_response(witness.status)
                if witness.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quiet."""

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def witness(app: Flask) -> Iterator[Witness]:
    with Witness() as server:
        running = threading.Thread(target=server.serve_forever)
        running.start()
        url = f"http://127.0.0.1:{server.server_port}/checkpoints"
        app.extensions["settings"] = app.extensions["settings"].model_copy(update={"checkpoint_url": url})
        yield server
        server.shutdown()
        running.join()


def test_each_is_sent_once_and_what_failed_is_sent_with_the_next(agent: Agent, witness: Witness) -> None:
    first = make_checkpoint()
    for status in (500, 302):
        witness.status = status
        make_checkpoint()
        assert f"status {status}" in str(unsent_words())
    witness.status = 204
    make_checkpoint()

    assert witness.taken == checkpoint_file().read()
    assert witness.taken[0] == first
    assert set(witness.kinds) == {"text/plain; charset=utf-8"}
    assert unsent_words() is None


def test_an_address_that_does_not_answer_holds_nothing_up(agent: Agent, app: Flask) -> None:
    unreachable = {"checkpoint_url": "http://127.0.0.1:9/"}
    app.extensions["settings"] = app.extensions["settings"].model_copy(update=unreachable)

    make_checkpoint()

    assert "it does not answer" in str(unsent_words())
    assert len(checkpoint_file().read()) == 1
