"""`flask --app app db …`: Flask-Migrate where people look for it, with the migrations of `./whetstone db upgrade`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from flask import Flask

from app.config import ROOT, Settings
from app.extensions import db, end_reading
from migrations.triggers import missing_triggers
from tests.support.workers import environment_of


def flask_db(settings: Settings, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flask", "--app", "app", "db", *words],
        cwd=ROOT,
        env=environment_of(settings),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    """A copy, for what writes into it."""
    return Path(shutil.copytree(ROOT / "migrations", tmp_path / "migrations"))


def test_the_tables_are_as_the_models_say(settings: Settings) -> None:
    said = flask_db(settings, "check")
    assert (said.returncode, "No new upgrade operations detected" in said.stdout) == (0, True), said.stderr


def test_a_revision_is_made_by_the_usual_command_and_upgrades(settings: Settings, migrations: Path) -> None:
    folder = ("--directory", str(migrations))
    made = flask_db(settings, "migrate", *folder, "-m", "nothing new", "--rev-id", "0999")
    assert made.returncode == 0, made.stderr
    assert "def upgrade() -> None:" in (migrations / "versions" / "0999_nothing_new.py").read_text()

    assert flask_db(settings, "upgrade", *folder).returncode == 0
    assert "0999 (head)" in flask_db(settings, "current", *folder).stdout


def test_there_is_no_way_down_and_nothing_is_lost_by_trying(app: Flask, settings: Settings) -> None:
    end_reading()
    said = flask_db(settings, "downgrade")
    assert said.returncode != 0
    assert "restore the backup from before. Nothing was changed." in said.stderr
    assert "(head)" in flask_db(settings, "current").stdout
    assert missing_triggers(db.session.connection()) == set()
