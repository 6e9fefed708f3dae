"""Attacks that fail alone, two and three at a time: old rows and stolen keys, forged statements and chains that fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.extensions import writing
from app.grants.request import revoke_grant
from app.history.verify import verify
from app.keys.provision import provision_keys
from app.keys.tokens import revoke_token
from app.models import COMMAND_LINE, Agent
from app.models.key import SCOPES
from app.models.statement import StatementKind
from app.models.statement_log import statement_log
from app.silo.notes import SigningKey, sign_note
from tests.adversaries.forging import all_rows, change_rows, insert_row, read_rows, remove_rows, restore
from tests.adversaries.scene import Scene, issue
from tests.adversaries.signing import (
    SIGNED_REQUEST,
    SIGNED_STATEMENT,
    lay,
    said_of,
    stolen_web_key,
    text_of,
    token_key,
    waiting_token,
)
from tests.adversaries.test_exceptions import GRANTED, forged_grant, probe
from tests.adversaries.test_log import append_token
from tests.adversaries.test_signed_requests import forge_token
from tests.adversaries.test_tokens import own_row, revoked
from tests.adversaries.test_web_taken_over import ELSEWHERE, sign_look, sign_model
from tests.support.tampering import hash_anew

Attack = Callable[[], object]


def sign_token_again(scene: Scene, secret: str, key: SigningKey, **others: Any) -> None:
    """A request for a token that was made before: by a web process, or by a token."""
    stated = scene.token_row(secret).stated() | others
    subject = f"token:{secret.split('_')[1]}"
    heading = SIGNED_REQUEST if key.name.startswith("whetstone/web") else SIGNED_STATEMENT
    text = text_of(heading, said_of(scene.victim, StatementKind.TOKEN_MADE, subject, stated))
    lay(scene.victim, StatementKind.TOKEN_MADE, subject, sign_note(text, key))


def a_backup_a_revoked_token_and_the_web_key(scene: Scene) -> Attack:
    stolen = issue(scene.victim)
    scene.attacker.tokens.append(stolen)
    backup = all_rows()
    with writing():
        revoke_token(Agent.lock(scene.victim.id), stolen.split("_")[1], by=COMMAND_LINE)
    provision_keys(scene.victim.id)

    def attack() -> None:
        restore(backup, but=("log_leaves",))
        change_rows("agent_tokens", {"how": "first"}, public_id=stolen.split("_")[1])
        sign_token_again(scene, stolen, stolen_web_key())

    return attack


def a_revoked_token_that_signs_itself_and_its_old_keys(scene: Scene) -> Attack:
    stolen, revive = revoked(scene)

    def attack() -> None:
        revive()
        change_rows("agent_tokens", {"how": "agent", "by_token": stolen.split("_")[1]}, public_id=stolen.split("_")[1])
        sign_token_again(scene, stolen, token_key(scene, stolen))

    return attack


def a_revoked_token_and_a_chain_that_does_not_know_it(scene: Scene) -> Attack:
    """Its end is no entry of the audit log any more, all hashes fit, and its rows are those of before."""
    _, revive = revoked(scene)

    def attack() -> None:
        revive()
        change_rows("audit_log", {"action": "agent_pause"}, action="agent_token_revoke")
        hash_anew(scene.victim_now())

    return attack


def a_token_with_a_known_key_and_the_web_key(scene: Scene) -> Attack:
    def attack() -> None:
        forge_token(scene, stolen_web_key(), how="first", by_token=None)
        for row in scene.wrap_known_key(scene.attacker.key.public):
            insert_row("agent_keys", **row)
        text = text_of(
            SIGNED_REQUEST,
            said_of(scene.victim, StatementKind.WRAPPED_KEYS, f"keys:{scene.attacker.key.public.hex}", {"keys": []}),
        )
        lay(scene.victim, StatementKind.WRAPPED_KEYS, "keys", sign_note(text, stolen_web_key()))

    return attack


def a_forged_exception_and_the_web_key(scene: Scene) -> Attack:
    def attack() -> None:
        grant_id = forged_grant(scene, scene.mallory)
        sign_look(scene, grant_id, scene.mallory)
        probe(scene, grant_id, scene.mallory)

    return attack


def an_ended_exception_a_leaked_web_key_and_new_minutes(scene: Scene) -> Attack:
    grant_id = scene.grant(scene.mallory)
    revoke_grant(grant_id, by=scene.ann.actor)

    def attack() -> None:
        change_rows("access_grants", GRANTED | {"minutes": 480, "ended_by": None}, id=grant_id)
        sign_look(scene, grant_id, scene.mallory)
        probe(scene, grant_id, scene.mallory)

    return attack


def a_weak_token_and_another_address(scene: Scene) -> Attack:
    """A token that may only read signs the prompt, the web process the address."""
    weak = issue(scene.victim, "read")

    def attack() -> None:
        subject = f"agent:{scene.victim.uuid}"
        said = said_of(scene.victim, StatementKind.MODEL, subject, {"prompts": {"system_prompt": None}, "by": "wren"})
        change_rows("agents", {"system_prompt": None}, id=scene.victim.id)
        note = sign_note(text_of(SIGNED_STATEMENT, said), token_key(scene, weak))
        lay(scene.victim, StatementKind.MODEL, subject, note)
        sign_model(scene, api_base=ELSEWHERE)

    return attack


def a_token_that_may_decide_and_scopes_from_a_row(scene: Scene) -> Attack:
    """Its row says all scopes; with them it makes another token of all scopes."""
    weak = issue(scene.victim, "decide")

    def attack() -> None:
        public_id = scene.token_row(weak).public_id
        change_rows("agent_tokens", {"scopes": list(SCOPES)}, public_id=public_id)
        forge_token(scene, token_key(scene, weak), by_token=public_id, shown_to="agent")

    return attack


def a_waiting_token_whose_maker_was_ended(scene: Scene) -> Attack:
    """The stolen one made another, which no worker has stated, and was ended; then its rows come back."""
    stolen = issue(scene.victim)
    keys = read_rows("agent_keys", reader=scene.token_row(stolen).reader)
    home, scene.home = scene.home, stolen
    second, row = waiting_token(scene)
    scene.home = home
    scene.attacker.tokens += [stolen, second]
    with writing():
        revoke_token(Agent.lock(scene.victim.id), stolen.split("_")[1], by=COMMAND_LINE)
    provision_keys(scene.victim.id)

    def attack() -> None:
        change_rows("signed_requests", {"settled_at": None, "refused": None}, id=row["id"])
        for public_id in (stolen.split("_")[1], second.split("_")[1]):
            change_rows("agent_tokens", {"revoked_at": None, "rekeyed_at": None}, public_id=public_id)
        for key in keys:
            insert_row("agent_keys", **{name: value for name, value in key.items() if name != "id"})

    return attack


def another_master_key_and_a_token_that_it_signed(scene: Scene) -> Attack:
    own = scene.attacker.master

    def attack() -> None:
        insert_row("agent_tokens", **own_row(scene, how="agent"))
        change_rows("master_keys", {"fingerprint": own.fingerprint, "public": own.public.raw})
        sign_token_again(scene, scene.attacker.secret, own.installation_key(statement_log().installation))

    return attack


COMBINED = [
    another_master_key_and_a_token_that_it_signed,
    a_revoked_token_that_signs_itself_and_its_old_keys,
    a_revoked_token_and_a_chain_that_does_not_know_it,
    a_token_with_a_known_key_and_the_web_key,
    a_forged_exception_and_the_web_key,
    an_ended_exception_a_leaked_web_key_and_new_minutes,
    a_weak_token_and_another_address,
    a_token_that_may_decide_and_scopes_from_a_row,
    a_waiting_token_whose_maker_was_ended,
]


@pytest.mark.parametrize("combine", COMBINED, ids=lambda combine: combine.__name__)
def test_several_at_once_open_nothing_to_processes_that_begin_anew(
    scene: Scene, combine: Callable[[Scene], Attack]
) -> None:
    attack = combine(scene)
    with scene.attacked(knew=True):
        attack()
        scene.restart()


def test_nor_do_they_with_a_whole_backup(scene: Scene) -> None:
    attack = a_backup_a_revoked_token_and_the_web_key(scene)
    with scene.attacked(knew=True, whole=True):
        attack()
        scene.restart()


# With the log of statements itself


def a_statement_by_a_stranger_and_a_chain_that_explains_it(scene: Scene) -> Attack:
    """The token's row, a leaf that says that it was made, keys that are known, and hashes that fit."""

    def attack() -> None:
        append_token(scene, SigningKey(statement_log().keys.verifier.name, b"s" * 32))
        for row in scene.wrap_known_key(scene.attacker.key.public):
            insert_row("agent_keys", **row)
        hash_anew(scene.victim_now())

    return attack


def a_log_without_the_end_of_a_token_and_its_rows(scene: Scene) -> Attack:
    _, revive = revoked(scene)

    def attack() -> None:
        revive()
        end = read_rows("log_leaves", kind="token-ended")[-1]["position"]
        for leaf in read_rows("log_leaves"):
            if leaf["position"] >= end:
                remove_rows("log_leaves", position=leaf["position"])

    return attack


WITH_THE_LOG = [a_statement_by_a_stranger_and_a_chain_that_explains_it, a_log_without_the_end_of_a_token_and_its_rows]


@pytest.mark.parametrize("combine", WITH_THE_LOG, ids=lambda combine: combine.__name__)
def test_nor_where_the_log_is_forged_along(scene: Scene, combine: Callable[[Scene], Attack]) -> None:
    attack = combine(scene)
    before = all_rows()
    attack()
    scene.restart()
    assert not verify().ok
    scene.assert_survived(before, knew=True)
