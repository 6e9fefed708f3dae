"""The log of statements itself: altered, cut, reordered, added to, put back to yesterday; with processes that go on
and with ones that begin anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.extensions import writing
from app.history.verify import verify
from app.keys.provision import provision_keys
from app.keys.rotation import rotate_master_key
from app.keys.tokens import revoke_token
from app.models import COMMAND_LINE, Agent
from app.models.key import SCOPES
from app.models.statement import StatementKind
from app.models.statement_log import statement_log
from app.silo import MasterKey
from app.silo.merkle import hash_leaf
from app.silo.notes import SigningKey, sign_note
from tests.adversaries.forging import all_rows, change_rows, insert_row, put_back, read_rows, remove_rows, restore
from tests.adversaries.scene import SECRET, Scene, issue
from tests.adversaries.signing import SIGNED_STATEMENT, said_of, text_of, token_key, unknown_web_key
from tests.adversaries.test_tokens import own_row

AFRESH = pytest.mark.parametrize("afresh", [False, True], ids=["going on", "afresh"])


def leaves_of(scene: Scene, kind: str) -> list[dict[str, Any]]:
    return read_rows("log_leaves", agent_id=scene.victim.id, kind=kind)


def altered(leaf: bytes) -> dict[str, Any]:
    other = leaf.replace(b'"first"', b'"other"').replace(b'"read"', b'"READ"')
    assert other != leaf
    return {"leaf": other, "hash": hash_leaf(other)}


def alter_a_token(scene: Scene) -> None:
    leaf = leaves_of(scene, "token-made")[0]
    change_rows("log_leaves", altered(leaf["leaf"]), position=leaf["position"])


def alter_the_hash_beside_it(scene: Scene) -> None:
    leaf = leaves_of(scene, "token-made")[0]
    change_rows("log_leaves", {"hash": b"h" * 32}, position=leaf["position"])


def take_one_out(scene: Scene) -> None:
    remove_rows("log_leaves", position=leaves_of(scene, "token-made")[0]["position"])


def close_the_gap(scene: Scene) -> None:
    """One is taken out, and all that follow move up."""
    gone = leaves_of(scene, "token-made")[0]["position"]
    remove_rows("log_leaves", position=gone)
    for leaf in read_rows("log_leaves"):
        if leaf["position"] > gone:
            change_rows("log_leaves", {"position": leaf["position"] - 1}, position=leaf["position"])


def swap_two(scene: Scene) -> None:
    one, other = [leaf["position"] for leaf in read_rows("log_leaves")][-2:]
    for of, to in ((one, 10_000), (other, one), (10_000, other)):
        change_rows("log_leaves", {"position": to}, position=of)


def cut_the_tail(scene: Scene) -> None:
    for leaf in read_rows("log_leaves")[-3:]:
        remove_rows("log_leaves", position=leaf["position"])


def take_all_of_one_agent(scene: Scene) -> None:
    remove_rows("log_leaves", agent_id=scene.victim.id)


def say_of_another_agent(scene: Scene) -> None:
    change_rows("log_leaves", {"agent_id": scene.attacker.agent.id}, agent_id=scene.victim.id)


def say_another_kind(scene: Scene) -> None:
    change_rows("log_leaves", {"kind": "consent"}, position=leaves_of(scene, "token-made")[0]["position"])


SPOILED = [
    alter_a_token,
    alter_the_hash_beside_it,
    take_one_out,
    close_the_gap,
    swap_two,
    cut_the_tail,
    take_all_of_one_agent,
    say_of_another_agent,
    say_another_kind,
]


@AFRESH
@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
def test_a_log_that_was_spoiled_opens_nothing_and_is_named(
    scene: Scene, spoil: Callable[[Scene], None], afresh: bool
) -> None:
    before = all_rows()
    spoil(scene)
    after = all_rows()
    if afresh:
        scene.restart()
    assert not verify().ok
    scene.work()
    scene.assert_nothing_opened()
    put_back(before, after, but=())
    scene.restart()
    scene.assert_honest_again()


# Leaves that were added


def append(scene: Scene, note: bytes, kind: StatementKind, subject: str, agent_id: int | None) -> None:
    row = {"kind": str(kind), "subject": subject, "agent_id": agent_id, "leaf": note, "hash": hash_leaf(note)}
    insert_row("log_leaves", position=len(read_rows("log_leaves")), signature=None, **row)


def append_token(scene: Scene, *keys: SigningKey, **others: Any) -> None:
    """The attacker's token, as the log would say that it was made; signed by these keys."""
    insert_row("agent_tokens", **own_row(scene, how="command line", shown_to="command line", scopes=list(SCOPES)))
    stated = scene.token_row(scene.attacker.secret).stated()
    subject = f"token:{scene.attacker.minted.public_id}"
    text = text_of(SIGNED_STATEMENT, said_of(scene.victim, StatementKind.TOKEN_MADE, subject, stated, **others))
    append(scene, sign_note(text, *keys), StatementKind.TOKEN_MADE, subject, scene.victim.id)


def by_a_stranger(scene: Scene) -> None:
    append_token(scene, SigningKey(statement_log().keys.verifier.name, b"s" * 32))


def by_a_token(scene: Scene) -> None:
    append_token(scene, token_key(scene, scene.home))


def by_a_web_process(scene: Scene) -> None:
    append_token(scene, unknown_web_key())


def by_another_installation(scene: Scene) -> None:
    other = "00000000-0000-4000-8000-000000000000"
    append_token(scene, scene.attacker.master.installation_key(other), installation=other)


def by_the_attacker_s_own_master_key(scene: Scene) -> None:
    append_token(scene, scene.attacker.master.installation_key(statement_log().installation))


def as_a_master_key(scene: Scene) -> None:
    """A successor of the master key, signed by itself alone."""
    own, installation = scene.attacker.master, statement_log().installation
    key = own.installation_key(installation)
    body = {"public_key": own.public.hex, "signing_key": key.verifier.public.hex()}
    append_master_key(scene, own, body | {"previous": statement_log().keys.verifier.public.hex()}, key)


OF_NOBODY = {"account": None, "agent": None}


def append_master_key(scene: Scene, own: MasterKey, body: dict[str, Any], *keys: SigningKey) -> None:
    subject = f"master:{own.fingerprint}"
    said = said_of(scene.victim, StatementKind.MASTER_KEY, subject, body) | OF_NOBODY
    note = sign_note(text_of(SIGNED_STATEMENT, said), *keys)
    append(scene, note, StatementKind.MASTER_KEY, subject, None)


ADDED = [
    by_a_stranger,
    by_a_token,
    by_a_web_process,
    by_another_installation,
    by_the_attacker_s_own_master_key,
    as_a_master_key,
]


@AFRESH
@pytest.mark.parametrize("add", ADDED, ids=lambda add: add.__name__)
def test_a_leaf_that_was_added_counts_for_nobody(scene: Scene, add: Callable[[Scene], None], afresh: bool) -> None:
    before = all_rows()
    add(scene)
    if afresh:
        scene.restart()
    assert not verify().ok
    scene.assert_survived(before)


@AFRESH
def test_a_retired_master_key_signs_nothing_any_more(scene: Scene, afresh: bool) -> None:
    retired = scene.app.extensions["master_key"]
    rotate_master_key(by=COMMAND_LINE)
    scene.app.extensions["master_key"] = MasterKey.load(scene.app.extensions["settings"].master_key_path)
    before = all_rows()
    append_token(scene, retired.installation_key(statement_log().installation))
    if afresh:
        scene.restart()
    assert not verify().ok
    scene.work()
    scene.assert_nothing_opened()
    restore(before)
    scene.restart()
    scene.assert_honest_again()


def test_a_retired_master_key_names_no_other_successor(scene: Scene) -> None:
    """In the place of the leaf in which it named the real one; the web process had only seen the retired one."""
    retired = scene.app.extensions["master_key"]
    installation = statement_log().installation
    rotate_master_key(by=COMMAND_LINE)
    scene.app.extensions["master_key"] = MasterKey.load(scene.app.extensions["settings"].master_key_path)
    before = all_rows()
    real = read_rows("log_leaves", kind="master-key")[-1]
    own, key = scene.attacker.master, retired.installation_key(installation)
    body = {"public_key": own.public.hex, "signing_key": own.installation_key(installation).verifier.public.hex()}
    remove_rows("log_leaves", position=real["position"])
    said = said_of(scene.victim, StatementKind.MASTER_KEY, f"master:{own.fingerprint}", body)
    said |= OF_NOBODY | {"previous": key.verifier.public.hex()}
    note = sign_note(text_of(SIGNED_STATEMENT, said), key, own.installation_key(installation))
    row = {"kind": "master-key", "subject": f"master:{own.fingerprint}", "leaf": note, "hash": hash_leaf(note)}
    insert_row("log_leaves", position=real["position"], agent_id=None, signature=None, **row)
    scene.restart()
    scene.assert_survived(before)


# Yesterday's database


@AFRESH
def test_a_whole_database_of_yesterday_opens_nothing(scene: Scene, afresh: bool) -> None:
    """With it a token would live again that was revoked since: for everybody the log ends too early."""
    stolen = issue(scene.victim)
    scene.attacker.tokens.append(stolen)
    yesterday = all_rows()
    public_id = scene.token_row(stolen).public_id
    with writing():
        revoke_token(Agent.lock(scene.victim.id), public_id, by=COMMAND_LINE)
    provision_keys(scene.victim.id)
    today = all_rows()
    restore(yesterday)
    if afresh:
        scene.restart()
    assert not verify().ok
    scene.save_as_victim()
    scene.work()
    scene.assert_nothing_opened(knew=True)
    assert scene.call(scene.home, "GET", "/memories").status_code == 503
    restore(today)
    scene.assert_honest_again()


def test_nor_one_whose_log_was_made_long_enough(scene: Scene) -> None:
    """Yesterday's, with leaves that an attacker has added up to today's length."""
    yesterday = all_rows()
    issue(scene.victim)
    today = all_rows()
    restore(yesterday)
    for _ in range(len(today["log_leaves"]) - len(yesterday["log_leaves"])):
        last = read_rows("log_leaves")[-1]
        insert_row("log_leaves", **(last | {"position": last["position"] + 1}))
    scene.restart()
    assert not verify().ok
    scene.work()
    scene.assert_nothing_opened()
    restore(today)
    scene.restart()
    scene.assert_honest_again()


def test_the_end_of_a_token_can_not_be_hidden_as_another_agent_s(scene: Scene) -> None:
    stolen = issue(scene.victim)
    scene.attacker.tokens.append(stolen)
    number, reader = scene.token_row(stolen).id, scene.token_row(stolen).reader
    keys = read_rows("agent_keys", reader=reader)
    with writing():
        revoke_token(Agent.lock(scene.victim.id), stolen.split("_")[1], by=COMMAND_LINE)
    provision_keys(scene.victim.id)
    before = all_rows()
    for leaf in leaves_of(scene, "token-ended"):
        change_rows("log_leaves", {"agent_id": scene.attacker.agent.id}, position=leaf["position"])
    change_rows("agent_tokens", {"revoked_at": None, "rekeyed_at": None}, id=number)
    for key in keys:
        insert_row("agent_keys", **{name: value for name, value in key.items() if name != "id"})
    scene.restart()
    assert not verify().ok
    assert SECRET not in scene.read_by(stolen)
    scene.assert_survived(before, knew=True)
