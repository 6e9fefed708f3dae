"""The quick check of a second start: it says yes only where the whole preparation would do nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from app.config import Settings, load_settings
from app.processes.quickcheck import is_prepared
from app.setup import prepare_installation


@pytest.fixture
def prepared(tmp_path: Path) -> Settings:
    settings = load_settings(data_dir=tmp_path, database_url="")
    prepare_installation(settings)
    return settings


def test_a_prepared_installation_needs_nothing(prepared: Settings) -> None:
    assert is_prepared(prepared)


def test_an_empty_data_dir_needs_preparation(tmp_path: Path) -> None:
    assert not is_prepared(load_settings(data_dir=tmp_path, database_url=""))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "difference",
    [
        "UPDATE alembic_version SET version_num = '0000'",
        "UPDATE alembic_version SET version_num = '9999'",
        "DELETE FROM alembic_version",
        "UPDATE marks SET value = 'voice' WHERE name = 'immutable_tags'",
        "DELETE FROM marks WHERE name = 'immutable_tags'",
        "PRAGMA foreign_keys = OFF; DELETE FROM users",
        "DELETE FROM master_keys",
        "ALTER TABLE users RENAME TO people",
    ],
)
def test_whatever_is_missing_needs_preparation(difference: str, prepared: Settings) -> None:
    with sqlite3.connect(prepared.data / "whetstone.db") as database:
        database.executescript(difference)
    database.close()
    assert not is_prepared(prepared)


def test_a_missing_master_key_needs_the_full_check(prepared: Settings) -> None:
    prepared.master_key_path.unlink()
    assert not is_prepared(prepared)


@pytest.mark.parametrize("file", ["web.key", "installation.json", "statements/leaves"])
def test_whatever_is_missing_beside_the_database_needs_preparation(file: str, prepared: Settings) -> None:
    (prepared.data / file).unlink()
    assert not is_prepared(prepared)


def test_changed_immutable_tags_need_preparation(prepared: Settings) -> None:
    assert not is_prepared(prepared.model_copy(update={"immutable_tags": ("voice",)}))


def test_a_damaged_database_is_left_to_the_full_check(prepared: Settings) -> None:
    for file in prepared.data.glob("whetstone.db*"):
        file.write_bytes(b"not a database, for long enough to be one" * 100)
    assert not is_prepared(prepared)


def test_postgresql_is_left_to_the_full_check(prepared: Settings) -> None:
    assert not is_prepared(prepared.model_copy(update={"database_url": "postgresql+psycopg://127.0.0.1/x"}))
