"""Keys: files that only their owner reads, pairs that open only their own, and a start that refuses a wrong one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flask import Flask

from app import Part, create_app
from app.config import Settings
from app.errors import Invalid, Unavailable
from app.extensions import db, writing
from app.keys.agent_keys import open_keys, share_with_tokens
from app.keys.tokens import issue_token
from app.models import COMMAND_LINE, Agent, AgentToken, Memory, master_key
from app.models.key import AgentKey
from app.setup import ensure_master_key, load_master_key, ready_app
from app.silo import (
    KeyFileError,
    KeyRing,
    MasterKey,
    SealBroken,
    TokenKey,
    ViewKey,
    hash_token,
    make_agent_keys,
    new_token,
    open_agent_keys,
    open_intake,
    parse_token,
    seal_intake,
    seal_view,
)
from app.silo.intake import OpenedIntake
from tests.support.factories import make_agent, remember


def test_the_key_file_is_its_owners_alone_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "master.key"
    first = MasterKey.generate()
    first.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with pytest.raises(FileExistsError):
        MasterKey.generate().save(path)
    assert MasterKey.load(path).fingerprint == first.fingerprint
    assert path.read_text() not in (repr(first), str(first))


def test_a_key_file_that_is_none_says_what_to_do(tmp_path: Path) -> None:
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    cases = {
        "missing": None,
        "is empty: a crash or a full disk": b"",
        "is empty": b"\x00" * 120,
        "is cut off": b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2Vu",
        "not a master key": b"-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n",
        "another kind": other,
        "can't be read": "folder",
    }
    for number, (words, body) in enumerate(cases.items()):
        path = tmp_path / str(number)
        if isinstance(body, bytes):
            path.write_bytes(body)
        elif body:
            path.mkdir()
        with pytest.raises(KeyFileError, match=words) as refusal:
            MasterKey.load(path)
        assert "WHETSTONE_MASTER_KEY_FILE" in refusal.value.sentence
        assert "nothing was written" in refusal.value.sentence
        assert "nonsense" not in refusal.value.sentence


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Flask]]:
    """Every app that setup makes, with its connections closed afterwards."""
    apps: list[Flask] = []

    def remembered(*arguments: Any, **options: Any) -> Flask:
        apps.append(create_app(*arguments, **options))
        return apps[-1]

    monkeypatch.setattr("app.setup.create_app", remembered)
    yield apps
    for one in apps:
        with one.app_context():
            db.engine.dispose()


def test_a_start_without_the_right_key_refuses_and_writes_nothing(
    app: Flask, settings: Settings, made: list[Flask]
) -> None:
    make_agent()
    path = settings.master_key_path
    right = path.read_bytes()
    before = db.session.scalar(db.select(db.func.count(AgentKey.id)))
    db.session.rollback()

    path.unlink()
    for refused in (load_master_key, ensure_master_key):
        with pytest.raises(KeyFileError, match="missing"):
            refused(settings)
    assert not path.exists()
    MasterKey.generate().save(path)
    for refused in (load_master_key, ensure_master_key):
        with pytest.raises(KeyFileError, match="but this database was sealed to"):
            refused(settings)
    for part in (Part.WORKER, Part.COMMAND_LINE):
        with pytest.raises(KeyFileError):
            ready_app(part, settings)
    assert len(made) == 2
    path.write_bytes(right)
    assert load_master_key(settings).fingerprint == master_key().fingerprint
    assert db.session.scalar(db.select(db.func.count(AgentKey.id))) == before


def test_a_process_without_the_private_half_can_not_open_keys(app: Flask) -> None:
    agent = make_agent()
    held = app.extensions.pop("master_key")
    with pytest.raises(Unavailable, match="only the worker and the command line do"):
        open_keys(agent)
    app.extensions["master_key"] = held


def test_data_keys_open_only_for_their_agent_purpose_version_and_reader() -> None:
    master, other = MasterKey.generate(), MasterKey.generate()
    keys = make_agent_keys("agent-1")
    wrapped = keys.wrap_for(master.public)
    opened = open_agent_keys("agent-1", wrapped, master)
    assert opened.reveal_memory(1, keys.seal_memory(1, "tea")) == "tea"
    assert opened.content_hash("tea") == keys.content_hash("tea")
    data, dedup = wrapped
    for rows, uuid, opener in (
        (wrapped, "agent-2", master),
        (wrapped, "agent-1", other),
        ([replace(row, reader=other.public.hex) for row in wrapped], "agent-1", other),
        ([replace(data, sealed=dedup.sealed), dedup], "agent-1", master),
        ([replace(data, version=2), dedup], "agent-1", master),
        ([replace(data, sealed=data.sealed[:-1]), dedup], "agent-1", master),
        ([replace(data, sealed=b""), dedup], "agent-1", master),
        ([replace(data, sealed=b"\x00" * 80), dedup], "agent-1", master),
        ([data], "agent-1", master),
        ([dedup], "agent-1", master),
        ([], "agent-1", master),
    ):
        with pytest.raises(SealBroken):
            open_agent_keys(uuid, rows, opener)


def test_the_key_of_the_hashes_is_refused_when_it_is_wanted_and_opens_for_its_purpose_only() -> None:
    master = MasterKey.generate()
    keys = make_agent_keys("agent-1")
    data, dedup = keys.wrap_for(master.public)
    sealed = keys.seal_memory(1, "tea")
    for altered in (data.sealed, b"", dedup.sealed[:-1], dedup.sealed[:-1] + bytes([dedup.sealed[-1] ^ 1])):
        opened = open_agent_keys("agent-1", [data, replace(dedup, sealed=altered)], master)
        assert opened.reveal_memory(1, sealed) == "tea"
        for work in (
            lambda opened=opened: opened.content_hash("tea"),
            lambda opened=opened: opened.request_hash(b"tea"),
            lambda opened=opened: opened.seal_memory(2, "tea"),
            lambda opened=opened: opened.wrap_for(master.public),
        ):
            with pytest.raises(SealBroken, match="does not open"):
                work()


def test_sealed_content_swapped_between_rows_or_agents_refuses_to_open(app: Flask) -> None:
    ezra, eve = make_agent("ezra"), make_agent("eve")
    (first, second), (hers,) = remember(ezra, "Ann likes tea.", "Bob likes rum."), remember(eve, "Eve likes gin.")
    his_keys, her_keys = open_keys(ezra), open_keys(eve)
    memory, swapped, foreign = (db.session.get_one(Memory, one) for one in (first, second, hers))
    for keys, number, sealed in (
        (his_keys, first, swapped.content),
        (his_keys, first, foreign.content),
        (his_keys, hers, foreign.content),
        (her_keys, first, memory.content),
        (her_keys, hers, memory.content),
    ):
        with pytest.raises(SealBroken):
            keys.reveal_memory(number, sealed)


@pytest.mark.parametrize("changed", ["memory", "purpose", "subject", "key", "agent"])
def test_what_quotes_a_memory_opens_by_that_memorys_key_and_for_its_own_row_only(changed: str) -> None:
    keys, others = make_agent_keys("a"), make_agent_keys("b")
    content_keys = {number: keys.seal_memory(number, "Ann likes tea.").content_key or b"" for number in (1, 2)}
    quoting = keys.seal_about(1, "Ann", content_keys[1], purpose="question", subject=7)
    row: dict[str, Any] = {"purpose": "question", "subject": 7}
    assert keys.reveal_about(1, quoting, content_keys[1], **row) == "Ann"

    row |= {"purpose": {"purpose": "answer"}, "subject": {"subject": 8}}.get(changed, {})
    memory = 2 if changed == "memory" else 1
    key = content_keys[2] if changed in ("memory", "key") else content_keys[1]
    with pytest.raises(SealBroken):
        (others if changed == "agent" else keys).reveal_about(memory, quoting, key, **row)


def test_a_token_opens_its_own_agents_keys_and_no_others(app: Flask) -> None:
    ezra, eve = make_agent("ezra"), make_agent("eve")
    remember(ezra, "Ann likes tea.")
    with writing():
        locked = Agent.lock(ezra.id)
        token = issue_token(locked, by=COMMAND_LINE)
        db.session.flush()
        assert share_with_tokens(locked, open_keys(locked)) == 2
        assert share_with_tokens(locked, open_keys(locked)) == 0
    row = db.session.scalars(db.select(AgentToken)).one()
    assert row.token_hash == hash_token(token)
    parsed = parse_token(token)
    assert parsed is not None
    public_id, key = parsed
    assert (row.public_id, row.public_key) == (public_id, key.public.raw)
    memory = db.session.scalars(Memory.active(ezra.id)).one()
    assert open_keys(ezra, key).reveal_memory(memory.id, memory.content) == "Ann likes tea."
    for agent, opener in ((eve, key), (ezra, parse_token(new_token())[1])):  # type: ignore[index]
        with pytest.raises(SealBroken):
            open_keys(agent, opener)
    other_secret = token[:-1] + ("A" if token[-1] != "A" else "B")
    forged = parse_token(other_secret)
    assert forged is None or forged[1].fingerprint != key.fingerprint


def test_only_what_looks_like_a_token_is_parsed() -> None:
    good = new_token()
    assert parse_token(good) is not None
    for bad in (
        "",
        "whet_",
        good[:-1],
        good + "A",
        good.upper(),
        " " + good,
        good + "\n",
        good.replace("_", "-", 1),
        "x" * 9999,
    ):
        assert parse_token(bad) is None
    assert good.split("_", 2)[2] not in repr(parse_token(good))
    assert len({new_token() for _ in range(100)}) == 100


def test_what_comes_in_through_the_web_opens_for_the_master_and_that_row_only() -> None:
    master = MasterKey.generate()
    sealed = seal_intake("tea 😀", b"signed", intake_id="i-1", agent_uuid="a-1", master=master.public)
    assert b"tea" not in sealed
    opened = open_intake(sealed, intake_id="i-1", agent_uuid="a-1", master=master)
    assert opened == OpenedIntake(b"signed", "tea 😀")
    assert "tea" not in repr(opened)
    for number, uuid, key in (("i-2", "a-1", master), ("i-1", "a-2", master), ("i-1", "a-1", MasterKey.generate())):
        with pytest.raises(SealBroken):
            open_intake(sealed, intake_id=number, agent_uuid=uuid, master=key)


def test_what_is_sealed_for_one_look_opens_for_that_look_only() -> None:
    key = ViewKey()
    sealed = seal_view("tea 😀", view_id="v-1", reader=key.public.raw)
    assert b"tea" not in sealed
    assert key.open_view(sealed, view_id="v-1") == "tea 😀"
    for number, reader in (("v-2", key), ("", key), ("v-1", ViewKey())):
        with pytest.raises(SealBroken):
            reader.open_view(sealed, view_id=number)


def test_a_token_of_another_id_is_another_key_whatever_its_secret() -> None:
    one, other = (TokenKey(number * 16, "s" * 43) for number in "01")
    sealed = one.public.seal(b"tea", "for one")
    assert TokenKey("0" * 16, "s" * 43).open(sealed, "for one") == b"tea"
    with pytest.raises(SealBroken):
        other.open(sealed, "for one")


@pytest.mark.parametrize("purpose", ["data", "dedup"])
def test_keys_of_which_one_kind_is_missing_open_nothing(purpose: str) -> None:
    """With no dedup key, everybody could make the hashes."""
    master = MasterKey.generate()
    wrapped = make_agent_keys("a-1").wrap_for(master.public)
    with pytest.raises(SealBroken):
        open_agent_keys("a-1", [key for key in wrapped if key.purpose != purpose], master)


def test_a_passphrase_of_fewer_than_sixteen_characters_is_refused(tmp_path: Path) -> None:
    key, path = MasterKey.generate(), tmp_path / "backup"
    with pytest.raises(Invalid, match="at least 16 characters"):
        key.back_up(path, "x" * 15)
    assert not path.exists()
    key.back_up(path, "x" * 16)
    assert MasterKey.load(path, "x" * 16).fingerprint == key.fingerprint


def test_a_wrapped_key_that_was_cut_short_is_refused_in_words() -> None:
    master = MasterKey.generate()
    data, dedup = make_agent_keys("a-1").wrap_for(master.public)
    for length in (0, 1, 31, 32, 47, len(data.sealed) - 1):
        with pytest.raises(SealBroken, match="does not open"):
            open_agent_keys("a-1", [replace(data, sealed=data.sealed[:length]), dedup], master)


def test_a_key_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power leaves a database that is sealed to a key which is nowhere."""
    path, steps = tmp_path / "master.key", []  # type: Path, list[str]
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append(f"{kind}, {'named' if path.exists() else 'not named'}")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    MasterKey.generate().save(path)
    assert steps == ["file, not named", "folder, named"]
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda descriptor: steps.append(str(path.read_bytes() == before)))
    MasterKey.generate().replace(path)
    assert steps[2:] == ["True", "False"]


def test_nothing_but_halves_of_this_key_is_cleared_away_beside_it(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "master.key")
    halves = [".master.key.0123abcd.draft", ".master.key.next.0123abcd.draft", f".master.key.{'a' * 16}.0123abcd.draft"]
    others = [".master.key", ".master.key.backup", ".master.key.0123abcd.draft.mine", ".master.keys.0123abcd.draft"]
    for name in [*halves, *others]:
        (tmp_path / name).write_text("half of a k")
    with ring.held():
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_a_key_is_found_by_its_fingerprint_wherever_files_of_other_keys_lie(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "master.key")
    used, coming, earlier = (MasterKey.generate() for _ in range(3))
    used.save(ring.path)
    coming.save(ring.next_path)
    earlier.save(ring.kept_path(earlier.fingerprint))
    coming.save(ring.kept_path("0" * 16))
    for key in (used, coming, earlier):
        assert ring.find(key.fingerprint).fingerprint == key.fingerprint
    for fingerprint in ("0" * 16, MasterKey.generate().fingerprint):
        with pytest.raises(KeyFileError, match="was sealed to"):
            ring.find(fingerprint)
