"""Ciphertext that was swapped, by somebody who owns the database: refused, reported, and shown to nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from flask import Flask
from sqlalchemy import select, text

from app.asking.prompt_memories import read_entries
from app.asking.replies import ConsentAnswer
from app.extensions import db, writing
from app.grants import opening
from app.grants.request import WantedException, decide_grant, request_access
from app.history.plan import Target
from app.history.undo import roll_back
from app.history.verify import verify
from app.keys.agent_keys import open_keys, share_with_tokens
from app.keys.provision import provision_keys
from app.keys.rotation import rotate_agent_key, rotate_master_key
from app.models import (
    COMMAND_LINE,
    AccessGrant,
    Action,
    Agent,
    Consent,
    GrantCategory,
    Memory,
    MemoryState,
    Refinement,
    User,
)
from app.models.audit import record
from app.models.key import AgentKey
from app.silo import SealBroken, TokenKey
from tests.cli.conftest import Whetstone
from tests.cli.conftest import whetstone as whetstone
from tests.refinement.driving import call, carry, say
from tests.silo.holding import give_token, texts
from tests.support.factories import begin, make_agent, remember
from tests.support.tampering import tamper

HERS, HIS, OTHER = "Ann hides the key under the blue stone.", "Bob likes rum, and tells.", "Eve buried it by the weir."


@pytest.fixture
def ezra(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, HERS, HIS)
    return made


@pytest.fixture
def eve(app: Flask) -> Agent:
    made = make_agent("eve")
    remember(made, OTHER)
    return made


def ids(agent_id: int) -> list[int]:
    db.session.rollback()
    return list(db.session.scalars(select(Memory.id).where(Memory.agent_id == agent_id).order_by(Memory.id)))


def swap(first: int, second: int) -> None:
    """Texts, keys, digests and weights of two memories change places: all that could give it away."""
    query = text("SELECT content_digest, token_estimate, agent_id FROM memories WHERE id = :id")
    db.session.rollback()
    held = {number: db.session.execute(query, {"id": number}).one()._mapping for number in (first, second)}
    for table in ("memory_texts", "content_keys"):
        for number, other in ((first, -1), (second, first), (-1, second)):
            agent_id = held[other]["agent_id"] if other in held else 0
            moved = f"UPDATE {table} SET memory_id = :other, agent_id = :agent_id WHERE memory_id = :id"
            tamper(moved, id=number, other=other, agent_id=agent_id)
    for number, other in ((first, second), (second, first)):
        tamper(
            "UPDATE memories SET content_digest = :content_digest, token_estimate = :token_estimate WHERE id = :id",
            id=number,
            content_digest=held[other]["content_digest"],
            token_estimate=held[other]["token_estimate"],
        )


SWAPS: dict[str, Callable[[Agent, Agent], tuple[int, int]]] = {
    "of one agent": lambda ezra, eve: (ids(ezra.id)[0], ids(ezra.id)[1]),
    "of two agents": lambda ezra, eve: (ids(ezra.id)[0], ids(eve.id)[0]),
}


@pytest.fixture(params=SWAPS)
def swapped(request: pytest.FixtureRequest, ezra: Agent, eve: Agent) -> int:
    """The id of the agent of which at least one memory's bytes are another's."""
    number = ezra.id
    swap(*SWAPS[request.param](ezra, eve))
    return number


def test_swapped_memories_open_for_nobody(swapped: int) -> None:
    agent = db.session.get_one(Agent, swapped)
    with pytest.raises(SealBroken, match="swapped with another row's"):
        texts(agent)
    with pytest.raises(SealBroken, match="swapped with another row's"):
        read_entries(swapped, open_keys(agent))


@pytest.mark.parametrize("table", ["memory_texts", "content_keys"])
def test_a_memory_whose_text_or_key_is_gone_is_not_left_out(ezra: Agent, table: str) -> None:
    number = ezra.id
    first, _ = ids(number)
    tamper(f"DELETE FROM {table} WHERE memory_id = :id", id=first)
    keys = open_keys(db.session.get_one(Agent, number))
    with pytest.raises(SealBroken):
        [keys.reveal_memory(*each) for each in Memory.read_contents(Memory.active(number))]
    with pytest.raises(SealBroken, match="is not there"):
        read_entries(number, keys)


def test_an_earlier_text_of_the_same_memory_does_not_open_in_a_ledger(ezra: Agent) -> None:
    """Key and seal are right, and the digest is the one that the memory names: only the text is another."""
    number, keys = ezra.id, open_keys(ezra)
    memory_id = ids(number)[0]
    with writing():
        agent = Agent.lock(number)
        memory = Memory.lock_core(agent, memory_id)
        before = memory.content_digest
        memory.rewrite(agent, "Ann moved the key.", keys=keys)
        record(Action.REFINEMENT_UPDATE, actor=COMMAND_LINE, of=agent, subject=f"memory:{memory_id}", memories=[memory])
    assert [entry.content for entry in read_entries(number, keys)] == ["Ann moved the key.", HIS]
    earlier = "(SELECT sealed FROM memory_texts WHERE memory_id = :id AND content_digest = :before)"
    same_hash = "(SELECT content_hash FROM memory_texts WHERE memory_id = :id AND content_digest = :before)"
    tamper(
        f"UPDATE memory_texts SET sealed = {earlier}, content_hash = {same_hash}"
        " WHERE memory_id = :id AND content_digest <> :before",
        id=memory_id,
        before=before,
    )
    db.session.rollback()
    with pytest.raises(SealBroken):
        read_entries(number, keys)


def test_verify_and_keys_check_name_them(swapped: int, whetstone: Whetstone) -> None:
    verdict = verify()
    assert (verdict.ok, verdict.agent_id) == (False, swapped)
    assert f"memory {ids(swapped)[0]}" in str(verdict.first_problem)
    said = whetstone("keys", "check")
    assert said.status == 1
    assert "Problem: ezra: Sealed text does not open" in said.err
    for content in (HERS, HIS, OTHER):
        assert content not in said.out + said.err + str(verdict)


def test_a_refinement_of_them_is_interrupted_in_words_before_its_model_hears_anything(swapped: int) -> None:
    done = carry(db.session.get_one(Agent, swapped), say("YES"), call("complete_refinement", summary="x"))

    assert done.status == "interrupted"
    assert "Sealed text does not open" in (done.refinement.reason or "")
    assert "whetstone verify" in (done.refinement.reason or "")
    assert done.client.asked == []


def test_a_model_that_searches_among_them_is_told_and_shown_nothing(ezra: Agent, eve: Agent) -> None:
    run = begin(ezra)
    swap(*SWAPS["of two agents"](ezra, eve))

    found = run.tool.execute("search", query="e")

    assert found["type"] == "error"
    assert "does not open" in found["error"]
    assert not any(word in str(found) for word in ("blue", "weir", "rum"))


def test_an_exception_shows_none_of_them_and_says_why(swapped: int) -> None:
    user = db.session.scalars(select(User)).first()
    assert user is not None
    number = user.id
    wish = WantedException(GrantCategory.SAFETY, "to see", 15)
    grant_id = request_access(swapped, wish, for_user=user, by=COMMAND_LINE).id
    decide_grant(grant_id, ConsentAnswer(True), agent_id=swapped, by=COMMAND_LINE, keys=None)
    grant, user = db.session.get_one(AccessGrant, grant_id), db.session.get_one(User, number)

    look = opening.look(grant, user)
    opening.answer_view(look.view_id)
    with pytest.raises(opening.NotCovered, match=r"Sealed text does not open.*Nothing is shown") as refusal:
        opening.fetch_view(look)

    assert not any(text in str(refusal.value) for text in (HERS, HIS, OTHER))
    assert db.session.get_one(AccessGrant, grant_id, populate_existing=True).views == 0


def test_an_old_content_put_back_in_place_is_found_by_verify(ezra: Agent) -> None:
    """It opens: it was this memory's own once. That is what lets an undo copy it without a key."""
    first, _ = ids(ezra.id)
    run = begin(ezra)
    assert run.tool.execute("update", id=first, content="Ann hides it under the blue stone.")["type"] == "updated"
    assert run.tool.execute("complete", summary="Tightened.")["type"] == "refinement_complete"
    old = db.session.scalars(
        select(MemoryState).where(MemoryState.memory_id == first).order_by(MemoryState.entry_id)
    ).first()
    assert old is not None
    tamper("UPDATE memories SET content_digest = :old WHERE id = :id", old=old.content_digest, id=first)

    verdict = verify()

    assert not verdict.ok
    assert f"memory {first}" in str(verdict.first_problem)
    assert "content" in str(verdict.first_problem)


def test_a_state_of_another_memory_is_found_by_verify_and_opens_for_nobody_after_an_undo(ezra: Agent) -> None:
    number = ezra.id
    first, second = ids(number)
    run = begin(ezra)
    assert run.tool.execute("update", id=first, content="Ann hides it under the blue stone.")["type"] == "updated"
    run.tool.execute("complete", summary="Tightened.")
    refinement_id = run.claim.refinement_id
    foreign = db.session.get_one(Memory, second).content_digest
    columns = "content_digest, agent_id, sealed, content_hash"
    tamper(
        f"INSERT INTO memory_texts (memory_id, {columns}) SELECT :id, {columns} FROM memory_texts"
        " WHERE memory_id = :second",
        id=first,
        second=second,
    )
    oldest = "(SELECT min(entry_id) FROM memory_states WHERE memory_id = :id)"
    tamper(
        f"UPDATE memory_states SET content_digest = :foreign WHERE memory_id = :id AND entry_id = {oldest}",
        foreign=foreign,
        id=first,
    )
    assert not verify().ok
    roll_back(Target.refinement(refinement_id), by=COMMAND_LINE)
    with pytest.raises(SealBroken):
        texts(db.session.get_one(Agent, number))


def test_words_and_summaries_open_only_as_what_they_are_of_their_own_refinement(ezra: Agent, eve: Agent) -> None:
    def ended(agent: Agent) -> tuple[str, bytes, bytes]:
        closing = call("complete_refinement", summary=f"I am {agent.name}.")
        row = carry(agent, say("YES, gladly."), closing).refinement
        words = db.session.scalars(select(Consent.words).where(Consent.refinement_id == row.id)).one()
        assert words is not None
        assert row.summary is not None
        return row.id, words.at_rest, row.summary.at_rest

    first, second, hers = ended(ezra), ended(ezra), ended(eve)
    keys = {agent: open_keys(agent) for agent in (ezra, eve)}

    def opens(agent: Agent, refinement_id: str, purpose: str) -> str:
        db.session.rollback()
        row = db.session.get_one(Refinement, refinement_id, populate_existing=True)
        words = db.session.scalar(select(Consent.words).where(Consent.refinement_id == refinement_id))
        sealed = words if purpose == "consent" else row.summary
        assert sealed is not None
        return keys[agent].reveal(sealed, purpose=purpose, subject=refinement_id)

    assert opens(ezra, first[0], "summary") == "I am ezra."
    assert opens(eve, hers[0], "consent") == "YES, gladly."
    for table, column, where, sealed, purpose in (
        ("refinements", "summary", "id", second[2], "summary"),
        ("refinements", "summary", "id", hers[2], "summary"),
        ("refinements", "summary", "id", first[1], "summary"),
        ("consents", "words", "refinement_id", second[1], "consent"),
        ("consents", "words", "refinement_id", hers[1], "consent"),
        ("consents", "words", "refinement_id", first[2], "consent"),
    ):
        assert tamper(f"UPDATE {table} SET {column} = :sealed WHERE {where} = :id", sealed=sealed, id=first[0]) == 1
        with pytest.raises(SealBroken):
            opens(ezra, first[0], purpose)


@dataclass(frozen=True)
class Place:
    """A row of a sealed key, and what stood in it."""

    number: int
    sealed: bytes

    def put(self, sealed: bytes) -> None:
        tamper("UPDATE agent_keys SET sealed = :sealed WHERE id = :id", sealed=sealed, id=self.number)


def key_of(agent: Agent, purpose: str, version: int, reader: str) -> Place:
    wanted = {"agent_id": agent.id, "purpose": purpose, "version": version, "reader": reader}
    row = db.session.scalars(select(AgentKey).filter_by(**wanted)).one()
    return Place(row.id, row.sealed)


@pytest.fixture
def token(ezra: Agent, eve: Agent) -> TokenKey:
    """Both agents have two versions; the token is ezra's."""
    found = give_token(ezra)
    for agent in (ezra, eve):
        rotate_agent_key(agent.id, by=COMMAND_LINE)
    return found


WRONG_PLACES = {
    "another agent's": lambda ezra, eve, master, token: key_of(eve, "data", 1, master),
    "another version's": lambda ezra, eve, master, token: key_of(ezra, "data", 2, master),
    "another purpose's": lambda ezra, eve, master, token: key_of(ezra, "dedup", 1, master),
    "another reader's": lambda ezra, eve, master, token: key_of(ezra, "data", 1, token.public.hex),
}


@pytest.mark.parametrize("whose", WRONG_PLACES)
def test_a_sealed_key_in_another_ones_place_opens_for_nobody_and_is_named(
    app: Flask, ezra: Agent, eve: Agent, token: TokenKey, whetstone: Whetstone, whose: str
) -> None:
    master = app.extensions["master_key"].public.hex
    place, ezra_id = key_of(ezra, "data", 1, master), ezra.id
    wrong = WRONG_PLACES[whose](ezra, eve, master, token).sealed
    assert wrong != place.sealed
    place.put(wrong)

    with pytest.raises(SealBroken, match="not those that were signed"):
        open_keys(db.session.get_one(Agent, ezra_id))
    with pytest.raises(SealBroken):
        provision_keys(ezra_id)
    with pytest.raises(SealBroken):
        rotate_agent_key(ezra_id, by=COMMAND_LINE)
    checked = whetstone("keys", "check")
    assert (checked.status, "Problem: ezra: The keys that are sealed for the agent are not those" in checked.err) == (
        1,
        True,
    )
    done = rotate_master_key(by=COMMAND_LINE)
    assert (done.finished, list(done.problems)) == (False, [f"agent {ezra_id}"])
    assert texts(db.session.get_one(Agent, ezra_id), token) == [HERS, HIS]


def test_a_tokens_copy_in_another_tokens_place_opens_for_neither(ezra: Agent, token: TokenKey) -> None:
    other = give_token(ezra)
    with writing():
        locked = Agent.lock(ezra.id)
        share_with_tokens(locked, open_keys(locked))
    mine, his = (key_of(ezra, "data", 1, each.public.hex) for each in (token, other))
    mine.put(his.sealed)
    with pytest.raises(SealBroken):
        open_keys(db.session.get_one(Agent, 1), token)
    assert texts(db.session.get_one(Agent, 1), other) == [HERS, HIS]
    mine.put(mine.sealed)
    assert texts(db.session.get_one(Agent, 1), token) == [HERS, HIS]


def test_a_row_that_names_another_reader_opens_for_neither(app: Flask, ezra: Agent, token: TokenKey) -> None:
    tamper("DELETE FROM agent_keys WHERE reader = :reader", reader=token.public.hex)
    tamper(
        "UPDATE agent_keys SET reader = :token WHERE agent_id = 1 AND reader = :master",
        token=token.public.hex,
        master=app.extensions["master_key"].public.hex,
    )
    for opener in (None, token):
        with pytest.raises(SealBroken):
            open_keys(db.session.get_one(Agent, 1), opener)


def test_a_version_that_is_renamed_opens_nothing(app: Flask, ezra: Agent) -> None:
    tamper("UPDATE agent_keys SET version = 7 WHERE purpose = 'data'")
    with pytest.raises(SealBroken, match="not those that were signed"):
        texts(db.session.get_one(Agent, 1))
