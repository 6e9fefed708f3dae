"""`whetstone users`, `db` and `keys`: who may sign in, what a database needs, and the key that opens it."""

from __future__ import annotations

import stat
from pathlib import Path
from unicodedata import normalize

import pytest
from flask import Flask
from flask_security import verify_password
from sqlalchemy import text

from app import security
from app.config import Settings
from app.extensions import db, writing
from app.models import Account, Agent, Passkey, User
from app.silo import MasterKey
from tests.cli.conftest import Whetstone
from tests.support.factories import make_agent, remember


def user(email: str) -> User:
    db.session.rollback()
    found: User = db.session.scalars(db.select(User).where(User.email == email)).one()
    return found


def test_a_password_is_made_and_shown_once(app: Flask, whetstone: Whetstone) -> None:
    said = whetstone("users", "create", "Ann@Example.org", "--role", "owner", "--json")

    assert said.status == 0
    made = user("ann@example.org")
    assert (said.json["id"], said.json["email"], said.json["role"]) == (made.id, "ann@example.org", "owner")
    assert made.may("owner")
    assert not made.may("site_admin")
    security.init_app(app, views=False)
    assert verify_password(said.json["password"], made.password)
    entry = whetstone("audit", "--last", "1", "--json").lines[0]
    assert entry["action"] == "user_create"
    assert said.json["password"] not in str(entry)


def test_a_password_can_come_from_standard_input_and_is_never_printed(app: Flask, whetstone: Whetstone) -> None:
    given = "correct horse bättery"

    said = whetstone("users", "create", "bob@example.org", "--password-stdin", "--json", stdin=f"{given}\n".encode())

    assert "password" not in said.json
    assert given not in said.out + said.err
    security.init_app(app, views=False)
    assert verify_password(normalize("NFKD", given), user("bob@example.org").password)


def test_the_role_decides_what_they_may(whetstone: Whetstone, app: Flask) -> None:
    whetstone("users", "create", "aud@example.org", "--role", "auditor")
    whetstone("users", "create", "adm@example.org")
    whetstone("users", "create", "op@example.org", "--role", "owner", "--site-admin")

    assert [user("aud@example.org").may(role) for role in ("auditor", "admin")] == [True, False]
    assert [user("adm@example.org").may(role) for role in ("admin", "owner")] == [True, False]
    assert [user("op@example.org").may(role) for role in ("owner", "site_admin")] == [True, True]


def test_a_user_can_be_made_in_another_account(app: Flask, whetstone: Whetstone) -> None:
    with writing():
        account = Account.create("Other")

    whetstone("users", "create", "ann@example.org", "--account", "Other")

    assert user("ann@example.org").account_id == account.id


@pytest.mark.parametrize(
    ("arguments", "stdin", "status", "word"),
    [
        (("ann",), b"", 2, "no e-mail address"),
        (("a\udcff@b",), b"", 2, "no e-mail address"),
        (("a b@c",), b"", 2, "no e-mail address"),
        (("ann@example.org", "--role", "king"), b"", 2, "king"),
        (("ann@example.org", "--password-stdin"), b"short\n", 2, "12 characters"),
        (("ann@example.org", "--password-stdin"), b"", 2, "no password"),
        (("ann@example.org", "--password-stdin"), b"\xff" * 20, 2, "not UTF-8"),
        (("ann@example.org", "--account", "Nowhere"), b"", 1, "no account"),
        (("admin@whetstone.local",), b"", 3, "already"),
    ],
)
def test_what_can_not_be_a_user_is_refused_and_none_is_made(
    app: Flask, whetstone: Whetstone, arguments: tuple[str, ...], stdin: bytes, status: int, word: str
) -> None:
    said = whetstone("users", "create", *arguments, "--json", stdin=stdin)

    assert (said.status, said.out) == (status, "")
    assert word in said.error["message"]
    assert len(db.session.scalars(db.select(User)).all()) == 1


def test_db_upgrade_makes_a_database_without_a_user_and_is_safe_to_repeat(
    whetstone: Whetstone, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settings.database_url:
        pytest.skip("an empty SQLite database is enough to see it")
    monkeypatch.setenv("WHETSTONE_DATA_DIR", str(tmp_path / "new"))

    first, again = whetstone("db", "upgrade", "--json"), whetstone("db", "upgrade", "--json")

    assert first.json["version_before"] is None
    assert again.json == {"version": first.json["version"], "version_before": first.json["version"]}
    key = tmp_path / "new" / "keys" / "master.key"
    assert str(key) in first.err
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert whetstone("agents", "list", "--json").json == []
    assert whetstone("users", "create", "ann@example.org", "--role", "owner").status == 0
    assert whetstone("verify", "--json").json["ok"] is True


def test_commands_without_an_installation_say_how_to_make_one_and_make_none(
    whetstone: Whetstone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    if settings.database_url:
        pytest.skip("a PostgreSQL database is there or not, whatever the data dir")
    monkeypatch.setenv("WHETSTONE_DATA_DIR", str(tmp_path / "none"))

    for arguments in (("agents", "list"), ("agents", "create", "x", "--model", "m"), ("verify",), ("sweep",)):
        said = whetstone(*arguments)
        assert said.status == 1, arguments
        assert "db upgrade" in said.err, arguments
    assert not (tmp_path / "none").exists()


def test_a_data_dir_that_can_not_be_written_is_refused_in_words(
    whetstone: Whetstone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("WHETSTONE_DATA_DIR", str(blocked / "data"))
    monkeypatch.setenv("DATABASE_URL", "")

    for arguments in (("db", "upgrade"), ("demo",)):
        said = whetstone(*arguments)
        assert said.status == 1, arguments
        assert "can't be written" in said.err, arguments
    assert blocked.read_text() == "in the way"


@pytest.mark.parametrize(("version", "told"), [("9999", "newer version (9999)"), ("0006", "not carried over")])
def test_a_database_of_another_version_is_left_alone(whetstone: Whetstone, app: Flask, version: str, told: str) -> None:
    with writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :version"), {"version": version})

    for arguments in (("agents", "list"), ("db", "upgrade"), ("demo",), ("refine", "ezra", "--wait")):
        said = whetstone(*arguments, "--json")
        assert (said.status, said.out) == (1, ""), arguments
        assert told in said.error["message"], arguments
    assert db.session.scalar(text("SELECT version_num FROM alembic_version")) == version


@pytest.fixture
def agent(app: Flask) -> Agent:
    made = make_agent("ezra")
    remember(made, "Ann likes tea.")
    return made


def test_keys_check_opens_every_agents_keys(agent: Agent, whetstone: Whetstone, settings: Settings) -> None:
    said = whetstone("keys", "check", "--json")

    assert said.status == 0
    assert (said.json["ok"], said.json["agents"], said.json["problems"]) == (True, 1, [])
    assert said.json["path"] == str(settings.master_key_path)


def test_keys_check_minds_a_key_file_that_others_may_read(whetstone: Whetstone, settings: Settings) -> None:
    settings.master_key_path.chmod(0o644)

    said = whetstone("keys", "check")

    assert said.status == 1
    assert f"chmod 600 {settings.master_key_path}" in said.err


def test_keys_check_names_the_agent_whose_keys_do_not_open(agent: Agent, whetstone: Whetstone) -> None:
    make_agent("void")
    with writing() as session:
        session.execute(text("DELETE FROM agent_keys WHERE agent_id = :id"), {"id": agent.id})

    said = whetstone("keys", "check", "--json")

    assert (said.status, said.json["ok"], len(said.json["problems"])) == (1, False, 1)
    assert said.json["problems"][0].startswith("ezra: ")


@pytest.mark.parametrize("what", ["missing", "another", "no key at all"])
def test_without_the_right_master_key_nothing_works_and_nothing_is_written(
    agent: Agent, whetstone: Whetstone, settings: Settings, what: str
) -> None:
    before = whetstone("audit", "--json").out
    path = settings.master_key_path
    kept = path.read_bytes()
    path.unlink()
    if what == "another":
        MasterKey.generate().save(path)
    elif what == "no key at all":
        path.write_text("hello")

    for arguments in (("agents", "create", "x", "--model", "m"), ("keys", "check"), ("refine", "ezra", "--wait")):
        said = whetstone(*arguments, "--json")
        assert (said.status, said.out, said.error["code"]) == (1, "", "master_key"), arguments
        assert "WHETSTONE_MASTER_KEY_FILE" in said.error["message"], arguments
    assert path.exists() == (what != "missing")

    path.unlink(missing_ok=True)
    path.write_bytes(kept)
    assert whetstone("audit", "--json").out == before


def test_a_second_factor_that_was_lost_is_taken_off_and_recorded(app: Flask, whetstone: Whetstone) -> None:
    whetstone("users", "create", "ann@example.org")
    account_id = user("ann@example.org").account_id
    with writing():
        account = Account.lock(account_id)
        made = user_in(account, "ann@example.org")
        made.set_totp(account, "totp1:sealed elsewhere", step=1, digests=["one", "two"])
        held = Passkey(credential_id="AAAA", public_key=b"a key", host="localhost", name="phone", sign_count=1)
        made.add_passkey(account, held, digests=[])
    listed = {each["email"]: each["two_factor"] for each in whetstone("users", "list", "--json").json}
    assert listed["ann@example.org"] is True
    assert " yes" in whetstone("users", "list").out

    first = whetstone("users", "reset-second-factor", "Ann@example.org", "--json")
    again = whetstone("users", "reset-second-factor", "ann@example.org")

    assert first.json == {"email": "ann@example.org", "two_factor": False, "passkeys_removed": 1, "changed": True}
    assert (again.status, "has no second factor. Nothing was changed." in again.out) == (0, True)
    db.session.expire_all()
    assert not user("ann@example.org").has_second_factor
    entry = whetstone("audit", "--last", "1", "--json").lines[0]
    assert (entry["action"], entry["data"]["email"]) == ("second_factor_reset", "ann@example.org")
    assert whetstone("verify").status == 0


def user_in(account: Account, email: str) -> User:
    return db.session.scalars(db.select(User).where(User.email == email, User.account_id == account.id)).one()
