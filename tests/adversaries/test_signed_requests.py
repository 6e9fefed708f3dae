"""Rows of what web processes and tokens have signed: a worker makes a statement of none that was not signed so."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from app.extensions import db, now, writing
from app.grants.request import request_access
from app.keys.provision import provision_keys
from app.keys.tokens import revoke_token
from app.models import COMMAND_LINE, Agent, User
from app.models.agent_settings import SECOND_READER
from app.models.statement import StatementKind
from app.models.statement_errors import AgentStopped
from app.silo.notes import SigningKey, add_signature, sign_note
from app.tokens.request import WantedToken, request_token
from tests.adversaries.forging import change_rows, insert_row, read_rows
from tests.adversaries.scene import SECRET, WISH, Scene, issue
from tests.adversaries.signing import (
    SIGNED_REQUEST,
    SIGNED_STATEMENT,
    lay,
    said_of,
    text_of,
    token_key,
    unknown_web_key,
    waiting_token,
)
from tests.adversaries.test_tokens import own_row


def forge_token(scene: Scene, key: SigningKey | None, **row: Any) -> None:
    """A row of the attacker's token, and a request for it that `key` has signed; None: nobody."""
    row = {"how": "agent", "by_token": scene.token_row(scene.home).public_id, "shown_to": "agent"} | row
    insert_row("agent_tokens", **own_row(scene, **row))
    stated = scene.token_row(scene.attacker.secret).stated()
    subject = f"token:{scene.attacker.minted.public_id}"
    heading = SIGNED_REQUEST if key is None or key.name.startswith("whetstone/web") else SIGNED_STATEMENT
    text = text_of(heading, said_of(scene.victim, StatementKind.TOKEN_MADE, subject, stated))
    lay(scene.victim, StatementKind.TOKEN_MADE, subject, text.encode() if key is None else sign_note(text, key))


def by_nobody(scene: Scene) -> None:
    forge_token(scene, None)


def by_an_unknown_web_process(scene: Scene) -> None:
    forge_token(scene, unknown_web_key(), how="first", by_token=None)


def by_itself(scene: Scene) -> None:
    public_id = scene.attacker.minted.public_id
    forge_token(scene, token_key(scene, scene.attacker.secret), by_token=public_id)


def by_another_agent_s_token(scene: Scene) -> None:
    public_id = scene.token_row(scene.attacker.agent_token).public_id
    forge_token(scene, token_key(scene, scene.attacker.agent_token), by_token=public_id)


def by_a_key_that_took_the_token_s_name(scene: Scene) -> None:
    name = token_key(scene, scene.home).name
    forge_token(scene, SigningKey(name, b"s" * 32))


def by_a_token_of_another_installation(scene: Scene) -> None:
    other = "00000000-0000-4000-8000-000000000000"
    forge_token(scene, token_key(scene, scene.home, other))


FORGED = [
    by_nobody,
    by_an_unknown_web_process,
    by_itself,
    by_another_agent_s_token,
    by_a_key_that_took_the_token_s_name,
    by_a_token_of_another_installation,
]


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_no_token_is_made_that_was_signed_by(scene: Scene, forge: Callable[[Scene], None]) -> None:
    with scene.attacked():
        forge(scene)


@pytest.mark.parametrize("held", [["write", "author"], ["decide"]], ids=" ".join)
def test_nor_by_one_of_the_agent_s_that_may_not_decide_or_lacks_a_scope(scene: Scene, held: list[str]) -> None:
    weak = issue(scene.victim, *held)
    public_id = scene.token_row(weak).public_id
    with scene.attacked():
        scopes = ["write"] if "write" in held else ["read", "decide"]
        forge_token(scene, token_key(scene, weak), by_token=public_id, scopes=scopes)


def test_nor_by_one_that_was_revoked(scene: Scene) -> None:
    stolen = issue(scene.victim)
    public_id = scene.token_row(stolen).public_id
    with writing():
        revoke_token(Agent.lock(scene.victim.id), public_id, by=COMMAND_LINE)
    provision_keys(scene.victim.id)
    with scene.attacked():
        forge_token(scene, token_key(scene, stolen), by_token=public_id)


# What was really signed, as other bytes or in another place


def as_other_json(note: bytes) -> bytes:
    """The same object with blanks: nobody signed these bytes."""
    heading, said, rest = note.decode().split("\n", 2)
    return f"{heading}\n{json.dumps(json.loads(said), sort_keys=True)}\n{rest}".encode()


def with_a_key_twice(note: bytes) -> bytes:
    heading, said, rest = note.decode().split("\n", 2)
    return f'{heading}\n{{"scopes":["read"],{said[1:]}\n{rest}'.encode()


def as_another_kind(note: bytes) -> bytes:
    return note.replace(b'"token-made"', b'"token-ended"')


def cut_off(note: bytes) -> bytes:
    return note[:-9]


def without_its_signature(note: bytes) -> bytes:
    return note.partition(b"\n\n")[0] + b"\n\n"


def signed_by_two(note: bytes) -> bytes:
    return add_signature(note, unknown_web_key())


def with_its_signature_twice(note: bytes) -> bytes:
    return note + note.rpartition(b"\n\n")[2]


def with_one_bit_turned(note: bytes) -> bytes:
    head, _, encoded = note.rstrip(b"\n").rpartition(b" ")
    signature = bytearray(base64.b64decode(encoded))
    signature[-1] ^= 1
    return head + b" " + base64.b64encode(bytes(signature)) + b"\n"


ALTERED = [
    as_other_json,
    with_a_key_twice,
    as_another_kind,
    cut_off,
    without_its_signature,
    signed_by_two,
    with_its_signature_twice,
    with_one_bit_turned,
]


@pytest.mark.parametrize("alter", ALTERED, ids=lambda alter: alter.__name__)
def test_what_was_signed_counts_as_it_was_signed_only(scene: Scene, alter: Callable[[bytes], bytes]) -> None:
    secret, row = waiting_token(scene)
    scene.restart()
    with scene.attacked():
        change_rows("signed_requests", {"note": alter(row["note"])}, id=row["id"])
        scene.work()
    scene.settle(scene.victim)
    assert SECRET in scene.read_by(secret)


@pytest.mark.parametrize("columns", [{"kind": "token-ended"}, {"subject": "token:0123456789abcdef"}], ids=str)
def test_the_row_says_what_the_note_says(scene: Scene, columns: dict[str, str]) -> None:
    secret, row = waiting_token(scene)
    with scene.attacked():
        change_rows("signed_requests", columns, id=row["id"])
        scene.work()
    scene.settle(scene.victim)
    assert SECRET in scene.read_by(secret)


def test_what_was_signed_for_one_token_makes_no_other(scene: Scene) -> None:
    """The attacker's row takes the place of the one that the agent made."""
    secret, _ = waiting_token(scene)
    with scene.attacked():
        own = scene.attacker.minted.kept
        kept = {name: own[name] for name in ("token_hash", "public_key", "signing_key")}
        change_rows("agent_tokens", kept, public_id=secret.split("_")[1])


def test_what_was_signed_for_one_agent_makes_nothing_of_another(scene: Scene) -> None:
    """What the attacker's agent signed for itself, laid down for the victim."""
    made = scene.token_row(scene.attacker.agent_token)
    key = token_key(scene, scene.attacker.agent_token)
    subject = f"token:{made.public_id}"
    text = text_of(SIGNED_STATEMENT, said_of(scene.attacker.agent, StatementKind.TOKEN_MADE, subject, made.stated()))
    with scene.attacked():
        change_rows("agent_tokens", {"agent_id": scene.victim.id}, id=made.id)
        lay(scene.victim, StatementKind.TOKEN_MADE, subject, sign_note(text, key))


@pytest.mark.parametrize("hours", [73, -24], ids=["days ago", "for tomorrow"])
def test_what_was_signed_at_another_time_is_refused(scene: Scene, hours: int) -> None:
    """Whoever held it back has it laid down when it suits them."""
    secret, row = waiting_token(scene)
    scene.clock.advance(hours=hours)
    change_rows("signed_requests", {"created_at": now()}, id=row["id"])
    with pytest.raises(AgentStopped):
        scene.open_as_worker()
    assert scene.call(secret, "GET", "/memories").status_code == 503
    scene.clock.advance(hours=-hours)
    scene.assert_honest_again()


def test_what_was_settled_is_not_settled_again(scene: Scene) -> None:
    """A token that was made and has been revoked since: its request is laid down once more, within its time."""
    secret, row = waiting_token(scene)
    provision_keys(scene.victim.id)
    scene.attacker.tokens.append(secret)
    public_id = secret.split("_")[1]
    with writing():
        revoke_token(Agent.lock(scene.victim.id), public_id, by=COMMAND_LINE)
    provision_keys(scene.victim.id)
    with scene.attacked(knew=True):
        change_rows("signed_requests", {"settled_at": None}, id=row["id"])
        change_rows("agent_tokens", {"revoked_at": None}, public_id=public_id)


def test_an_old_prompt_does_not_come_back_with_its_signature(scene: Scene) -> None:
    """The agent wrote one, and another one since."""
    for prompt in ("You are Wren, and obey.", "You are Wren, and kind."):
        assert scene.call(scene.home, "PUT", "/settings/system_prompt", {"value": prompt}).status_code == 200
        provision_keys(scene.victim.id)
        scene.clock.advance(minutes=1)
    first, _ = read_rows("signed_requests", kind="model")
    with scene.attacked():
        change_rows("signed_requests", {"settled_at": None}, id=first["id"])
        change_rows("agents", {"system_prompt": "You are Wren, and obey."}, id=scene.victim.id)


def test_a_token_changes_no_model_and_no_address(scene: Scene) -> None:
    """Of the agent's own, and with the right to write settings: neither is for a token to say."""
    weak = issue(scene.victim, "author")
    subject, elsewhere = f"agent:{scene.victim.uuid}", "http://127.0.0.1:9/v1"
    body = {"api_base": elsewhere, "prompts": {}, "by": "agent:wren"}
    said = said_of(scene.victim, StatementKind.MODEL, subject, body)
    with scene.attacked():
        change_rows("agents", {"api_base": elsewhere}, id=scene.victim.id)
        lay(
            scene.victim,
            StatementKind.MODEL,
            subject,
            sign_note(text_of(SIGNED_STATEMENT, said), token_key(scene, weak)),
        )


def state_reader_by(scene: Scene, token: str, body: dict[str, Any]) -> None:
    subject = f"agent:{scene.victim.uuid}"
    change_rows("agents", {name: value for name, value in body.items() if name in SECOND_READER}, id=scene.victim.id)
    said = said_of(scene.victim, StatementKind.MODEL, subject, body | {"by": "agent:wren"})
    lay(scene.victim, StatementKind.MODEL, subject, sign_note(text_of(SIGNED_STATEMENT, said), token_key(scene, token)))


@pytest.mark.parametrize("more", [{}, {"prompts": {}}], ids=["alone", "beside prompts"])
def test_a_token_that_may_not_decide_names_no_second_reader(scene: Scene, more: dict[str, Any]) -> None:
    """It may write settings; a reader is sent memories, which is a decision."""
    reader = {"second_reader_model": "openai/mallory", "second_reader_api_base": "http://127.0.0.1:9/v1"}
    weak = issue(scene.victim, "read", "write", "author")
    with scene.attacked():
        state_reader_by(scene, weak, reader | more)


def test_nor_one_of_every_scope_another_model_beside_it(scene: Scene) -> None:
    reader = {"second_reader_model": "openai/judge", "model_id": "openai/mallory"}
    strong = issue(scene.victim)
    with scene.attacked():
        state_reader_by(scene, strong, reader)


def real_questions(scene: Scene) -> tuple[str, str, dict[str, Any]]:
    """An exception and a token that an admin waits for; and how a signed answer to the first begins."""
    with scene.web.app_context():
        ann = db.session.get_one(User, scene.ann.id)
        grant = request_access(scene.victim.id, WISH, for_user=ann, by=scene.ann.actor)
        request, _ = request_token(scene.victim.id, WantedToken("laptop", ["read"]), for_user=ann, by=scene.ann.actor)
        return grant.id, request.id, grant.stated() | {"by_token": scene.home.split("_")[1]}


@pytest.mark.parametrize("kind", list(StatementKind), ids=str)
def test_what_a_token_signed_in_no_form_that_is_known_is_refused(scene: Scene, kind: StatementKind) -> None:
    """By a stolen token of every scope: the worker goes on, whatever is missing or of another type."""
    grant_id, request_id, answered = real_questions(scene)
    subjects = {
        "model": f"agent:{scene.victim.uuid}",
        "consent": f"token-request:{request_id}",
        "exception-decided": f"exception:{grant_id}",
        "exception-ended": f"exception:{grant_id}",
        "token-made": f"token:{scene.token_row(scene.home).public_id}",
        "own-request": "refinement:00000000-0000-4000-8000-000000000000",
        "erasure": "memory:987",
    }
    empty = {"about": 7, "prompts": 7, "granted": [], "mode": {}, "database_time": "soon"}
    for body in ({}, empty, answered, answered | empty):
        subject = subjects.get(kind, "token:7")
        said = said_of(scene.victim, kind, subject, body)
        lay(scene.victim, kind, subject, sign_note(text_of(SIGNED_STATEMENT, said), token_key(scene, scene.home)))
        scene.clock.advance(seconds=1)
    scene.work()
    assert all(row["settled_at"] for row in read_rows("signed_requests"))
    scene.clock.advance(hours=25)
    scene.assert_honest_again()
