"""A web process on a host of its own: what it trusts at its first start, and who takes what it signs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask
from structlog.testing import capture_logs

from app import Part
from app.cli.printing import tell_of_new_key
from app.config import Settings, load_settings
from app.extensions import db, writing
from app.models import COMMAND_LINE, Agent
from app.models.declaring import web_key
from app.models.statement_errors import AgentStopped, LogBroken
from app.models.statement_log import current_of, statement_log
from app.setup import prepare_installation, ready_app
from app.silo.webkey import PinnedInstallation
from app.statements.checks import settle_agent
from app.statements.web_keys import enrolled_web_keys
from tests.cli.conftest import Whetstone
from tests.support.clock import FakeClock
from tests.support.databases import let_go
from tests.support.factories import make_agent
from tests.support.tampering import tamper

OTHER = "ab" * 32


@pytest.fixture
def elsewhere(app: Flask, settings: Settings, tmp_path: Path) -> Settings:
    """The same database, as a host knows it that has an empty data dir."""
    return settings.model_copy(update={"data_dir": tmp_path / "elsewhere", "database_url": settings.sqlalchemy_url})


@pytest.fixture
def web_elsewhere(elsewhere: Settings, clock: FakeClock) -> Iterator[Flask]:
    """The web process of that host."""
    web = ready_app(Part.WEB, elsewhere)
    web.extensions["clock"] = clock
    yield web
    with web.app_context():
        let_go(db.engine)


def test_it_trusts_what_the_database_says_at_first_and_names_the_fingerprint(elsewhere: Settings) -> None:
    with capture_logs() as logs:
        ready_app(Part.WEB, elsewhere)

    (warned,) = [line for line in logs if line["log_level"] == "warning"]
    known = statement_log()
    assert (warned["installation"], warned["fingerprint"]) == (known.installation, known.keys.verifier.fingerprint)
    assert PinnedInstallation.load(elsewhere.pinned_path) == known.keys.pin
    assert elsewhere.web_key_path.exists()
    assert not elsewhere.master_key_path.exists()

    with capture_logs() as logs:
        ready_app(Part.WEB, elsewhere)
    assert logs == []


def test_another_installation_in_the_database_is_refused_later(elsewhere: Settings, tmp_path: Path) -> None:
    ready_app(Part.WEB, elsewhere)
    (tmp_path / "other").mkdir()
    prepare_installation(elsewhere.model_copy(update={"data_dir": tmp_path / "other", "database_url": ""}))
    other = elsewhere.model_copy(update={"database_url": f"sqlite:///{tmp_path / 'other' / 'whetstone.db'}"})

    with ready_app(Part.WEB, other).app_context(), pytest.raises(LogBroken, match="None of them is signed by the key"):
        statement_log()


def test_a_log_that_does_not_begin_with_a_signed_key_is_not_trusted(app: Flask, elsewhere: Settings) -> None:
    assert tamper("UPDATE log_leaves SET leaf = :leaf WHERE position = 0", leaf=b"mine")

    with pytest.raises(LogBroken, match="its first leaf"):
        ready_app(Part.WEB, elsewhere)

    assert not elsewhere.pinned_path.exists()


def test_what_it_signs_counts_once_its_key_is_enrolled_and_no_longer_when_it_is_dismissed(
    app: Flask, web_elsewhere: Flask, whetstone: Whetstone
) -> None:
    web, agent = web_elsewhere, make_agent()

    def change(value: str) -> str:
        """What the web process declares of the agent; returns the model that is stated then."""
        with web.app_context(), writing():
            Agent.lock(agent.id).change(by=COMMAND_LINE, system_prompt=value)
        return value

    def stated() -> object:
        model = current_of(agent.id, agent.uuid).model
        return model and model.body["prompts"]["system_prompt"]

    key = key_of(web)
    assert whetstone("keys", "enroll", key, "--json").json == {"key": key, "new": True}
    assert whetstone("keys", "enroll", key, "--json").json == {"key": key, "new": False}
    before = stated()
    change("You like rain.")
    settle_agent(agent.id)
    assert stated() != before

    assert whetstone("keys", "dismiss", key, "--json").json == {"key": key}
    assert key not in whetstone("keys", "enroll", "--list", "--json").json["keys"]
    change("You like snow.")
    with pytest.raises(AgentStopped, match="system_prompt"):
        settle_agent(agent.id)


def key_of(web: Flask) -> str:
    with web.app_context():
        return web_key().verifier.public.hex()


def test_its_key_and_what_it_trusts_are_printed_there(whetstone: Whetstone, app: Flask, settings: Settings) -> None:
    said = whetstone("keys", "web", "--json").json
    known = statement_log()
    assert said["key"] in {key.public.hex() for key in enrolled_web_keys()}
    assert said["installation"] == {"id": known.installation, "fingerprint": known.keys.verifier.fingerprint}
    assert f"keys enroll {said['key']}" in whetstone("keys", "web").out

    settings.pinned_path.unlink()
    assert whetstone("keys", "web", "--json").json["installation"] is None


@pytest.mark.parametrize("arguments", [(), ("--list", OTHER), ("no-key",), ("ab" * 31,), ("ab" * 33,)])
def test_what_is_no_key_is_wrong_usage(whetstone: Whetstone, arguments: tuple[str, ...]) -> None:
    before = whetstone("keys", "enroll", "--list").out
    assert whetstone("keys", "enroll", *arguments).status == 2
    assert whetstone("keys", "enroll", "--list").out == before


def test_one_that_nobody_enrolled_can_t_be_dismissed(whetstone: Whetstone) -> None:
    assert whetstone("keys", "dismiss", OTHER).status == 1


def test_one_that_was_dismissed_stays_so_where_another_is_enrolled(whetstone: Whetstone, settings: Settings) -> None:
    mine = whetstone("keys", "web", "--json").json["key"]
    whetstone("keys", "enroll", OTHER)
    whetstone("keys", "dismiss", mine)

    assert whetstone("db", "upgrade").status == 0
    assert whetstone("keys", "enroll", "--list", "--json").json == {"keys": [OTHER]}
    (said,) = [each for each in whetstone("doctor", "--json").json["checks"] if each["name"] == "apart"]
    assert said["state"] == "ok"

    settings.web_key_path.unlink()
    assert whetstone("db", "upgrade").status == 0
    assert len(whetstone("keys", "enroll", "--list", "--json").json["keys"]) == 2


def test_the_first_thing_that_doctor_says_is_who_can_read_the_key(whetstone: Whetstone, settings: Settings) -> None:
    first, second, *others = whetstone("doctor", "--json").json["checks"]
    assert (first["name"], first["state"]) == ("apart", "warn")
    assert "processes of one user can read one another's files" in first["detail"]
    assert (second["name"], second["state"]) == ("web", "ok")
    (log,) = [each for each in others if each["name"] == "log"]
    assert log["state"] == "ok"
    assert json.loads(whetstone("keys", "check", "--json").out)["signing_fingerprint"] in log["detail"]

    whetstone("keys", "dismiss", whetstone("keys", "web", "--json").json["key"])
    second = whetstone("doctor", "--json").json["checks"][1]
    assert (second["name"], second["state"]) == ("web", "fail")
    assert "keys enroll" in second["fix"]


def test_a_log_that_was_cut_is_a_fault_that_doctor_names(whetstone: Whetstone, app: Flask) -> None:
    make_agent()
    assert tamper("DELETE FROM log_leaves WHERE position > 0")
    db.session.remove()

    (log,) = [each for each in whetstone("doctor", "--json").json["checks"] if each["name"] == "log"]

    assert log["state"] == "fail"
    assert "restore accept" in log["detail"]


def test_up_says_the_fingerprint_beside_the_words(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = prepare_installation(load_settings(data_dir=tmp_path / "new", database_url=""), with_words=True)
    tell_of_new_key(made)

    said = capfd.readouterr().out
    assert len(made.signing_fingerprint) == 64
    assert said.index(made.recovery_words.split()[-1]) < said.index(made.signing_fingerprint)
    shutil.rmtree(tmp_path / "new")
