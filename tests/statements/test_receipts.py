"""Receipts: whoever has the public key sees that a statement stands in the log, and nobody makes one up."""

from __future__ import annotations

import pytest
from flask import Flask
from sqlalchemy import select

from app.errors import NotFound
from app.extensions import writing
from app.keys.rotation import rotate_master_key
from app.models import COMMAND_LINE, Account, Agent
from app.models.appending import append_leaf
from app.models.installation import InstallationMark
from app.models.statement import LeafKind, StatementKind
from app.models.statement_errors import AgentStopped
from app.models.statement_log import current_of, statement_log
from app.silo.merkle import ProofBroken
from app.silo.notes import NoteBroken, NoteVerifier, SigningKey
from app.statements.checkpointing import CHECKPOINT, checkpoint_file, latest_checkpoint, make_checkpoint
from app.statements.receipts import ReceiptPending, check_receipt, find_index, is_covered, list_receipts, make_receipt
from tests.support.factories import make_agent
from tests.support.tampering import tamper

ANYBODY = select(Agent.id)


@pytest.fixture
def agent(app: Flask) -> Agent:
    return make_agent()


def model_of(agent: Agent) -> int:
    """The place of the newest statement about its model."""
    stated = current_of(agent.id, agent.uuid).model
    assert stated is not None
    assert stated.position is not None
    return stated.position


def key() -> NoteVerifier:
    return statement_log().keys.verifier


def test_a_receipt_is_checked_with_the_public_key_alone(agent: Agent) -> None:
    make_checkpoint()
    made = make_receipt(model_of(agent))

    found = check_receipt(made.file, NoteVerifier.parse(key().vkey))

    assert (found.said.kind, found.said.agent) == (StatementKind.MODEL, agent.uuid)
    assert found.said.body["model_id"] == agent.model_id
    assert (found.index, found.size) == (model_of(agent), statement_log().copy.size)


def test_a_receipt_in_which_any_byte_was_changed_proves_nothing(agent: Agent) -> None:
    make_checkpoint()
    whole, verifier = make_receipt(model_of(agent)).file, key()

    held = []
    for place in range(len(whole)):
        changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        try:
            check_receipt(changed, verifier)
        except (NoteBroken, ProofBroken):
            continue
        held.append(place)

    assert held == []


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_receipt_that_was_cut_proves_nothing(agent: Agent, cut: int) -> None:
    make_checkpoint()
    with pytest.raises((NoteBroken, ProofBroken)):
        check_receipt(make_receipt(model_of(agent)).file[:cut], key())


def test_a_receipt_of_another_installation_proves_nothing(agent: Agent) -> None:
    make_checkpoint()
    stranger = SigningKey(key().name, bytes(32)).verifier

    with pytest.raises(NoteBroken):
        check_receipt(make_receipt(model_of(agent)).file, stranger)


def test_a_statement_without_its_own_proof_proves_nothing(agent: Agent) -> None:
    other = make_agent("wren")
    make_checkpoint()
    one, two = make_receipt(model_of(agent)), make_receipt(model_of(other))

    with pytest.raises(ProofBroken):
        check_receipt(one.statement + b"\n" + two.proof, key())


def test_there_is_none_before_a_checkpoint_covers_the_leaf(agent: Agent) -> None:
    assert latest_checkpoint() is None
    assert not is_covered(model_of(agent))
    with pytest.raises(ReceiptPending, match="It is in the log; the hourly checkpoint") as waited:
        make_receipt(model_of(agent))
    assert waited.value.http_status == 503

    make_checkpoint()
    assert is_covered(model_of(agent))
    later = make_agent("wren")
    assert not is_covered(model_of(later))


def test_a_checkpoint_that_somebody_wrote_into_the_database_covers_nothing(agent: Agent) -> None:
    note = make_checkpoint()
    checkpoint_file().path.unlink()  # as on a host where none is made
    for forged in (b"mine", note.replace(b"\n", b"\n\n", 1), note[:-5] + b"AAAA\n"):
        with writing():
            InstallationMark.write(CHECKPOINT, forged.decode())
        assert not is_covered(model_of(agent))


def test_receipts_from_before_a_rotation_are_checked_with_both_keys(agent: Agent) -> None:
    make_checkpoint()
    before, old = model_of(agent), key()
    rotate_master_key(by=COMMAND_LINE)
    make_checkpoint()
    made, keys = make_receipt(before), [verifier for _, verifier in statement_log().keys.verifiers]

    assert keys == [old, key()]
    assert check_receipt(made.file, *keys).index == before
    for one in keys:
        with pytest.raises(NoteBroken):
            check_receipt(made.file, one)


def test_a_leaf_that_was_altered_has_no_receipt(agent: Agent) -> None:
    make_checkpoint()
    place = model_of(agent)
    assert tamper("UPDATE log_leaves SET leaf = :leaf WHERE position = :place", leaf=b"mine", place=place)

    with pytest.raises(AgentStopped, match=f"Leaf {place}"):
        make_receipt(place)


def test_a_leaf_that_is_no_statement_has_no_receipt(agent: Agent) -> None:
    with writing():
        append_leaf(LeafKind.TIME, "time", b'{"time":"2026-11-23T09:00:00Z"}')
    make_checkpoint()

    with pytest.raises(NotFound):
        make_receipt(statement_log().copy.size - 1)
    with pytest.raises(NotFound):
        make_receipt(statement_log().copy.size)


def test_nobody_finds_what_is_about_another_s_agents(agent: Agent) -> None:
    with writing():
        account = Account.create("Next door")
    stranger = make_agent("wren", account_id=account.id)
    theirs = select(Agent.id).where(Agent.account_id == account.id)

    assert find_index(str(model_of(stranger)), theirs) == model_of(stranger)
    for name in (str(model_of(agent)), agent.uuid, "0", "x", "1" * 30, "-1", ""):
        with pytest.raises(NotFound):
            find_index(name, theirs)


def test_the_list_is_in_pages_and_leaves_out_what_nobody_decided(agent: Agent) -> None:
    for number in range(3):
        with writing():
            Agent.lock(agent.id).change(by=COMMAND_LINE, system_prompt=f"Prompt {number}.")
    make_agent("wren")

    first, following = list_receipts(agent.id, 2)
    rest, end = list_receipts(agent.id, 2, following)

    assert [line.kind for line in (*first, *rest)] == [StatementKind.MODEL] * 4
    assert [line.index for line in (*first, *rest)] == sorted((line.index for line in (*first, *rest)), reverse=True)
    assert end is None
    assert {line.answer for line in first} == {None}
